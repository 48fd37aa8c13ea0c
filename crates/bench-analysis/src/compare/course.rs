//! The intervals of a run, to draw from.
//!
//! Counts are floating-point numbers here: a file may claim any, and their sums do not overflow.

use std::collections::BTreeMap;

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use watari_bench_engine::ending::EndingKind;
use watari_bench_engine::histogram::DecodeError;
use watari_bench_report::summary::{PointSummary, Summary, float};

/// The whole intervals of a run's series, in order.
#[derive(Clone, Debug)]
pub(super) struct Course {
    interval_s: f64,
    points: Vec<Point>,
    /// The latencies that occurred, ascending, in milliseconds.
    latencies_ms: Vec<f64>,
}

#[derive(Clone, Debug)]
struct Point {
    requests: f64,
    succeeded: f64,
    body_bytes: f64,
    /// Indices of latencies that occurred, and how often each did.
    latencies: Vec<(usize, f64)>,
}

impl Course {
    /// Reads the series of a run, without the interval in which the run ended, because that is not whole. An error
    /// carries the number of the interval, counted from 1.
    pub(super) fn read(run: &Summary) -> Result<Self, (usize, DecodeError)> {
        let interval_s = float(run.series.interval_s.max(1));
        let whole = (run.total.seconds / interval_s).floor() as usize;
        let decode = |(at, point): (usize, &PointSummary)| counts(point).map_err(|error| (at + 1, error));
        let counted: Vec<_> = run.series.points.iter().take(whole).enumerate().map(decode).collect::<Result<_, _>>()?;
        let mut index: BTreeMap<u64, usize> = counted.iter().flatten().map(|(value, _)| (*value, 0)).collect();
        index.values_mut().enumerate().for_each(|(at, place)| *place = at);
        let points = run.series.points.iter().zip(&counted).map(|(point, counts)| Point {
            requests: EndingKind::ALL.iter().map(|kind| float(point.endings.of(*kind))).sum(),
            succeeded: float(point.endings.normal.saturating_sub(point.error_statuses)),
            body_bytes: float(point.body_bytes),
            latencies: counts.iter().map(|(value, count)| (index[value], float(*count))).collect(),
        });
        Ok(Self {
            interval_s,
            points: points.collect(),
            latencies_ms: index.keys().map(|value| float(*value) / 1e6).collect(),
        })
    }

    /// Whether there are too few intervals to draw blocks from.
    pub(super) fn is_too_short(&self) -> bool {
        self.points.len() < INTERVALS_MIN
    }

    /// Draws as many intervals as there are, in blocks that begin anywhere and wrap around (the circular block
    /// bootstrap). The block length is the cube root of the number of intervals, which suits series whose neighbours
    /// resemble each other.
    pub(super) fn draw(&self, random: &mut Xoshiro256PlusPlus) -> Drawing<'_> {
        let count = self.points.len();
        let block = (count as f64).cbrt().ceil() as usize;
        let mut drawing = Drawing::nothing(self);
        while drawing.intervals < count {
            let start = random.random_range(0..count);
            for offset in 0..block.min(count - drawing.intervals) {
                drawing.add(&self.points[(start + offset) % count]);
            }
        }
        drawing
    }
}

/// The sum of the intervals that were drawn.
#[derive(Clone, Debug)]
pub(super) struct Drawing<'a> {
    course: &'a Course,
    intervals: usize,
    requests: f64,
    succeeded: f64,
    body_bytes: f64,
    /// How often each of the course's latencies occurred.
    latencies: Vec<f64>,
}

impl<'a> Drawing<'a> {
    fn nothing(course: &'a Course) -> Self {
        let latencies = vec![0.0; course.latencies_ms.len()];
        Self { course, intervals: 0, requests: 0.0, succeeded: 0.0, body_bytes: 0.0, latencies }
    }

    fn add(&mut self, point: &Point) {
        self.intervals += 1;
        self.requests += point.requests;
        self.succeeded += point.succeeded;
        self.body_bytes += point.body_bytes;
        for (at, count) in &point.latencies {
            self.latencies[*at] += count;
        }
    }

    pub(super) fn requests_per_s(&self) -> f64 {
        self.succeeded / self.seconds()
    }

    pub(super) fn bytes_per_s(&self) -> f64 {
        self.body_bytes / self.seconds()
    }

    /// `None` if no request ended.
    pub(super) fn failures(&self) -> Option<f64> {
        (self.requests > 0.0).then(|| (self.requests - self.succeeded) / self.requests)
    }

    /// `None` if there are no latencies.
    pub(super) fn mean_ms(&self) -> Option<f64> {
        let sum: f64 = self.latencies.iter().zip(&self.course.latencies_ms).map(|(count, time)| count * time).sum();
        let count = self.count();
        (count > 0.0).then(|| sum / count)
    }

    /// `None` if there are no latencies.
    pub(super) fn quantile_ms(&self, quantile: f64) -> Option<f64> {
        let rank = (self.count() * quantile).ceil().max(1.0);
        let mut up_to = 0.0;
        let mut latencies = self.latencies.iter().zip(&self.course.latencies_ms);
        let found = latencies.find(|(count, _)| {
            up_to += *count;
            up_to >= rank
        });
        found.map(|(_, time)| *time)
    }

    fn count(&self) -> f64 {
        self.latencies.iter().sum()
    }

    fn seconds(&self) -> f64 {
        self.intervals as f64 * self.course.interval_s
    }
}

/// The latencies of an interval in nanoseconds, with the number of occurrences.
fn counts(point: &PointSummary) -> Result<Vec<(u64, u64)>, DecodeError> {
    let Some(latency) = &point.latency else { return Ok(Vec::new()) };
    let histogram = latency.decode::<u64>()?;
    Ok(histogram
        .iter_recorded()
        .map(|value| (histogram.median_equivalent(value.value_iterated_to()), value.count_at_value()))
        .collect())
}

/// A run with fewer whole intervals is too short.
pub(super) const INTERVALS_MIN: usize = 10;
