//! The measurements of a search: throughput and latency for each level.

use std::collections::BTreeSet;

use serde::Serialize;

use super::search::Outcome;

/// All measurements of a search, in the order in which they were made.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    pub unit: Unit,
    pub points: Vec<Point>,
}

/// The unit of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Requests due in a second: open loop.
    RequestsPerSecond,
    /// Connections in progress: closed loop.
    Connections,
}

impl Unit {
    /// The unit's name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::RequestsPerSecond => "requests/s",
            Self::Connections => "connections",
        }
    }
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The load, in the curve's [`Unit`].
    pub level: u64,
    /// Correct, complete responses in a second.
    pub throughput_per_s: f64,
    /// Median latency in milliseconds; `None` if no request has a latency.
    pub p50_ms: Option<f64>,
    /// 99th percentile of the latency in milliseconds; `None` if no request has a latency.
    pub p99_ms: Option<f64>,
    /// Share of the requests that failed, from 0 to 1.
    pub failures: f64,
    /// Whether the server met the conditions.
    pub outcome: Outcome,
    /// Whether the server was idle before this measurement. If not, the measurement may include work of the previous
    /// load.
    pub idle: bool,
    /// The missed conditions with the measured values, or why the generator could not make the load.
    pub missed: Vec<String>,
}

/// All measurements of one level: the median of each figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// The load, in the curve's [`Unit`].
    pub level: u64,
    /// As in [`Point`].
    pub throughput_per_s: f64,
    /// As in [`Point`].
    pub p50_ms: Option<f64>,
    /// As in [`Point`].
    pub p99_ms: Option<f64>,
    /// As in [`Point`].
    pub failures: f64,
    /// Number of measurements that met the conditions.
    pub met: usize,
    /// Number of measurements.
    pub runs: usize,
}

impl Level {
    /// Whether most measurements met the conditions.
    pub fn is_met(&self) -> bool {
        2 * self.met > self.runs
    }
}

impl Curve {
    /// A curve without measurements.
    pub fn new(unit: Unit) -> Self {
        Self { unit, points: Vec::new() }
    }

    /// All measured levels, in ascending order.
    pub fn levels(&self) -> Vec<Level> {
        let mut points: Vec<&Point> = self.points.iter().collect();
        points.sort_by_key(|point| point.level);
        points.chunk_by(|a, b| a.level == b.level).map(together).collect()
    }

    /// The levels with a measurement before which the server was not idle, in ascending order.
    pub fn busy(&self) -> BTreeSet<u64> {
        self.points.iter().filter(|point| !point.idle).map(|point| point.level).collect()
    }
}

/// `points` are of one level. `points` is not empty.
fn together(points: &[&Point]) -> Level {
    let of = |figure: fn(&Point) -> Option<f64>| median(points.iter().filter_map(|point| figure(point)).collect());
    Level {
        level: points[0].level,
        throughput_per_s: of(|point| Some(point.throughput_per_s)).unwrap_or(0.0),
        p50_ms: of(|point| point.p50_ms),
        p99_ms: of(|point| point.p99_ms),
        failures: of(|point| Some(point.failures)).unwrap_or(0.0),
        met: points.iter().filter(|point| point.outcome == Outcome::Met).count(),
        runs: points.len(),
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let above = *values.get(values.len() / 2)?;
    let below = values[(values.len() - 1) / 2];
    Some(f64::midpoint(below, above))
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::float_cmp, reason = "the numbers are halves, and small")]

    use super::*;

    pub(in crate::capacity) fn point(
        level: u64,
        throughput_per_s: f64,
        p99_ms: Option<f64>,
        outcome: Outcome,
    ) -> Point {
        let p50_ms = p99_ms.map(|p99| p99 / 2.0);
        Point { level, throughput_per_s, p50_ms, p99_ms, failures: 0.0, outcome, idle: true, missed: Vec::new() }
    }

    #[test]
    fn measurements_of_a_level_are_put_together() {
        let mut curve = Curve::new(Unit::RequestsPerSecond);
        curve.points = vec![
            point(200, 190.0, Some(8.0), Outcome::Missed),
            point(100, 100.0, Some(2.0), Outcome::Met),
            point(200, 200.0, None, Outcome::Void),
            point(200, 210.0, Some(4.0), Outcome::Met),
        ];
        let levels = curve.levels();
        assert_eq!(levels.iter().map(|level| level.level).collect::<Vec<_>>(), [100, 200]);
        let twice = &levels[1];
        assert_eq!((twice.throughput_per_s, twice.p50_ms, twice.p99_ms), (200.0, Some(3.0), Some(6.0)));
        assert_eq!((twice.met, twice.runs, twice.is_met(), levels[0].is_met()), (1, 3, false, true));
    }

    #[test]
    fn nothing_has_no_median() {
        assert_eq!(median(Vec::new()), None);
        assert_eq!(median(vec![3.0]), Some(3.0));
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
    }
}
