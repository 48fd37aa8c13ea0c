//! The place of the cache, which is empty until its store is open.

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

/// Purges that have come before the cache was open.
#[derive(Debug, Default)]
struct EarlyPurges {
    /// Those of other nodes.
    known: Vec<KnownPurges>,
    /// Those of responses to requests at this node.
    ordered: Vec<Purge>,
    count: usize,
}

/// The most purges that wait for the cache to open. Beyond, all responses that it finds are purged.
const EARLY_MAX: usize = 10_000;

impl CacheHandle {
    /// Registers the metrics of the cache.
    pub fn register(registry: &mut Registry) -> Self {
        Self { metrics: CacheMetrics::register(registry), ..Self::default() }
    }

    /// Opens the cache. A second call has no effect.
    pub fn open(&self, store: Store, mut purges: Purges) -> &Arc<ResponseCache> {
        let mut early = self.early();
        self.cache.get_or_init(|| {
            let EarlyPurges { known, ordered, count } = std::mem::take(&mut *early);
            for KnownPurges { generation, folded, purges: learned } in known {
                purges.merge(generation, folded, learned);
            }
            for purge in ordered {
                purges.order(purge);
            }
            if count > EARLY_MAX {
                purges.order(Purge::Everything);
            }
            Arc::new(ResponseCache::new(store, purges, self.metrics.clone()))
        })
    }

    /// Learns purges of another node. Returns those that were new here.
    pub fn learn(&self, known: KnownPurges) -> Vec<(PurgeId, Purge)> {
        let mut early = self.early();
        if let Some(cache) = self.cache.get() {
            return cache.learn(known);
        }
        // A message counts also without purges.
        early.count += known.purges.len() + 1;
        if early.count <= EARLY_MAX {
            early.known.push(known);
        }
        Vec::new()
    }

    /// The purges that other nodes have to know.
    pub fn known_purges(&self) -> KnownPurges {
        self.get().map(|cache| cache.known_purges()).unwrap_or_default()
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
        let mut early = self.early();
        if let Some(cache) = self.cache.get() {
            cache.purge(purge);
            return;
        }
        early.count += 1;
        if early.count <= EARLY_MAX {
            early.ordered.push(purge);
        }
    }

    pub fn get(&self) -> Option<&Arc<ResponseCache>> {
        self.cache.get()
    }
}
