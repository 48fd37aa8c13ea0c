//! Metrics of the proxy.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use watari_handover::Stays;
use watari_handover::governor::Cause;

use crate::exchange::address::OriginAddress;
use crate::exchange::failure::Failure;
use crate::observe::queue_metrics::{QueueMetrics, Queues};

/// The counters of forwarded requests. Clones share the counts.
#[derive(Debug, Clone)]
pub struct Metrics {
    requests: Family<OriginAndClass, Counter>,
    connect_errors: Family<OriginLabel, Counter>,
    bodies_cut: Family<OriginLabel, Counter>,
    body_bytes: Family<OriginLabel, Counter>,
    failures: Family<Reason, Counter>,
    log_lines_lost: Counter,
    stays: Family<PoolAndReason, Counter>,
    handovers: Family<Handover, Counter>,
    handover_refusals: Family<Refusal, Counter>,
    handover_seconds: Family<PoolLabel, Histogram, fn() -> Histogram>,
    healthy: Healthy,
    ejections: Family<Ejection, Counter>,
    retries: Family<PoolLabel, Counter>,
    queues: Queues,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolAndOrigin {
    pool: String,
    origin: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ejection {
    pool: String,
    origin: String,
    cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OriginAndClass {
    origin: String,
    class: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OriginLabel {
    origin: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabel {
    pool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolAndReason {
    pool: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Handover {
    pool: String,
    to: String,
    cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Refusal {
    pool: String,
    origin: String,
    reason: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            connect_errors: Family::default(),
            bodies_cut: Family::default(),
            body_bytes: Family::default(),
            failures: Family::default(),
            log_lines_lost: Counter::default(),
            stays: Family::default(),
            handovers: Family::default(),
            handover_refusals: Family::default(),
            handover_seconds: Family::new_with_constructor(handover_histogram),
            healthy: Healthy::default(),
            ejections: Family::default(),
            retries: Family::default(),
            queues: Queues::default(),
        }
    }
}

/// From 0.5 ms to 8 s.
fn handover_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.0005, 2.0, 15))
}

impl Metrics {
    /// Registers the metrics with `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "watari_proxy_requests",
            "Requests that an origin answered, by origin and class of status",
            metrics.requests.clone(),
        );
        registry.register(
            "watari_proxy_connect_errors",
            "Connections to an origin that failed or timed out",
            metrics.connect_errors.clone(),
        );
        registry.register(
            "watari_proxy_bodies_cut",
            "Response bodies that an origin cut short or stopped sending",
            metrics.bodies_cut.clone(),
        );
        registry.register(
            "watari_proxy_body_bytes",
            "Bytes of response bodies that an origin sent",
            metrics.body_bytes.clone(),
        );
        registry.register(
            "watari_proxy_transfers_not_movable",
            "Responses that no handover can continue, by reason",
            metrics.stays.clone(),
        );
        registry.register(
            "watari_proxy_handovers",
            "Transfers that continued at another origin, by that origin and cause",
            metrics.handovers.clone(),
        );
        registry.register(
            "watari_proxy_handover_refusals",
            "Attempts to continue a transfer that the other origin refused, by reason",
            metrics.handover_refusals.clone(),
        );
        registry.register(
            "watari_proxy_handover_seconds",
            "Time from the request to another origin until its bytes continue the transfer",
            metrics.handover_seconds.clone(),
        );
        registry.register(
            "watari_proxy_origin_healthy",
            "Whether an origin gets requests, by its checks and responses: 1, else 0",
            metrics.healthy.shown.clone(),
        );
        registry.register(
            "watari_proxy_origin_ejections",
            "Ejections of an origin because requests to it failed, by cause",
            metrics.ejections.clone(),
        );
        registry.register(
            "watari_proxy_retries",
            "Requests that were retried at another origin before a response",
            metrics.retries.clone(),
        );
        registry.register(
            "watari_proxy_failures",
            "Requests answered without an origin's response, by reason",
            metrics.failures.clone(),
        );
        registry.register(
            "watari_proxy_access_log_lines_lost",
            "Access log lines lost because their file could not be written, or not fast enough",
            metrics.log_lines_lost.clone(),
        );
        metrics.queues.register(registry);
        metrics
    }

    /// The metrics of the queue of a pool.
    pub(crate) fn of_queue(&self, pool: &str) -> QueueMetrics {
        self.queues.of_pool(pool)
    }

    pub(super) fn log_lines_lost(&self) -> Counter {
        self.log_lines_lost.clone()
    }

    pub(crate) fn count_failure(&self, failure: &Failure) {
        self.failures.get_or_create(&Reason { reason: failure.reason() }).inc();
    }

    pub(crate) fn of_origin(&self, origin: &OriginAddress) -> OriginMetrics {
        let label = OriginLabel { origin: origin.to_string() };
        let answers = CLASSES
            .map(|class| self.requests.get_or_create_owned(&OriginAndClass { origin: label.origin.clone(), class }));
        OriginMetrics {
            answers,
            connect_errors: self.connect_errors.get_or_create_owned(&label),
            bodies_cut: self.bodies_cut.get_or_create_owned(&label),
            body_bytes: self.body_bytes.get_or_create_owned(&label),
        }
    }

    pub(crate) fn of_standing(&self, pool: &str, origin: &OriginAddress) -> OriginHealthMetrics {
        let label = PoolAndOrigin { pool: pool.to_owned(), origin: origin.to_string() };
        let healthy = self.healthy.begin(&label);
        OriginHealthMetrics { healthy, all: self.healthy.clone(), ejections: self.ejections.clone(), label }
    }

    pub(crate) fn retries(&self, pool: &str) -> Counter {
        self.retries.get_or_create_owned(&PoolLabel { pool: pool.to_owned() })
    }

    pub(crate) fn of_pool(&self, pool: &str) -> TransferMetrics {
        TransferMetrics { all: self.clone(), pool: pool.to_owned() }
    }
}

/// The counters of a pool's transfers.
#[derive(Debug)]
pub(crate) struct TransferMetrics {
    all: Metrics,
    pool: String,
}

impl TransferMetrics {
    pub(crate) fn count_stay(&self, stays: Stays) {
        let label = PoolAndReason { pool: self.pool.clone(), reason: stays.as_str() };
        self.all.stays.get_or_create(&label).inc();
    }

