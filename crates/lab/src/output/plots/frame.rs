//! What plots have in common: a title, a legend, and axes.

use crate::output::plots::scale::Scale;
use crate::output::plots::svg::{AXIS, Anchor, GRID, INK, QUIET, Svg, width};
use crate::output::text::wrapped;

/// The place of a plot's data.
#[derive(Clone, Copy)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Area {
    pub(super) fn x(&self, share: f64) -> f64 {
        self.left + (self.right - self.left) * share
    }

    pub(super) fn y(&self, share: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * share
    }
}

/// An entry of a legend.
pub(super) struct Key {
    pub(super) name: String,
    pub(super) mark: Mark,
}

/// Draws the mark of a legend around a position.
type Mark = Box<dyn Fn(&mut Svg, (f64, f64))>;

/// Draws the title and the legend, and returns the place below.
pub(super) fn head(svg: &mut Svg, title: &str, keys: &[Key]) -> f64 {
    let mut y = MARGIN + 8.0;
    for line in wrapped(title, WIDTH - 2.0 * MARGIN, |line| width(line, TITLE)) {
        svg.text((MARGIN, y), Anchor::Start, TITLE, INK, &line);
        y += 20.0;
    }
    legend(svg, keys, y + 2.0)
}

fn legend(svg: &mut Svg, keys: &[Key], mut y: f64) -> f64 {
    let mut x = MARGIN;
    for Key { name, mark } in keys {
        let needed = MARK_WIDTH + width(name, TEXT) + 16.0;
        if x > MARGIN && x + needed > WIDTH - MARGIN {
            (x, y) = (MARGIN, y + 20.0);
        }
        mark(svg, (x + 12.0, y));
        svg.text((x + MARK_WIDTH, y), Anchor::Start, TEXT, INK, name);
        x += needed;
    }
    if keys.is_empty() { y } else { y + 20.0 }
}

/// Draws a vertical axis on the left, with lines across the area, and its unit above.
pub(super) fn left_axis(svg: &mut Svg, area: Area, scale: Scale, unit: &str) {
    for (value, label) in scale.ticks() {
        let y = area.y(scale.place(value));
        svg.line((area.left, y), (area.right, y), GRID);
        svg.text((area.left - 8.0, y), Anchor::End, TEXT, QUIET, &label);
    }
    svg.text((MARGIN, area.top - 16.0), Anchor::Start, TEXT, QUIET, unit);
}

/// Draws a vertical axis on the right.
pub(super) fn right_axis(svg: &mut Svg, area: Area, scale: Scale, unit: &str) {
    svg.line((area.right, area.top), (area.right, area.bottom), AXIS);
    for (value, label) in scale.ticks() {
        let y = area.y(scale.place(value));
        svg.line((area.right, y), (area.right + 4.0, y), AXIS);
        svg.text((area.right + 8.0, y), Anchor::Start, TEXT, QUIET, &label);
    }
    svg.text((WIDTH - MARGIN, area.top - 16.0), Anchor::End, TEXT, QUIET, unit);
}

/// Draws a horizontal axis. `ticks` have places from 0 to 1 and labels, of which those are left out that would touch.
pub(super) fn bottom_axis(svg: &mut Svg, area: Area, ticks: &[(f64, String)], unit: &str) {
    svg.line((area.left, area.bottom), (area.right, area.bottom), AXIS);
    let mut free = f64::NEG_INFINITY;
    for (place, label) in ticks {
        let (x, half) = (area.x(*place), width(label, TEXT) / 2.0);
        svg.line((x, area.bottom), (x, area.bottom + 4.0), AXIS);
        if x - half > free {
            svg.text((x, area.bottom + 14.0), Anchor::Middle, TEXT, QUIET, label);
            free = x + half + 6.0;
        }
    }
    let middle = f64::midpoint(area.left, area.right);
    svg.text((middle, area.bottom + 34.0), Anchor::Middle, TEXT, QUIET, unit);
}

/// The ticks of a scale as places.
pub(super) fn placed(scale: Scale) -> Vec<(f64, String)> {
    scale.ticks().into_iter().map(|(value, label)| (scale.place(value), label)).collect()
}

/// The width that the labels of a vertical axis need.
pub(super) fn labels_width(scale: Scale) -> f64 {
    scale.ticks().iter().map(|(_, label)| width(label, TEXT)).fold(0.0, f64::max) + 10.0
}

/// The width of pictures.
pub(super) const WIDTH: f64 = 720.0;
pub(super) const MARGIN: f64 = 16.0;
/// The height below an area that its horizontal axis needs.
pub(super) const AXIS_HEIGHT: f64 = 52.0;
pub(super) const TITLE: f64 = 16.0;
pub(super) const TEXT: f64 = 12.0;
const MARK_WIDTH: f64 = 30.0;
