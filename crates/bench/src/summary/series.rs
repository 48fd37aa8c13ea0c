//! The course of a run, in figures.

use serde::{Deserialize, Serialize};

use super::part::{EndingCounts, milliseconds};
use crate::histogram::Encoded;
use crate::tally::{Point, Series};

/// The course of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeriesSummary {
    /// How long each interval is: 1 second, or more in a long run.
    pub interval_s: u64,
    /// The intervals, from the start of the run.
    pub points: Vec<PointSummary>,
}

impl SeriesSummary {
    pub(super) fn new(series: &Series) -> Self {
        let interval_s = series.interval().as_secs();
        Self { interval_s, points: series.points().iter().map(PointSummary::new).collect() }
    }
}

/// What happened in one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PointSummary {
    /// Requests begun.
    pub started: u64,
    /// Requests ended.
    pub endings: EndingCounts,
    /// How many of those that ended NORMAL have a status that is none of success.
    #[serde(default)]
    pub error_statuses: u64,
    /// Bytes of bodies, of the requests ended.
    pub body_bytes: u64,
    /// Connections begun.
    pub opened: u64,
    /// Full TLS handshakes done.
    pub full: u64,
    /// Abbreviated TLS handshakes done.
    pub resumed: u64,
    /// Median latency of the requests with a whole response; 0: there was none.
    pub p50_ms: f64,
    /// Their 99th percentile; 0: there was none.
    pub p99_ms: f64,
    /// The longest; 0: there was none.
    pub max_ms: f64,
    /// The histogram behind these, in nanoseconds to two significant digits.
    pub latency: Option<Encoded>,
}

impl PointSummary {
    fn new(point: &Point) -> Self {
        let latency = |quantile| milliseconds(point.latency(quantile));
        Self {
            started: point.started,
            endings: EndingCounts::by_kind(point.endings),
            error_statuses: point.error_statuses,
            body_bytes: point.body_bytes,
            opened: point.opened,
            full: point.full,
            resumed: point.resumed,
            p50_ms: latency(0.5),
            p99_ms: latency(0.99),
            max_ms: milliseconds(Some(point.longest)),
            latency: point.histogram().map(Encoded::of),
        }
    }
}
