//! Charts of the course of a run.

use watari_bench_engine::ending::EndingKind;

use super::plot::{Hover, Plot, Shape, decade_ticks, linear_ticks, rectangle, steps, x, y};
use crate::axis::{Decades, Linear};
use crate::summary::{PointSummary, Summary, float};

/// Requests that ended in each interval, with failures stacked on responses.
pub(super) fn rate(summary: &Summary) -> Option<Plot> {
    let course = Course::new(summary)?;
    let description = format!("{:.1} per second succeeded.", summary.total.requests_per_s);
    let plot = Plot { id: "rate", name: "Requests that ended", description, ..Plot::default() };
    Some(course.stacked(&EndingKind::ALL, plot))
}

/// Failures alone, because they may be too few to be visible in the stack; `None` if nothing failed.
pub(super) fn failures(summary: &Summary) -> Option<Plot> {
    let total = &summary.total;
    let broken = total.requests.saturating_sub(total.endings.normal);
    let course = Course::new(summary).filter(|_| broken > 0)?;
    let description = match total.error_statuses {
        0 => format!("{broken} of {} requests failed.", total.requests),
        statuses => format!(
            "{broken} of {} requests failed, and {statuses} more by their status. The chart shows only the former.",
            total.requests
        ),
    };
    let plot = Plot { id: "failures", name: "Failures", description, ..Plot::default() };
    Some(course.stacked(&EndingKind::ALL[1..], plot))
}

/// Latency in each interval; `None` without responses.
pub(super) fn latency(summary: &Summary) -> Option<Plot> {
    let course = Course::new(summary).filter(|_| summary.total.endings.normal > 0)?;
    let points = summary.series.points.iter();
    let up = Decades::around(points.flat_map(|point| [point.p50_ms, point.max_ms]));
    let line = |color, name, figure: fn(&PointSummary) -> f64| Shape {
        kind: "line",
        color,
        name,
        path: course.line(|point| Some(figure(point)).filter(|ms| *ms > 0.0).map(|ms| y(up.share(ms)))),
    };
    Some(course.plot(Plot {
        id: "latency",
        name: "Latency over time",
        description: "Of requests that ended NORMAL in each interval.".to_owned(),
        y_unit: "ms (logarithmic)",
        y_ticks: decade_ticks(up, y),
        shapes: vec![
            line("max", "longest", |point| point.max_ms),
            line("p99", "p99", |point| point.p99_ms),
            line("p50", "p50", |point| point.p50_ms),
        ],
        ..Plot::default()
    }))
}

/// Connections begun and handshakes done in each interval.
pub(super) fn connections(summary: &Summary) -> Option<Plot> {
    let course = Course::new(summary)?;
    let up = Linear::up_to(course.highest(|point| point.opened.max(point.full).max(point.resumed)));
    let line = |color, name, figure: fn(&PointSummary) -> u64| Shape {
        kind: "line",
        color,
        name,
        path: course.line_of_rates(up, figure),
    };
    let mut shapes = vec![line("good", "connections opened", |point| point.opened)];
    let tls = &summary.total.tls;
    if tls.full.saturating_add(tls.resumed) > 0 {
        shapes.push(line("p99", "full handshakes", |point| point.full));
        shapes.push(line("p50", "resumed handshakes", |point| point.resumed));
    }
    Some(course.plot(Plot {
        id: "connections",
        name: "Connections",
        description: format!(
            "{} were opened; {} TLS handshakes were full, {} resumed.",
            summary.total.connections.opened, tls.full, tls.resumed
        ),
        y_unit: "/s",
        y_ticks: linear_ticks(up, y),
        shapes,
        ..Plot::default()
    }))
}

/// The intervals of a run, and their positions.
struct Course<'a> {
    points: &'a [PointSummary],
    interval_s: f64,
    seconds: f64,
    across: Linear,
}

impl<'a> Course<'a> {
    fn new(summary: &'a Summary) -> Option<Self> {
        let points = &summary.series.points[..];
        let interval_s = float(summary.series.interval_s.max(1));
        let begun = interval_s * float(points.len().saturating_sub(1) as u64);
        let seconds = summary.total.seconds.clamp(begun.max(SECONDS_MIN), SECONDS_MAX.max(begun));
        let across = Linear::exactly_to(seconds);
        (!points.is_empty()).then_some(Self { points, interval_s, seconds, across })
    }

    /// Beginning and end of each interval, in seconds. The last interval ends with the run.
    fn times(&self) -> impl Iterator<Item = (f64, f64)> {
        let begin = |index: usize| self.interval_s * float(index as u64);
        (0..self.points.len()).map(move |index| (begin(index), begin(index + 1).min(self.seconds)))
    }

