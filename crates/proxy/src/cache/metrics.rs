//! Metrics of the response cache.

use std::collections::BTreeMap;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use watari_cache::NotStored;

/// The counters of the response cache. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct CacheMetrics {
    requests: Family<ResultLabel, Counter>,
    not_stored: Family<ReasonLabel, Counter>,
    /// Bytes of content that origins have sent for the store.
    pub(super) filled_bytes: Counter,
    /// Responses from the cache that were cut.
    pub(super) cut: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// How a request was answered, for metrics and the access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CacheResult {
    /// From the store.
    Hit,
    /// From the store, after a validation.
    Revalidated,
    /// From the store, although it was stale.
    Stale,
    /// From the response to another request.
    Collapsed,
    /// From the origin.
    Miss,
    /// From the origin, without a look into the store.
    Bypass,
}

impl CacheResult {
    const ALL: [Self; 6] = [Self::Hit, Self::Revalidated, Self::Stale, Self::Collapsed, Self::Miss, Self::Bypass];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Revalidated => "revalidated",
            Self::Stale => "stale",
            Self::Collapsed => "collapsed",
            Self::Miss => "miss",
            Self::Bypass => "bypass",
        }
    }
}

impl CacheMetrics {
    /// Registers the metrics with `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "watari_cache_requests",
            "Requests of routes with a cache, by how they were answered",
            metrics.requests.clone(),
        );
        registry.register(
            "watari_cache_not_stored",
            "Responses of origins that were not stored, by reason",
            metrics.not_stored.clone(),
        );
        registry.register(
            "watari_cache_filled_bytes",
            "Bytes of content that origins have sent for the store",
            metrics.filled_bytes.clone(),
        );
        registry.register("watari_cache_cut", "Responses from the cache that were cut", metrics.cut.clone());
        metrics
    }

    pub(super) fn count(&self, result: CacheResult) {
        self.requests.get_or_create(&ResultLabel { result: result.as_str() }).inc();
    }

    /// The number of requests, by result.
    pub(super) fn results(&self) -> BTreeMap<&'static str, u64> {
        let count = |result: CacheResult| self.requests.get_or_create(&ResultLabel { result: result.as_str() }).get();
        CacheResult::ALL.map(|result| (result.as_str(), count(result))).into()
    }

    pub(super) fn count_not_stored(&self, reason: NotStored) {
        self.not_stored.get_or_create(&ReasonLabel { reason: reason.as_str() }).inc();
    }
}
