//! The ternary diagram: `S_NORMAL` to the left corner, what clients cut off to the right, `TIMEOUT` upwards (ANMA paper,
//! chapter 2). Each second in which connections ended is a point; older ones fade.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Color;
use ratatui::symbols::Marker;
use ratatui::text::Line as Text;
use ratatui::widgets::Widget;
use ratatui::widgets::canvas::{Canvas, Context, Line, Points};
use watari_endings::{Lately, Profile, Server, Shares};
use watari_packets::Timestamp;

pub(super) struct Ternary {
    /// Where points are, the oldest third first.
    ages: [Vec<(f64, f64)>; 3],
    /// All of the profile's span together.
    all: Option<(f64, f64)>,
}

/// Half of it above the base is the height of a triangle with sides of 1.
const HEIGHT: f64 = 0.866_025_403_784_438_6;

impl Ternary {
    pub(super) fn new(server: &Server, profile: &Profile, now: Timestamp) -> Self {
        let (now_s, span_s) = (now.0 / 1_000_000_000, profile.span.as_secs().max(1));
        let mut ages = [const { Vec::new() }; 3];
        for (at_s, tally) in server.window().seconds() {
            let Some(shares) = tally.shares() else { continue };
            let age = (now_s.saturating_sub(at_s) * 3 / span_s).min(2) as usize;
            ages[2 - age].push(point(shares));
        }
        Self { ages, all: server.total(Lately::Span).shares().map(point) }
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
        context.print(0.0, -0.09, "S_NORMAL");
        context.print(0.87, -0.09, "ABORT");
        context.print(0.45, HEIGHT + 0.05, "TIMEOUT");
    }
}

impl Widget for Ternary {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        Canvas::default()
            .marker(Marker::Braille)
            .x_bounds([-0.02, 1.02])
            .y_bounds([-0.12, HEIGHT + 0.08])
            .paint(|context| self.draw(context))
            .render(area, buffer);
    }
}

/// Where shares are in a triangle with sides of 1 whose left corner is the origin.
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
