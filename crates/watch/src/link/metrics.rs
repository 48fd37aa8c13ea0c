//! How telling a judge, and being told, goes: as metrics.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::judge::Judge;
use super::reporter::Shared;

/// A [`Reporter`](super::Reporter) that is scraped.
#[derive(Debug)]
pub struct ReporterMetrics(pub(super) Arc<Shared>);

impl Collector for ReporterMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.0.counts();
        let is_connected = ConstGauge::new(u64::from(counts.is_connected));
        let help = "Whether the judge is there: 1, or 0";
        is_connected.encode(encoder.encode_descriptor("judge_connected", help, None, is_connected.metric_type())?)?;
        let octets = ConstGauge::new(counts.held_len as u64);
        let help = "What is held of reports, in octets";
        octets.encode(encoder.encode_descriptor("reports_held_bytes", help, None, octets.metric_type())?)?;
        counters(
            &mut encoder,
            [
                ("server_seconds_reported", "Seconds of servers that were reported", counts.told),
                ("server_seconds_lost", "Seconds of servers that were dropped before a judge had them", counts.lost),
                ("judge_connections", "Times that a judge was connected", counts.connections),
            ],
        )
    }
}

/// A [`Judge`] that is scraped.
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
                (
                    "sensor_connections_replaced",
                    "Connections that another of the same sensor replaced",
                    counts.replaced,
                ),
                ("sensor_connections_refused", "Connections of somebody else, or that misbehaved", counts.refused),
                (
                    "sensor_connections_crowded",
                    "Connections closed before they had identified their sensor, because newer ones needed the place",
                    counts.crowded,
                ),
                ("reports_taken", "Reports that were taken", counts.reports),
                ("reports_repeated", "Reports that had been taken before", counts.repeated),
                ("server_seconds_taken", "Seconds of servers that were taken", counts.tallies),
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
