//! A chart: axes, shapes, a legend, and a description.

use std::fmt::Write;

use askama::Template;
use askama::filters::HtmlSafe;

use crate::axis::{Decades, Linear};

/// A chart of the page, in coordinates of its picture.
#[derive(Default, Template)]
#[template(path = "plot.html")]
pub(super) struct Plot {
    /// Unique within the page.
    pub(super) id: &'static str,
    pub(super) name: &'static str,
    /// A text alternative for screen readers, also shown in a line below the name.
    pub(super) description: String,
    pub(super) x_unit: &'static str,
    pub(super) y_unit: &'static str,
    pub(super) x_ticks: Vec<Tick>,
    pub(super) y_ticks: Vec<Tick>,
    pub(super) shapes: Vec<Shape>,
    pub(super) hovers: Vec<Hover>,
}

/// The template escapes the fields.
impl HtmlSafe for Plot {}

pub(super) struct Tick {
    at: Place,
    label: String,
}

/// A line or an area.
pub(super) struct Shape {
    pub(super) kind: &'static str,
    /// The CSS class of its colour.
    pub(super) color: &'static str,
    pub(super) name: &'static str,
    /// The `d` attribute of a `path`.
    pub(super) path: String,
}

/// A column that shows a tooltip.
pub(super) struct Hover {
    x: Place,
    width: Place,
    text: String,
}

impl Hover {
    pub(super) fn new(from: f64, to: f64, text: String) -> Self {
        Self { x: Place(from), width: Place(to - from), text }
    }
}

/// A coordinate, to a tenth of a unit.
pub(super) struct Place(f64);

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1}", self.0)
    }
}

/// Maps a share of the horizontal axis to a coordinate.
pub(super) fn x(share: f64) -> f64 {
    LEFT + (RIGHT - LEFT) * share
}

pub(super) fn y(share: f64) -> f64 {
    BOTTOM - (BOTTOM - TOP) * share
}

/// Ticks of an axis. `place` is [`x`] or [`y`].
pub(super) fn linear_ticks(axis: Linear, place: fn(f64) -> f64) -> Vec<Tick> {
    axis.ticks().map(|tick| Tick { at: Place(place(axis.share(tick))), label: number(tick) }).collect()
}

/// Leaves out ticks so that the labels are readable.
pub(super) fn decade_ticks(axis: Decades, place: fn(f64) -> f64) -> Vec<Tick> {
    let every = axis.ticks().count().div_ceil(LABELS_MAX);
    let ticks = axis.ticks().step_by(every);
    ticks.map(|tick| Tick { at: Place(place(axis.share(tick))), label: number(tick) }).collect()
}

/// Ticks with these positions and labels.
pub(super) fn ticks(of: impl Iterator<Item = (f64, String)>) -> Vec<Tick> {
    of.map(|(at, label)| Tick { at: Place(at), label }).collect()
}

/// Adds a rectangle to the path of an area.
pub(super) fn rectangle(path: &mut String, (left, right): (f64, f64), (low, high): (f64, f64)) {
    // Writing to a string does not fail.
    let _ = write!(path, "M{left:.1} {low:.1}V{high:.1}H{right:.1}V{low:.1}z");
}

/// A line with one height in each interval, and gaps for `None`.
pub(super) fn steps(intervals: impl Iterator<Item = (f64, f64, Option<f64>)>) -> String {
    let mut path = String::new();
    let mut drawn = false;
    for (left, right, height) in intervals {
        // Writing to a string does not fail.
        let _ = match height {
            Some(height) if drawn => write!(path, "V{height:.1}H{right:.1}"),
            Some(height) => write!(path, "M{left:.1} {height:.1}H{right:.1}"),
            None => Ok(()),
        };
        drawn = height.is_some();
    }
    path
}

/// A number in its shortest form, with the precision that an axis needs.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        1e6.. => format!("{}M", value / 1e6),
        1e4.. => format!("{}k", value / 1e3),
        1e-3.. => format!("{}", (value * 1e6).round() / 1e6),
        _ if value == 0.0 => "0".to_owned(),
        _ => format!("{value:e}"),
    }
}

pub(super) const WIDTH: f64 = 480.0;
pub(super) const HEIGHT: f64 = 270.0;
pub(super) const LEFT: f64 = 48.0;
pub(super) const RIGHT: f64 = 456.0;
pub(super) const TOP: f64 = 22.0;
pub(super) const BOTTOM: f64 = 226.0;
const LABELS_MAX: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_gaps() {
        let heights = [Some(1.0), Some(2.0), None, Some(3.0)].into_iter();
        let sides = [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0)].into_iter();
        let path = steps(sides.zip(heights).map(|((left, right), height)| (left, right, height)));
        assert_eq!(path, "M0.0 1.0H1.0V2.0H2.0M3.0 3.0H4.0");
    }

    #[test]
    fn numbers_are_short() {
        let numbers = [0.0, 1e-4, 0.001, 0.2, 0.1 + 0.2, 600.0, 10_000.0, 2_500_000.0].map(number);
        assert_eq!(numbers, ["0", "1e-4", "0.001", "0.2", "0.3", "600", "10k", "2.5M"]);
    }

    #[test]
    fn many_decades_have_few_labels() {
        assert!(decade_ticks(Decades { from: -300, to: 300 }, x).len() <= LABELS_MAX);
        assert_eq!(decade_ticks(Decades { from: -1, to: 3 }, x).len(), 5);
    }
}
