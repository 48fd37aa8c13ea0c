//! Metrics of the response cache.

use std::collections::BTreeMap;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use watari_cache::NotStored;

/// The counters of the response cache. Clones share the counts.
#[derive(Debug, Clone)]
pub struct CacheMetrics {
    requests: Family<ResultLabel, Counter>,
    /// Those of `requests` in the order of [`CacheResult::ALL`]: a look into the family would hash and lock.
    by_result: [Counter; CacheResult::ALL.len()],
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

impl Default for CacheMetrics {
    fn default() -> Self {
        let requests = Family::<ResultLabel, Counter>::default();
        let by_result =
            CacheResult::ALL.map(|result| requests.get_or_create(&ResultLabel { result: result.as_str() }).clone());
        Self {
            requests,
            by_result,
            not_stored: Family::default(),
            filled_bytes: Counter::default(),
            cut: Counter::default(),
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
        self.by_result[result as usize].inc();
    }

    /// The number of requests, by result.
    pub(super) fn results(&self) -> BTreeMap<&'static str, u64> {
        CacheResult::ALL.map(|result| (result.as_str(), self.by_result[result as usize].get())).into()
    }

    pub(super) fn count_not_stored(&self, reason: NotStored) {
        self.not_stored.get_or_create(&ReasonLabel { reason: reason.as_str() }).inc();
    }
}
