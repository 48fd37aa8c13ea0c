//! Prometheus metrics of notifications.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::alerts::Counts;
use super::shared::NotifierShared;

/// The metrics of a [`Notifier`](super::Notifier).
#[derive(Debug)]
pub struct NotifierMetrics(pub(super) Arc<NotifierShared>);

/// A metric of each receiver.
type OfReceiver = (&'static str, &'static str, fn(&Counts) -> u64);

const COUNTS: [OfReceiver; 2] = [
    ("notices_told", "Notices delivered to a receiver", |counts| counts.delivered),
    ("notices_failed", "Failed attempts to deliver a notice to a receiver", |counts| counts.failed),
];

impl Collector for NotifierMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.0.counts();
        for (name, help, value) in COUNTS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (receiver, counts) in &counts.receivers {
                let labels = [("receiver", receiver.as_str())];
                ConstCounter::new(value(counts)).encode(metric.encode_family(&labels)?)?;
            }
        }
        let help = "Notices not delivered to a receiver yet";
        let mut metric = encoder.encode_descriptor("notices_waiting", help, None, MetricType::Gauge)?;
        for (receiver, counts) in &counts.receivers {
            let labels = [("receiver", receiver.as_str())];
            ConstGauge::new(counts.waiting as u64).encode(metric.encode_family(&labels)?)?;
        }
        let (help, firing) = ("Alerts that are firing", ConstGauge::new(counts.firing as u64));
        firing.encode(encoder.encode_descriptor("alerts_firing", help, None, firing.metric_type())?)?;
        for (name, help, value) in [
            ("alerts_given_up", "Alerts dropped because there were too many", counts.given_up),
            ("journal_failures", "Failed writes of the journal", counts.journal_failures),
        ] {
            let count = ConstCounter::new(value);
            count.encode(encoder.encode_descriptor(name, help, None, count.metric_type())?)?;
        }
        Ok(())
    }
}
