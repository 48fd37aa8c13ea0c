//! The result of a search, with its measurements.

use std::fmt;

use serde::Serialize;
use watari_bench_report::expect::Condition;
use watari_bench_report::summary::EndingCount;

use super::chart::Chart;
use super::curve::{Curve, Unit};
use super::idle::Unloaded;
use super::search::{Ended, Finding};
use super::sentence::sentence;

/// The result of a search, with its measurements.
#[derive(Serialize)]
pub struct Found {
    /// The conditions of each measurement.
    expect: Vec<String>,
    /// How single requests were answered before. `null`: the search was interrupted earlier.
    unloaded: Option<Unloaded>,
    pub finding: Finding,
    /// Requests answered per second at the level that was found.
    pub throughput_per_s: Option<f64>,
    #[serde(flatten)]
    pub curve: Curve,
}

impl Found {
    #[allow(clippy::cast_precision_loss, reason = "levels are under 2^53")]
    pub(super) fn new(conditions: &[Condition], unloaded: Option<Unloaded>, finding: Finding, curve: Curve) -> Self {
        let answers = unloaded.as_ref().is_none_or(|unloaded| unloaded.latency_ms.is_some());
        let finding = if answers { finding } else { Finding { ended: Ended::Unanswered, ..finding } };
        let at = |level| curve.levels().into_iter().find(|measured| measured.level == level);
        let throughput_per_s = finding.level.and_then(at).map(|level| match curve.unit {
            // Requests that queued up in the warm-up may have been answered on top of those that are due. The server
            // does not sustain that throughput.
            Unit::RequestsPerSecond => level.throughput_per_s.min(level.level as f64),
            Unit::Connections => level.throughput_per_s,
        });
        let expect = conditions.iter().map(ToString::to_string).collect();
        Self { expect, unloaded, finding, throughput_per_s, curve }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.finding.ended == Ended::Unanswered {
            let endings = self.unloaded.iter().flat_map(|unloaded| &unloaded.endings_at);
            for EndingCount { kind, phase, side, count } in endings {
                writeln!(f, "{count} single requests: {kind} ({phase}, {side})")?;
            }
        } else {
            writeln!(f, "{}", Chart { curve: &self.curve, found: self.finding.level })?;
        }
        writeln!(f, "{}", sentence(&self.finding, &self.curve))
    }
}
