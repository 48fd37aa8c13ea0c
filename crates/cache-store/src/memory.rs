//! Entries in memory.

use std::fmt;
use std::sync::Arc;
use std::thread::available_parallelism;

use quick_cache::sync::{Cache, PlaceholderGuard};
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use watari_cache::{Entry, Key};

use crate::hashing::KeyHashing;
use crate::metrics::Metrics;

type Entries = Cache<Key, Weighed, ByWeight, KeyHashing, Evictions>;

/// Entries in memory, within a bound of bytes.
pub(crate) struct Memory {
    entries: Entries,
    metrics: Metrics,
}

/// An entry that is being loaded. Others who load it wait for this one.
pub(crate) struct Loading<'a> {
    memory: &'a Memory,
    guard: PlaceholderGuard<'a, Key, Weighed, ByWeight, KeyHashing, Evictions>,
}

#[derive(Clone)]
struct Weighed {
    entry: Arc<Entry>,
    weight: u64,
}

#[derive(Clone)]
struct ByWeight;

#[derive(Clone)]
struct Evictions(Metrics);

impl Memory {
    pub(crate) fn new(bytes_max: usize, metrics: Metrics) -> Self {
        let shards = (available_parallelism().map_or(1, usize::from) * 4).min(bytes_max / SHARD_LEN_MIN).max(1);
        let mut options = OptionsBuilder::new();
        options.shards(shards).weight_capacity(bytes_max as u64).estimated_items_capacity(bytes_max / ENTRY_LEN);
        let options = options.ghost_allocation(GHOSTS).build().expect("all values are there");
        let entries = Cache::with_options(options, ByWeight, KeyHashing, Evictions(metrics.clone()));
        Self { entries, metrics }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.entries.get(key).map(|weighed| weighed.entry)
    }

    /// Waits for those that load the entry.
    pub(crate) async fn get_or_load(&self, key: &Key) -> Result<Arc<Entry>, Loading<'_>> {
        match self.entries.get_value_or_guard_async(key).await {
            Ok(weighed) => Ok(weighed.entry),
            Err(guard) => Err(Loading { memory: self, guard }),
        }
    }

    /// Whether this entry is the one of the key.
    pub(crate) fn has(&self, key: &Key, entry: &Arc<Entry>) -> bool {
        self.entries.peek(key).is_some_and(|weighed| Arc::ptr_eq(&weighed.entry, entry))
    }

    pub(crate) fn insert(&self, key: Key, entry: Arc<Entry>) {
        self.entries.insert(key, Weighed::new(entry));
        self.show();
    }

    pub(crate) fn remove(&self, key: &Key) {
        self.entries.remove(key);
        self.show();
    }

    /// The bytes and the number of entries.
    pub(crate) fn usage(&self) -> (u64, u64) {
        (self.entries.weight(), self.entries.len() as u64)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (Key, Arc<Entry>)> {
        self.entries.iter().map(|(key, weighed)| (key, weighed.entry))
    }

    fn show(&self) {
        self.metrics.memory_bytes.set(self.entries.weight().cast_signed());
    }
}

impl Loading<'_> {
    /// Stores the entry, unless another one was inserted meanwhile, or it was removed.
    pub(crate) fn finish(self, entry: &Arc<Entry>) {
        let _ = self.guard.insert(Weighed::new(entry.clone()));
        self.memory.show();
    }
}

impl Weighed {
    fn new(entry: Arc<Entry>) -> Self {
        let weight = (entry.weight() + OVERHEAD_LEN) as u64;
        Self { entry, weight }
    }
}

impl Weighter<Key, Weighed> for ByWeight {
    fn weight(&self, _: &Key, weighed: &Weighed) -> u64 {
        weighed.weight
    }
}

impl Lifecycle<Key, Weighed> for Evictions {
    /// Evicted entries are freed after the lock.
    type RequestState = Vec<Weighed>;

    fn on_evict(&self, evicted: &mut Self::RequestState, _: Key, weighed: Weighed) {
        self.0.memory_evictions.inc();
        evicted.push(weighed);
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("usage", &self.usage()).finish_non_exhaustive()
    }
}

/// What the cache needs for an entry, in bytes. `tests/store/measure.rs` measures it.
const OVERHEAD_LEN: usize = 128;

/// The least part of memory under one lock, in bytes. An entry takes at most a part of it.
const SHARD_LEN_MIN: usize = 4 << 20;

/// The length of entries that the cache is laid out for, in bytes. It decides the number of ghosts.
const ENTRY_LEN: usize = 16 << 10;

/// The evicted keys that are remembered, as a part of the entries that the cache is laid out for: an entry that comes
/// back soon is kept. Less is worse during scans, and more without them (`examples/hit_ratios.rs`).
const GHOSTS: f64 = 0.25;
