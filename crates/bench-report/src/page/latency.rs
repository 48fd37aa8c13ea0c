//! Charts of the distribution of latencies.

use hdrhistogram::Histogram;

use super::plot::{Hover, Plot, Shape, decade_ticks, linear_ticks, rectangle, ticks, x, y};
use crate::axis::{Decades, Linear};
use crate::summary::{Summary, float};

/// A histogram of latencies; `None` if there are none, or they do not decode.
pub(super) fn distribution(summary: &Summary) -> Option<Plot> {
    let histogram = latencies(summary)?;
    let across = decades(&histogram);
    let bars = Bars::new(&histogram, across);
    let up = Linear::up_to(bars.highest().max(1.0));
    let mut path = String::new();
    let mut hovers = Vec::new();
    for (index, count) in bars.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let (left, right) = Bars::sides(index);
        rectangle(&mut path, (x(left), x(right)), (y(0.0), y(up.share(float(*count)))));
        let (from, to) = (bars.value(left), bars.value(right));
        hovers.push(Hover::new(x(left), x(right), format!("{from:.3} to {to:.3} ms: {count}")));
    }
    let latency = &summary.total.latency_ms;
    Some(Plot {
        id: "distribution",
        name: "Latency distribution",
        description: format!(
            "{} requests with a complete response took {:.3} to {:.3} ms, half of them at most {:.3} ms.",
            latency.count, latency.min, latency.max, latency.p50
        ),
        x_unit: "ms (logarithmic)",
        y_unit: "requests",
        x_ticks: decade_ticks(across, x),
        y_ticks: linear_ticks(up, y),
        shapes: vec![Shape { kind: "area", color: "p50", name: "requests", path }],
        hovers,
    })
}

/// Latency by percentile. Each further nine takes the same width: 0 to 90 %, 90 to 99 %, 99 to 99.9 %, ..
pub(super) fn percentiles(summary: &Summary) -> Option<Plot> {
    let histogram = latencies(summary)?;
    let up = decades(&histogram);
    // At least as far as the sentence below; further if there are enough requests.
    let nines = histogram.len().ilog10().clamp(3, NINES_MAX);
    let share_of = |step: u32| f64::from(step) / f64::from(STEPS);
    let quantile = |share: f64| 1.0 - 10_f64.powf(-share * f64::from(nines));
    let height = |quantile| y(up.share(milliseconds(histogram.value_at_quantile(quantile))));
    let places = (0..=STEPS).map(share_of).map(|share| format!("{:.1},{:.1}", x(share), height(quantile(share))));
    let latency = &summary.total.latency_ms;
    Some(Plot {
        id: "percentiles",
        name: "Latency by percentile",
        description: format!(
            "90% took at most {:.3} ms, 99% {:.3} ms, 99.9% {:.3} ms.",
            latency.p90, latency.p99, latency.p999
        ),
        x_unit: "percent of requests that took at most this long",
        y_unit: "ms (logarithmic)",
        x_ticks: ticks((0..=nines).map(|nine| (x(f64::from(nine) / f64::from(nines)), percent(nine)))),
        y_ticks: decade_ticks(up, y),
        shapes: vec![Shape {
            kind: "line",
            color: "p99",
            name: "latency",
            path: format!("M{}", places.collect::<Vec<_>>().join("L")),
        }],
        hovers: Vec::new(),
    })
}

fn latencies(summary: &Summary) -> Option<Histogram<u64>> {
    let histogram = summary.histograms.latency.as_ref()?.decode().ok()?;
    (!histogram.is_empty()).then_some(histogram)
}

fn decades(histogram: &Histogram<u64>) -> Decades {
    Decades::around([histogram.min(), histogram.max()].into_iter().map(milliseconds))
}

fn milliseconds(nanos: u64) -> f64 {
    float(nanos.max(1)) / 1e6
}

/// 0, 90, 99, 99.9, ..: the percentage with this number of nines.
fn percent(nines: u32) -> String {
    match nines {
        0 => "0".to_owned(),
        1 => "90".to_owned(),
        _ => format!("{:.*}", nines as usize - 2, 100.0 - 100.0 * 10_f64.powf(-f64::from(nines))),
    }
}

/// Bars of equal width on a logarithmic axis.
struct Bars {
    across: Decades,
    counts: Vec<u64>,
}

impl Bars {
    fn new(histogram: &Histogram<u64>, across: Decades) -> Self {
        let mut counts = vec![0_u64; BARS as usize];
        for value in histogram.iter_recorded() {
            let share = across.share(milliseconds(value.value_iterated_to()));
            #[expect(clippy::cast_sign_loss, reason = "a share is not under 0")]
            let index = (share * f64::from(BARS)) as usize;
            let count = &mut counts[index.min(BARS as usize - 1)];
            *count = count.saturating_add(value.count_at_value());
        }
        Self { across, counts }
    }

    fn highest(&self) -> f64 {
        self.counts.iter().copied().map(float).fold(0.0, f64::max)
    }

    /// The left and right side of a bar, as shares of the axis.
    fn sides(index: usize) -> (f64, f64) {
        (float(index as u64) / f64::from(BARS), float(index as u64 + 1) / f64::from(BARS))
    }

    fn value(&self, share: f64) -> f64 {
        10_f64.powf(f64::from(self.across.from) + share * f64::from(self.across.to - self.across.from))
    }
}

const BARS: u32 = 84;
const STEPS: u32 = 240;
/// More requests than any run has.
const NINES_MAX: u32 = 9;
