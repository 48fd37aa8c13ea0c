//! Metrics of the store.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The metrics. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    pub(crate) memory_bytes: Gauge,
    pub(crate) memory_evictions: Counter,
    pub(crate) disk_writes_dropped: Counter,
    pub(crate) disk_writes_failed: Counter,
    pub(crate) disk_reads_failed: Counter,
    pub(crate) disk_entries_damaged: Counter,
}

impl Metrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let gauge = metrics.memory_bytes.clone();
        registry.register("watari_cache_memory_bytes", "Bytes of memory that cached entries take", gauge);
        let counters = [
            ("memory_evictions", "Entries evicted from memory, or too large for it", &metrics.memory_evictions),
            ("disk_writes_dropped", "Entries not written to disk: too slow, or off", &metrics.disk_writes_dropped),
            ("disk_writes_failed", "Entries that could not be written to disk", &metrics.disk_writes_failed),
            ("disk_reads_failed", "Entries that could not be read from disk", &metrics.disk_reads_failed),
            ("disk_entries_damaged", "Entries on disk with a wrong checksum", &metrics.disk_entries_damaged),
        ];
        for (name, help, counter) in counters {
            registry.register(format!("watari_cache_{name}"), help, counter.clone());
        }
        metrics
    }
}
