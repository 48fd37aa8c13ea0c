//! The ternary diagram: X (delivered) to the left corner, Y (client aborts) to the right, Z (timeouts) upwards (ANMA
//! paper, chapter 2). Each second in which connections ended is a point; older ones fade.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Stylize};
use ratatui::symbols::Marker;
use ratatui::text::Line as Text;
use ratatui::widgets::Widget;
use ratatui::widgets::canvas::{Canvas, Context, Line, Points};
use watari_endings::{Profile, Shares};

use super::text::width_of;
use crate::board::Entry;

pub(super) struct Ternary {
    /// Positions of the points, the oldest third first.
    ages: [Vec<(f64, f64)>; 3],
    /// The position of the sum over the profile's span.
    all: Option<(f64, f64)>,
}

/// Labels of the corners: left, right, top. The first that fits is used.
const CORNERS: [[&str; 3]; 3] =
    [["X delivered", "Y client aborts", "Z timeouts"], ["delivered", "aborts", "timeouts"], ["X", "Y", "Z"]];

/// The height of a triangle with sides of 1.
const HEIGHT: f64 = 0.866_025_403_784_438_6;

impl Ternary {
    pub(super) fn new(entry: &Entry<'_>, profile: &Profile) -> Self {
        let (now_s, span_s) = (entry.last_report.0 / 1_000_000_000, profile.span.as_secs().max(1));
        let mut ages = [const { Vec::new() }; 3];
        for (at_s, tally) in entry.server.window().seconds() {
            let Some(shares) = tally.shares() else { continue };
            let age = (now_s.saturating_sub(at_s) * 3 / span_s).min(2) as usize;
            ages[2 - age].push(point(shares));
        }
        Self { ages, all: entry.shares.map(point) }
    }

    fn draw(&self, context: &mut Context<'_>) {
        let corners = [(0.0, 0.0), (1.0, 0.0), (0.5, HEIGHT)];
        for (from, to) in [(0, 1), (1, 2), (2, 0)] {
            let ((x1, y1), (x2, y2)) = (corners[from], corners[to]);
            context.draw(&Line { x1, y1, x2, y2, color: Color::DarkGray });
        }
        for (coords, color) in self.ages.iter().zip([Color::DarkGray, Color::Gray, Color::White]) {
            context.layer();
            context.draw(&Points { coords, color });
        }
        if let Some((x, y)) = self.all {
            context.print(x, y, Text::styled("◆", Color::Cyan));
        }
    }
}

impl Widget for Ternary {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let [top, area, bottom] =
            Layout::vertical([Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)]).areas(area);
        let width = usize::from(area.width);
        let [left, right, up] =
            CORNERS.into_iter().find(|it| width_of(it[0]) + 2 + width_of(it[1]) <= width).unwrap_or_default();
        Text::from(up).dim().centered().render(top, buffer);
        Text::from(left).dim().render(bottom, buffer);
        Text::from(right).dim().right_aligned().render(bottom, buffer);
        Canvas::default()
            .marker(Marker::Braille)
            .x_bounds([-0.02, 1.02])
            .y_bounds([-0.02, HEIGHT + 0.02])
            .paint(|context| self.draw(context))
            .render(area, buffer);
    }
}

/// The position of shares in a triangle with sides of 1 whose left corner is the origin.
pub(super) fn point(shares: Shares) -> (f64, f64) {
    (shares.client_abort + shares.timeout / 2.0, shares.timeout * HEIGHT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corners_are_where_the_paper_has_them() {
        let at = |s_normal, client_abort, timeout| point(Shares { s_normal, client_abort, timeout });
        assert_eq!(at(1.0, 0.0, 0.0), (0.0, 0.0));
        assert_eq!(at(0.0, 1.0, 0.0), (1.0, 0.0));
        assert_eq!(at(0.0, 0.0, 1.0), (0.5, HEIGHT));
        let (x, y) = at(1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0);
        assert!((x - 0.5).abs() < 1e-9 && (y - HEIGHT / 3.0).abs() < 1e-9);
    }
}
