//! Metrics of the queues of pools.
//!
//! Each request is counted once: under the rule that it matches, or as one without a rule. The sum is the whole pool.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tokio::time::Instant;
use watari_admission::{Load, Pattern, Queue};

/// The metrics of all queues. Clones share the counts.
#[derive(Debug, Clone)]
pub(super) struct Queues {
    in_progress: Family<PoolAndRule, Gauge>,
    waiting: Family<PoolAndRule, Gauge>,
    refused: Family<Refusal, Counter>,
    wait_seconds: Family<PoolAndRule, Histogram, fn() -> Histogram>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolAndRule {
    pool: String,
    rule: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Refusal {
    pool: String,
    rule: String,
    cause: &'static str,
}

/// The metrics of the queue of one pool.
#[derive(Debug)]
pub(crate) struct QueueMetrics {
    queues: Queues,
    pool: String,
}

/// The metrics of one rule.
#[derive(Debug)]
pub(crate) struct RuleMetrics {
    in_progress: Gauge,
    waiting: Gauge,
    /// The values that this queue has added to the gauges. When a pool replaces another, both add to them for a while.
    shown: Load,
    pub(crate) waits: WaitMetrics,
}

/// Counters of requests that find no free slot.
#[derive(Debug, Clone)]
pub(crate) struct WaitMetrics {
    seconds: Histogram,
    pub(crate) full: Counter,
    timeout: Counter,
    client_gone: Counter,
}

/// A request that waits. If it is dropped without an end, its client has left.
#[derive(Debug)]
pub(crate) struct Wait {
    since: Instant,
    /// `None` after the end of the wait.
    metrics: Option<WaitMetrics>,
}

/// The label of requests that match no rule. It cannot be a pattern, because a pattern has a slash.
const NO_RULE: &str = "none";

impl Default for Queues {
    fn default() -> Self {
        Self {
            in_progress: Family::default(),
            waiting: Family::default(),
            refused: Family::default(),
            wait_seconds: Family::new_with_constructor(wait_histogram),
        }
    }
}

/// From 1 ms to 65 s.
fn wait_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 17))
}

impl Queues {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "watari_proxy_queue_in_progress",
            "Requests that hold a slot at the origins of a pool, by queue rule",
            self.in_progress.clone(),
        );
        registry.register(
            "watari_proxy_queue_waiting",
            "Requests that wait for a slot at the origins of a pool, by queue rule",
            self.waiting.clone(),
        );
        registry.register(
            "watari_proxy_queue_refused",
            "Requests that got no slot at the origins of a pool, by queue rule and cause",
            self.refused.clone(),
        );
        registry.register(
            "watari_proxy_queue_wait_seconds",
            "Time that requests waited until they got a slot at the origins of a pool",
            self.wait_seconds.clone(),
        );
    }

    pub(super) fn of_pool(&self, pool: &str) -> QueueMetrics {
        QueueMetrics { queues: self.clone(), pool: pool.to_owned() }
    }
}

impl QueueMetrics {
    /// The metrics of each rule, and then of requests that match no rule.
    pub(crate) fn of_rules(&self, queue: &Queue) -> Vec<RuleMetrics> {
        queue.loads().map(|(rule, _)| self.queues.of_rule(&self.pool, rule)).collect()
    }
}

impl Queues {
    /// The metrics of this rule. `None`: of requests that match no rule.
    fn of_rule(&self, pool: &str, rule: Option<&Pattern>) -> RuleMetrics {
        let (pool, rule) = (pool.to_owned(), rule.map_or_else(|| NO_RULE.to_owned(), ToString::to_string));
        let refused = |cause| {
            let label = Refusal { pool: pool.clone(), rule: rule.clone(), cause };
            self.refused.get_or_create_owned(&label)
        };
        let [full, timeout, client_gone] = ["full", "timeout", "client_gone"].map(refused);
        let label = PoolAndRule { pool, rule };
        let seconds = self.wait_seconds.get_or_create_owned(&label);
        RuleMetrics {
            in_progress: self.in_progress.get_or_create_owned(&label),
            waiting: self.waiting.get_or_create_owned(&label),
            shown: Load::default(),
            waits: WaitMetrics { seconds, full, timeout, client_gone },
        }
    }
}

impl RuleMetrics {
    /// Updates the gauges.
    pub(crate) fn show(&mut self, load: Load) {
        let Load { in_progress, waiting } = std::mem::replace(&mut self.shown, load);
        self.in_progress.inc_by(difference(load.in_progress, in_progress));
        self.waiting.inc_by(difference(load.waiting, waiting));
    }
}

fn difference(now: usize, before: usize) -> i64 {
    (now.cast_signed() - before.cast_signed()) as i64
}

impl WaitMetrics {
    pub(crate) fn begin(&self) -> Wait {
        Wait { since: Instant::now(), metrics: Some(self.clone()) }
    }
}

impl Wait {
    /// The request begins, or has reached its maximum wait.
    pub(crate) fn end(mut self, begins: bool) {
        match self.metrics.take() {
            Some(metrics) if begins => metrics.seconds.observe(self.since.elapsed().as_secs_f64()),
            Some(metrics) => drop(metrics.timeout.inc()),
            None => {}
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(metrics) = &self.metrics {
            metrics.client_gone.inc();
        }
    }
}
