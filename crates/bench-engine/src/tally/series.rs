//! The course of a run: figures of every second.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::part::is_whole;
use super::times::nanoseconds;
use crate::ending::EndingKind;
use crate::sample::{ConnectionSample, HandshakeKind, RequestSample};

/// The figures of each interval since the start of the run.
///
/// Intervals begin as seconds. When there would be more than 600 of them, neighbours are merged and the interval
/// doubles. A run of any length therefore takes bounded memory, and the series of different threads and machines can be
/// added.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// The interval in seconds is two to the power of this.
    doublings: u32,
    points: Vec<Point>,
}

/// The figures of one interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// Requests that began.
    pub started: u64,
    /// Requests that ended, by kind, in the order of [`EndingKind::ALL`].
    pub endings: [u64; EndingKind::ALL.len()],
    /// Requests with the ending NORMAL and a status that is not a success.
    pub error_statuses: u64,
    /// Bytes of the response bodies of the requests that ended.
    pub body_bytes: u64,
    /// Connections that began.
    pub opened: u64,
    /// Full TLS handshakes that completed.
    pub full: u64,
    /// Abbreviated TLS handshakes that completed.
    pub resumed: u64,
    /// The longest latency of the requests with a complete response.
    pub longest: Duration,
    /// The latencies of requests with a complete response, in nanoseconds with two significant digits.
    latency: Option<Box<Histogram<u32>>>,
}

impl Series {
    /// The length of each interval.
    pub fn interval(&self) -> Duration {
        Duration::from_secs(1 << self.doublings)
    }

    /// The intervals from the start of the run to the last one with any figure.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    pub(super) fn request(&mut self, sample: &RequestSample) {
        self.at(sample.started).started += 1;
        let point = self.at(sample.ended);
        point.endings[sample.ending.kind as usize] += 1;
        point.error_statuses += u64::from(sample.error_status);
        point.body_bytes += sample.body_bytes;
        if is_whole(sample) {
            point.record(sample.latency());
        }
    }

    pub(super) fn connection(&mut self, sample: &ConnectionSample) {
        self.at(sample.opened).opened += 1;
        if let (Some(seen), Some(secured)) = (&sample.tls, sample.secured) {
            let point = self.at(secured);
            match seen.kind {
                HandshakeKind::Full => point.full += 1,
                HandshakeKind::Resumed => point.resumed += 1,
            }
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.merge_since(other, Duration::ZERO);
    }

    /// Adds those intervals of `other` that end after `from`.
    pub fn merge_since(&mut self, other: &Self, from: Duration) {
        while self.doublings < other.doublings {
            self.double();
        }
        for (index, theirs) in other.points.iter().enumerate().skip(other.index(from)) {
            self.at(other.interval() * index as u32).merge(theirs);
        }
    }

    /// Builds a series from its parts. `None` if it has too many points, or if their interval is too long.
    pub(super) fn from_raw(doublings: u32, points: Vec<Point>) -> Option<Self> {
        (doublings <= DOUBLINGS_MAX && points.len() as u64 <= POINTS_MAX).then_some(Self { doublings, points })
    }

    pub(super) fn doublings(&self) -> u32 {
        self.doublings
    }

    /// Merges neighbours until the interval is at least `interval`.
    pub(crate) fn coarsen(&mut self, interval: Duration) {
        while self.interval() < interval {
            self.double();
        }
    }

    /// Replaces the intervals that end after `from` with those of `newer`. The interval of `newer` is not longer.
    pub(crate) fn replace_since(&mut self, newer: &Self, from: Duration) {
        self.points.truncate(self.index(from));
        self.merge_since(newer, from);
    }

    fn at(&mut self, time: Duration) -> &mut Point {
        while time.as_secs() >> self.doublings >= POINTS_MAX {
            self.double();
        }
        let index = self.index(time);
        if index >= self.points.len() {
            self.points.resize_with(index + 1, Point::default);
        }
        &mut self.points[index]
    }

    fn index(&self, time: Duration) -> usize {
        (time.as_secs() >> self.doublings) as usize
    }

    fn double(&mut self) {
        self.doublings += 1;
        self.points = self.points.chunks(2).map(Point::sum).collect();
    }
}

impl Point {
    /// Number of requests with an ending of this kind.
    pub fn ended(&self, kind: EndingKind) -> u64 {
        self.endings[kind as usize]
    }

    /// Requests that failed: their ending is not NORMAL, or their status is not a success.
    pub fn failed(&self) -> u64 {
        self.endings.iter().sum::<u64>() - self.succeeded()
    }

    /// Number of successful requests.
    pub fn succeeded(&self) -> u64 {
        self.ended(EndingKind::Normal).saturating_sub(self.error_statuses)
    }

    /// The latency that the share `quantile` (0 to 1) of the requests with a complete response do not exceed. `None`:
    /// there were none.
    pub fn latency(&self, quantile: f64) -> Option<Duration> {
        let time = self.latency.as_ref()?.value_at_quantile(quantile);
        Some(Duration::from_nanos(time).min(self.longest))
    }

    /// The histogram of the same latencies, in nanoseconds. `None`: there were none.
    pub fn histogram(&self) -> Option<&Histogram<u32>> {
        self.latency.as_deref()
    }

    /// Sets the histogram of latencies. Returns false if it does not match the other fields.
    pub(super) fn set_histogram(&mut self, latency: Histogram<u32>) -> bool {
        let longest = latency.highest_equivalent(nanoseconds(self.longest));
        let possible = latency.sigfig() == SIGNIFICANT_DIGITS && latency.max() <= longest;
        self.latency = Some(Box::new(latency));
        possible
    }

    fn record(&mut self, latency: Duration) {
        self.longest = self.longest.max(latency);
        let times = self
            .latency
            .get_or_insert_with(|| Box::new(Histogram::new(SIGNIFICANT_DIGITS).expect("two digits are possible")));
        times.record(nanoseconds(latency)).expect("it grows up to the longest");
    }

    fn sum(points: &[Self]) -> Self {
        let mut sum = Self::default();
        for point in points {
            sum.merge(point);
        }
        sum
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.started += other.started;
        for (count, theirs) in self.endings.iter_mut().zip(other.endings) {
            *count += theirs;
        }
        self.error_statuses += other.error_statuses;
        self.body_bytes += other.body_bytes;
        self.opened += other.opened;
        self.full += other.full;
        self.resumed += other.resumed;
        self.longest = self.longest.max(other.longest);
        match (&mut self.latency, &other.latency) {
            (Some(ours), Some(theirs)) => ours.add(theirs.as_ref()).expect("it grows to hold the other's"),
            (none, Some(theirs)) => *none = Some(theirs.clone()),
            (_, None) => {}
        }
    }
}

const SIGNIFICANT_DIGITS: u8 = 2;
const POINTS_MAX: u64 = 600;
/// The largest interval is 12 days.
const DOUBLINGS_MAX: u32 = 20;