    /// Beginning and end of each interval, as positions.
    fn places(&self) -> impl Iterator<Item = (f64, f64)> {
        self.times().map(|(from, to)| (x(self.across.share(from)), x(self.across.share(to))))
    }

    /// Converts a count of an interval into a rate. The last interval may be very short, so at least half of an
    /// interval counts.
    fn per_second(&self, index: usize, count: f64) -> f64 {
        let left = self.seconds - self.interval_s * float(index as u64);
        count / left.clamp(self.interval_s / 2.0, self.interval_s)
    }

    /// The highest rate; at least 1.
    fn highest(&self, count: impl Fn(&PointSummary) -> u64) -> f64 {
        let rates = self.points.iter().enumerate().map(|(index, point)| self.per_second(index, float(count(point))));
        rates.fold(1.0, f64::max)
    }

    /// Rates of endings, stacked by kind.
    fn stacked(&self, kinds: &[EndingKind], plot: Plot) -> Plot {
        let all =
            |point: &PointSummary| kinds.iter().fold(0, |sum: u64, kind| sum.saturating_add(point.endings.of(*kind)));
        let up = Linear::up_to(self.highest(all));
        let occurred = |kind: EndingKind| self.points.iter().any(|point| point.endings.of(kind) > 0);
        let shapes = kinds.iter().enumerate().filter(|(_, kind)| occurred(**kind)).map(|(index, kind)| Shape {
            kind: "area",
            color: color(*kind),
            name: kind.name(),
            path: self.layer(up, &kinds[..index], *kind),
        });
        self.plot(Plot { y_unit: "requests/s", y_ticks: linear_ticks(up, y), shapes: shapes.collect(), ..plot })
    }

    /// The area of one kind of endings, stacked on those `below`.
    fn layer(&self, up: Linear, below: &[EndingKind], kind: EndingKind) -> String {
        let mut path = String::new();
        for (index, (point, sides)) in self.points.iter().zip(self.places()).enumerate() {
            let low: f64 = below.iter().map(|kind| float(point.endings.of(*kind))).sum();
            let count = float(point.endings.of(kind));
            if count > 0.0 {
                let height = |count| y(up.share(self.per_second(index, count)));
                rectangle(&mut path, sides, (height(low), height(low + count)));
            }
        }
        path
    }

    fn line(&self, height: impl Fn(&PointSummary) -> Option<f64>) -> String {
        steps(self.points.iter().zip(self.places()).map(|(point, (left, right))| (left, right, height(point))))
    }

    fn line_of_rates(&self, up: Linear, count: fn(&PointSummary) -> u64) -> String {
        let points = self.points.iter().enumerate().zip(self.places());
        steps(points.map(|((index, point), (left, right))| {
            (left, right, Some(y(up.share(self.per_second(index, float(count(point)))))))
        }))
    }

    /// Adds the time axis, and a tooltip for each interval.
    fn plot(&self, plot: Plot) -> Plot {
        let intervals = self.points.iter().zip(self.times()).zip(self.places());
        let hovers = intervals.map(|((point, times), (left, right))| Hover::new(left, right, words(point, times)));
        Plot { x_unit: "s", x_ticks: linear_ticks(self.across, x), hovers: hovers.collect(), ..plot }
    }
}

/// The tooltip of an interval.
fn words(point: &PointSummary, (from, to): (f64, f64)) -> String {
    let counts = EndingKind::ALL.into_iter().map(|kind| (kind.name(), point.endings.of(kind)));
    let counts = counts.filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name} {count}"));
    let counts = counts.collect::<Vec<_>>().join(", ");
    format!("{from:.1} to {to:.1} s: {counts}; p50 {:.3} ms, p99 {:.3} ms", point.p50_ms, point.p99_ms)
}

/// The CSS class of a kind's colour.
fn color(kind: EndingKind) -> &'static str {
    match kind {
        EndingKind::Normal => "normal",
        EndingKind::Reset => "reset",
        EndingKind::Timeout => "timeout",
        EndingKind::Refused => "refused",
        EndingKind::Handshake => "handshake",
        EndingKind::Protocol => "protocol",
        EndingKind::Mismatch => "mismatch",
        EndingKind::Local => "local",
    }
}

/// A file may claim any duration, but an axis needs a positive, finite length.
const SECONDS_MIN: f64 = 0.001;
const SECONDS_MAX: f64 = 1e12;
