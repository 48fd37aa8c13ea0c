//! Prometheus metrics of reporters and judges.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::judge::Judge;
use super::shared::ReporterShared;

/// The metrics of a [`Reporter`](super::Reporter).
#[derive(Debug)]
pub struct ReporterMetrics(pub(super) Arc<ReporterShared>);

impl Collector for ReporterMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.0.counts();
        let is_connected = ConstGauge::new(u64::from(counts.is_connected));
        let help = "Whether the judge is connected: 1, else 0";
        is_connected.encode(encoder.encode_descriptor("judge_connected", help, None, is_connected.metric_type())?)?;
        let octets = ConstGauge::new(counts.held_len as u64);
        let help = "Size of the stored reports, in octets";
        octets.encode(encoder.encode_descriptor("reports_held_bytes", help, None, octets.metric_type())?)?;
        counters(
            &mut encoder,
            [
                ("server_seconds_reported", "Server seconds reported", counts.reported),
                ("server_seconds_lost", "Server seconds dropped before a judge had them", counts.lost),
                ("judge_connections", "Connections to a judge", counts.connections),
            ],
        )
    }
}

/// The metrics of a judge.
#[derive(Debug)]
pub struct JudgeMetrics(pub Judge);

impl Collector for JudgeMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.0.counts();
        let connected = ConstGauge::new(counts.connected as u64);
        let help = "Sensors that are connected";
        connected.encode(encoder.encode_descriptor("sensors_connected", help, None, connected.metric_type())?)?;
        counters(
            &mut encoder,
            [
                ("sensor_connections", "Connections of sensors", counts.welcomed),
                ("sensor_connections_replaced", "Connections replaced by another of the same sensor", counts.replaced),
                (
                    "sensor_connections_refused",
                    "Refused connections: the peer is no sensor, or violates the protocol",
                    counts.refused,
                ),
                (
                    "sensor_connections_crowded",
                    "Connections closed before they identified their sensor, because newer ones needed the slot",
                    counts.crowded,
                ),
                ("reports_taken", "Reports taken from sensors", counts.reports),
                ("reports_repeated", "Reports that sensors sent again after they were taken", counts.repeated),
                ("server_seconds_taken", "Server seconds taken from sensors", counts.tallies),
            ],
        )
    }
}

fn counters<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    counters: [(&str, &str, u64); N],
) -> Result<(), fmt::Error> {
    for (name, help, value) in counters {
        let count = ConstCounter::new(value);
        count.encode(encoder.encode_descriptor(name, help, None, count.metric_type())?)?;
    }
    Ok(())
}
