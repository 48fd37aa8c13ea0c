//! What is counted.

use http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::failure::Failure;
use crate::origin::OriginAddress;

/// Counters of the requests forwarded. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    requests: Family<OriginAndClass, Counter>,
    connect_errors: Family<OriginLabel, Counter>,
    bodies_cut: Family<OriginLabel, Counter>,
    failures: Family<Reason, Counter>,
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

impl Metrics {
    /// Makes the counters known to `registry`.
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
            "watari_proxy_failures",
            "Requests answered without an origin's response, by reason",
            metrics.failures.clone(),
        );
        metrics
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
        }
    }
}

const CLASSES: [&str; 5] = ["2xx", "3xx", "4xx", "5xx", "other"];

/// The counters of one origin, looked up once.
#[derive(Debug)]
pub(crate) struct OriginMetrics {
    answers: [Counter; CLASSES.len()],
    pub(crate) connect_errors: Counter,
    pub(crate) bodies_cut: Counter,
}

impl OriginMetrics {
    pub(crate) fn count_answer(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100);
        let index = if (2..=5).contains(&class) { class - 2 } else { CLASSES.len() - 1 };
        self.answers[index].inc();
    }
}
