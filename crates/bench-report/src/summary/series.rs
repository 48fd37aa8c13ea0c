//! The course of a run in figures.

use serde::{Deserialize, Serialize};
use watari_bench_engine::histogram::Encoded;
use watari_bench_engine::tally::{Point, Series};

use super::part::{EndingCounts, milliseconds};

/// The course of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeriesSummary {
    /// The length of each interval in seconds: 1, or more in a long run.
    pub interval_s: u64,
    /// The intervals from the start of the run.
    pub points: Vec<PointSummary>,
}

impl SeriesSummary {
    pub(super) fn new(series: &Series) -> Self {
        let interval_s = series.interval().as_secs();
        Self { interval_s, points: series.points().iter().map(PointSummary::new).collect() }
    }
}

/// The figures of one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PointSummary {
    /// Requests that began.
    pub started: u64,
    /// Requests that ended.
    pub endings: EndingCounts,
    /// Requests with the ending NORMAL and a status that is not a success.
    #[serde(default)]
    pub error_statuses: u64,
    /// Bytes of the response bodies of the requests that ended.
    pub body_bytes: u64,
    /// Connections that began.
    pub opened: u64,
    /// Full TLS handshakes that completed.
    pub full: u64,
    /// Abbreviated TLS handshakes that completed.
    pub resumed: u64,
    /// The median latency of requests with a complete response. 0: there were none.
    pub p50_ms: f64,
    /// The 99th percentile of the same latencies. 0: there were none.
    pub p99_ms: f64,
    /// The longest of the same latencies. 0: there were none.
    pub max_ms: f64,
    /// The histogram of the same latencies, in nanoseconds with two significant digits.
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