    pub(crate) fn count_refusal(&self, origin: &OriginAddress, reason: &'static str) {
        let label = Refusal { pool: self.pool.clone(), origin: origin.to_string(), reason };
        self.all.handover_refusals.get_or_create(&label).inc();
    }

    pub(crate) fn count_handover(&self, to: &OriginAddress, cause: Cause, took: Duration) {
        let label = Handover { pool: self.pool.clone(), to: to.to_string(), cause: cause.as_str() };
        self.all.handovers.get_or_create(&label).inc();
        let label = PoolLabel { pool: self.pool.clone() };
        self.all.handover_seconds.get_or_create(&label).observe(took.as_secs_f64());
    }
}

/// The health of an origin in its pool.
#[derive(Debug)]
pub(crate) struct OriginHealthMetrics {
    pub(crate) healthy: Gauge,
    all: Healthy,
    ejections: Family<Ejection, Counter>,
    label: PoolAndOrigin,
}

impl OriginHealthMetrics {
    pub(crate) fn count_ejection(&self, cause: watari_balance::Cause) {
        let PoolAndOrigin { pool, origin } = self.label.clone();
        self.ejections.get_or_create(&Ejection { pool, origin, cause: cause.as_str() }).inc();
    }
}

impl Drop for OriginHealthMetrics {
    fn drop(&mut self) {
        self.all.end(&self.label);
    }
}

/// The gauges of healthy origins. A gauge is removed when its origin is gone.
#[derive(Debug, Clone, Default)]
struct Healthy {
    shown: Family<PoolAndOrigin, Gauge>,
    /// The number of holders of each gauge: when a pool replaces another, both hold it for a while.
    holders: Arc<Mutex<HashMap<PoolAndOrigin, usize>>>,
}

impl Healthy {
    fn begin(&self, label: &PoolAndOrigin) -> Gauge {
        let mut holders = self.holders();
        *holders.entry(label.clone()).or_default() += 1;
        self.shown.get_or_create_owned(label)
    }

    fn end(&self, label: &PoolAndOrigin) {
        let mut holders = self.holders();
        let Some(count) = holders.get_mut(label) else { return };
        *count -= 1;
        if *count == 0 {
            holders.remove(label);
            self.shown.remove(label);
        }
    }

    fn holders(&self) -> MutexGuard<'_, HashMap<PoolAndOrigin, usize>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const CLASSES: [&str; 5] = ["2xx", "3xx", "4xx", "5xx", "other"];

/// The counters of one origin. They are looked up once.
#[derive(Debug)]
pub(crate) struct OriginMetrics {
    answers: [Counter; CLASSES.len()],
    pub(crate) connect_errors: Counter,
    bodies_cut: Counter,
    pub(crate) body_bytes: Counter,
}

/// The counters of the bodies of one origin.
#[derive(Clone, Default)]
pub(crate) struct BodyCounters {
    /// Bodies that were not completed.
    pub(crate) cut: Counter,
    pub(crate) bytes: Counter,
}

impl OriginMetrics {
    pub(crate) fn of_body(&self) -> BodyCounters {
        BodyCounters { cut: self.bodies_cut.clone(), bytes: self.body_bytes.clone() }
    }

    pub(crate) fn count_answer(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100);
        let index = if (2..=5).contains(&class) { class - 2 } else { CLASSES.len() - 1 };
        self.answers[index].inc();
    }
}
