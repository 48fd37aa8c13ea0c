//! The place of the cache, which is empty until its store is open.
//!
//! Before that, this node loads its own purges, so that it can send them to other nodes. None of them uses its store before
//! it has the purges of all others.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use prometheus_client::registry::Registry;
use watari_cache::{Purge, PurgeId, Purges};
use watari_cache_store::Store;

use super::metrics::CacheMetrics;
use super::response_cache::ResponseCache;

/// The store of the cache is not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the store of the cache is not open: set cache at a route, or wait until its directory is read")]
pub struct CacheClosed;

/// A cache that may open later. While it is not open, requests go to origins. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct CacheHandle {
    cache: Arc<OnceLock<Arc<ResponseCache>>>,
    early: Arc<Mutex<EarlyPurges>>,
    metrics: CacheMetrics,
}

/// Purges that another node knows, see [`Purges::merge`].
#[derive(Debug, Clone, Default)]
pub struct KnownPurges {
    pub generation: u64,
    pub folded: Vec<PurgeId>,
    pub purges: Vec<(PurgeId, Purge)>,
}

/// Purges until the cache is open.
#[derive(Debug)]
enum EarlyPurges {
    /// They have come before those of this node were loaded.
    Waiting {
        /// Those of other nodes.
        known: Vec<KnownPurges>,
        /// Those of responses to requests at this node.
        ordered: Vec<Purge>,
        count: usize,
    },
    Loaded(Box<Purges>),
    /// The cache has them.
    Open,
}

/// A cache with purges, whose store can open.
#[derive(Debug)]
pub struct LoadedCache(CacheHandle);

/// The most purges that wait for those of this node. Beyond, all stored responses are purged.
const WAITING_MAX: usize = 10_000;

impl CacheHandle {
    /// Registers the metrics of the cache.
    pub fn register(registry: &mut Registry) -> Self {
        Self { metrics: CacheMetrics::register(registry), ..Self::default() }
    }

    /// Adds the purges that this node has stored. A second call has no effect.
    pub fn load(&self, mut purges: Purges) -> LoadedCache {
        let mut early = self.early();
        if let EarlyPurges::Waiting { known, ordered, count } = &mut *early {
            for KnownPurges { generation, folded, purges: learned } in known.drain(..) {
                purges.merge(generation, folded, learned);
            }
            for purge in ordered.drain(..) {
                purges.order(purge);
            }
            if *count > WAITING_MAX {
                purges.order(Purge::Everything);
            }
            *early = EarlyPurges::Loaded(Box::new(purges));
        }
        LoadedCache(self.clone())
    }

    /// True if the purges that this node has stored are among those that it knows.
    pub fn is_loaded(&self) -> bool {
        !matches!(*self.early(), EarlyPurges::Waiting { .. })
    }

    /// Learns purges of another node. Returns those that were new here.
    pub fn learn(&self, learned: KnownPurges) -> Vec<(PurgeId, Purge)> {
        let mut early = self.early();
        match &mut *early {
            EarlyPurges::Waiting { known, count, .. } => {
                // A message counts also without purges.
                *count += learned.purges.len() + 1;
                if *count <= WAITING_MAX {
                    known.push(learned);
                }
                Vec::new()
            }
            EarlyPurges::Loaded(purges) => purges.merge(learned.generation, learned.folded, learned.purges),
            EarlyPurges::Open => self.get().map(|cache| cache.learn(learned)).unwrap_or_default(),
        }
    }

    /// The purges that other nodes have to know.
    pub fn known_purges(&self) -> KnownPurges {
        match &*self.early() {
            EarlyPurges::Waiting { .. } => KnownPurges::default(),
            EarlyPurges::Loaded(purges) => KnownPurges::of(purges),
            EarlyPurges::Open => self.get().map(|cache| cache.known_purges()).unwrap_or_default(),
        }
    }

    fn early(&self) -> MutexGuard<'_, EarlyPurges> {
        self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Purges stored responses at all nodes.
    pub fn purge(&self, purge: Purge) -> Result<(), CacheClosed> {
        self.get().map(|cache| cache.purge(purge)).ok_or(CacheClosed)
    }

    /// Purges what a response has invalidated: at once, or when the cache opens.
    pub(crate) fn invalidate(&self, purge: Purge) {
        match &mut *self.early() {
            EarlyPurges::Waiting { ordered, count, .. } => {
                *count += 1;
                if *count <= WAITING_MAX {
                    ordered.push(purge);
                }
            }
            EarlyPurges::Loaded(purges) => drop(purges.order(purge)),
            EarlyPurges::Open => {
                if let Some(cache) = self.get() {
                    cache.purge(purge);
                }
            }
        }
    }

    pub fn get(&self) -> Option<&Arc<ResponseCache>> {
        self.cache.get()
    }
}

impl LoadedCache {
    /// Opens the cache. Another one that is open already stays.
    pub fn open(self, store: Store) -> Arc<ResponseCache> {
        let Self(handle) = self;
        let mut early = handle.early();
        if let EarlyPurges::Loaded(purges) = std::mem::replace(&mut *early, EarlyPurges::Open) {
            let _ = handle.cache.set(Arc::new(ResponseCache::new(store, *purges, handle.metrics.clone())));
        }
        handle.get().cloned().expect("it is open")
    }
}

impl KnownPurges {
    pub(super) fn of(purges: &Purges) -> Self {
        Self {
            generation: purges.generation(),
            folded: purges.folded().collect(),
            purges: purges.since(0).map(|(id, purge)| (id, purge.clone())).collect(),
        }
    }
}

impl Default for EarlyPurges {
    fn default() -> Self {
        Self::Waiting { known: Vec::new(), ordered: Vec::new(), count: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Purge {
        Purge::Url(text.into())
    }

    #[test]
    fn stored_purges_are_known_to_others_before_the_store_opens() {
        let handle = CacheHandle::default();
        let [mut stored, mut others] = [1, 2].map(Purges::new);
        stored.order(url("stored"));
        others.order(url("other"));
        assert_eq!(handle.learn(KnownPurges::of(&others)), []);
        assert!(!handle.is_loaded() && handle.known_purges().purges.is_empty());

        handle.invalidate(url("early"));
        let _loaded = handle.load(stored);
        handle.invalidate(url("late"));
        assert!(handle.is_loaded());
        let known: Vec<_> = handle.known_purges().purges.into_iter().map(|(_, purge)| purge).collect();
        assert_eq!(known, ["stored", "other", "early", "late"].map(url));

        assert_eq!(handle.learn(KnownPurges::of(&others)), [], "they are known");
        let next = others.order(url("next"));
        assert_eq!(handle.learn(KnownPurges::of(&others)), [next], "it is passed on");
    }
}
