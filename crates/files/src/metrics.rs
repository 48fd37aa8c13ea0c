//! Metrics of served files.

use http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// The counters. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    requests: Family<Status, Counter>,
    pub(crate) bodies_cut: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Status {
    status: u16,
}

impl Metrics {
    /// Registers the counters.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("watari_files_requests", "Requests for files, by status", metrics.requests.clone());
        registry.register(
            "watari_files_bodies_cut",
            "Files that could not be sent completely",
            metrics.bodies_cut.clone(),
        );
        metrics
    }

    pub(crate) fn count(&self, status: StatusCode) {
        self.requests.get_or_create(&Status { status: status.as_u16() }).inc();
    }
}
