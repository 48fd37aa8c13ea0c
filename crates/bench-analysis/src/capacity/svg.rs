//! The curve as an SVG picture for a page.
//!
//! The code writes the SVG itself instead of using a library for two reasons. The picture takes the page's text colour,
//! and its other colours from the custom properties `--throughput`, `--p50` and `--p99`. And a screen reader can read
//! it. The only external data in it are numbers.

use std::fmt::{self, Write};

use watari_bench_report::axis::{Decades, Linear};

use super::curve::{Curve, Level};

/// An `svg` element: throughput (left axis) and latency (right axis, logarithmic) over the level. A circle is a met
/// level, a cross a missed level, and a vertical line the level that was found.
pub(super) fn picture(curve: &Curve, found: Option<u64>) -> String {
    let mut svg = String::new();
    let levels = curve.levels();
    // Writing to a string does not fail.
    let _ = Picture { unit: curve.unit.name(), scales: Scales::new(&levels), levels, found }.write(&mut svg);
    svg
}

struct Picture {
    unit: &'static str,
    levels: Vec<Level>,
    scales: Scales,
    found: Option<u64>,
}

impl Picture {
    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-size="12" fill="currentColor">"#
        )?;
        self.write_text(out)?;
        self.write_axes(out)?;
        self.write_found(out)?;
        for series in SERIES {
            self.write_series(out, &series)?;
        }
        writeln!(out, "</svg>")
    }

    /// A text alternative for screen readers.
    fn write_text(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "<title>Throughput and latency by {}</title>", self.unit)?;
        let levels = self.levels.iter().map(|level| {
            let p99 = level.p99_ms.map_or_else(|| "none".to_owned(), |ms| format!("{ms:.2} ms"));
            format!("{}: {:.1} answered/s, p99 {p99}", level.level, level.throughput_per_s)
        });
        writeln!(out, "<desc>{}</desc>", levels.collect::<Vec<_>>().join("; "))
    }

    fn write_axes(&self, out: &mut String) -> fmt::Result {
        let Scales { level, throughput, latency } = &self.scales;
        for tick in level.ticks() {
            let x = self.scales.x(tick);
            writeln!(out, r#"<text x="{x:.1}" y="{:.1}" text-anchor="middle">{tick}</text>"#, BOTTOM + 18.0)?;
        }
        for tick in throughput.ticks() {
            let (y, x) = (self.scales.y_of_throughput(tick), LEFT - 6.0);
            writeln!(out, r#"<path d="M{LEFT} {y:.1}H{RIGHT}" stroke="currentColor" stroke-opacity="0.15"/>"#)?;
            writeln!(out, r#"<text x="{x:.1}" y="{:.1}" text-anchor="end">{tick}</text>"#, y + 4.0)?;
        }
        for tick in latency.ticks() {
            let (y, x) = (self.scales.y_of_latency(tick), RIGHT + 6.0);
            writeln!(out, r#"<text x="{x:.1}" y="{:.1}">{tick}</text>"#, y + 4.0)?;
        }
        writeln!(out, r#"<path d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}V{TOP}" fill="none" stroke="currentColor"/>"#)?;
        writeln!(out, r#"<text x="{LEFT}" y="14">answered/s</text>"#)?;
        writeln!(out, r#"<text x="{RIGHT}" y="14" text-anchor="end">latency, ms (log)</text>"#)?;
        writeln!(out, r#"<text x="{RIGHT}" y="{:.1}" text-anchor="end">{}</text>"#, HEIGHT - 4.0, self.unit)
    }

    fn write_found(&self, out: &mut String) -> fmt::Result {
        let Some(found) = self.found else { return Ok(()) };
        let x = self.scales.x(as_number(found));
        writeln!(out, r#"<path d="M{x:.1} {TOP}V{BOTTOM}" stroke="currentColor" stroke-dasharray="2 3"/>"#)?;
        writeln!(out, r#"<text x="{x:.1}" y="{:.1}" text-anchor="middle">{found}</text>"#, TOP - 4.0)
    }

    fn write_series(&self, out: &mut String, series: &Series) -> fmt::Result {
        let Series { name, color, dashes, legend_x, .. } = series;
        let points: Vec<_> = self.levels.iter().filter_map(|level| self.place(level, series)).collect();
        let line = points.iter().map(|(x, y, _)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ");
        writeln!(out, r#"<g stroke="{color}" fill="none" stroke-width="1.5">"#)?;
        writeln!(out, r#"<polyline points="{line}" stroke-dasharray="{dashes}"/>"#)?;
        for (x, y, met) in points {
            if met {
                writeln!(out, r#"<circle cx="{x:.1}" cy="{y:.1}" r="3"/>"#)?;
            } else {
                writeln!(out, r#"<path d="M{:.1} {:.1}l6 6m0-6l-6 6"/>"#, x - 3.0, y - 3.0)?;
            }
        }
        let y = HEIGHT - 8.0;
        writeln!(out, r#"<path d="M{legend_x} {y}h24" stroke-dasharray="{dashes}"/></g>"#)?;
        writeln!(out, r#"<text x="{}" y="{}">{name}</text>"#, legend_x + 30.0, y + 4.0)
    }

    /// The position of a level's figure, and whether the level was met.
    fn place(&self, level: &Level, series: &Series) -> Option<(f64, f64, bool)> {
        let figure = (series.figure)(level)?;
        let y = if series.is_latency { self.scales.y_of_latency(figure) } else { self.scales.y_of_throughput(figure) };
        Some((self.scales.x(as_number(level.level)), y, level.is_met()))
    }
}

/// A line of the picture with its style.
struct Series {
    name: &'static str,
    color: &'static str,
    dashes: &'static str,
    legend_x: f64,
    is_latency: bool,
    figure: fn(&Level) -> Option<f64>,
}

const SERIES: [Series; 3] = [
    Series {
        name: "answered/s",
        color: "var(--throughput, #2166ac)",
        dashes: "none",
        legend_x: 60.0,
        is_latency: false,
        figure: |level| Some(level.throughput_per_s),
    },
    Series {
        name: "p50",
        color: "var(--p50, #d6863b)",
        dashes: "2 2",
        legend_x: 180.0,
        is_latency: true,
        figure: |level| level.p50_ms,
    },
    Series {
        name: "p99",
        color: "var(--p99, #b2182b)",
        dashes: "6 3",
        legend_x: 260.0,
        is_latency: true,
        figure: |level| level.p99_ms,
    },
];

/// Maps figures to positions.
struct Scales {
    level: Linear,
    throughput: Linear,
    latency: Decades,
}

impl Scales {
    fn new(levels: &[Level]) -> Self {
        let latencies = levels.iter().flat_map(|level| [level.p50_ms, level.p99_ms]).flatten();
        Self {
            level: Linear::up_to(levels.iter().map(|level| as_number(level.level)).fold(1.0, f64::max)),
            throughput: Linear::up_to(levels.iter().map(|level| level.throughput_per_s).fold(1.0, f64::max)),
            latency: Decades::around(latencies),
        }
    }

    fn x(&self, level: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * self.level.share(level)
    }

    fn y_of_throughput(&self, per_s: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * self.throughput.share(per_s)
    }

    fn y_of_latency(&self, ms: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * self.latency.share(ms)
    }
}

#[allow(clippy::cast_precision_loss, reason = "levels are under 2^53")]
fn as_number(level: u64) -> f64 {
    level as f64
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 660.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 300.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::curve::Unit;
    use crate::capacity::curve::tests::point;
    use crate::capacity::search::Outcome::{Met, Missed};

    fn curve() -> Curve {
        let points = vec![
            point(100, 100.0, Some(2.0), Met),
            point(400, 250.0, Some(900.0), Missed),
            point(200, 200.0, Some(4.0), Met),
            point(800, 0.0, None, Missed),
        ];
        Curve { unit: Unit::RequestsPerSecond, points }
    }

    #[test]
    fn every_level_is_drawn_where_it_belongs() {
        let svg = picture(&curve(), Some(200));
        // Throughput goes to 250 on an axis that ends there, and the level to 800.
        assert!(svg.contains(r#"<polyline points="143.8,194.4 217.5,88.8 365.0,36.0 660.0,300.0""#), "{svg}");
        // The server answered nothing at 800.
        assert!(
            svg.contains(r#"<polyline points="143.8,300.0 217.5,273.5 365.0,66.5" stroke-dasharray="2 2""#),
            "{svg}"
        );
        assert_eq!(svg.matches("<circle").count(), 6, "two levels are met");
        assert_eq!(svg.matches("m0-6l-6 6").count(), 4, "two are missed, of which one has no latency");
        assert!(svg.contains(r#"text-anchor="middle">200</text>"#), "{svg}");
        assert!(svg.contains("<desc>100: 100.0 answered/s, p99 2.00 ms; 200:"), "{svg}");
    }

    #[test]
    fn every_element_is_closed() {
        for svg in [picture(&curve(), None), picture(&Curve::new(Unit::Connections), Some(7))] {
            let opened = svg.matches('<').count() - svg.matches("</").count() - svg.matches("/>").count();
            assert_eq!(opened, svg.matches("</").count(), "{svg}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
