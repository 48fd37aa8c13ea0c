//! A figure of each interval as bars. If they do not all fit, the chart shows the newest ones, with the latest at the
//! right end.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Sparkline, SparklineBar, Widget};
use watari_bench_engine::progress::Progress;
use watari_bench_engine::tally::Point;

pub(super) struct Chart {
    pub(super) name: &'static str,
    /// The value of the last interval.
    pub(super) figure: Option<String>,
    pub(super) value: fn(&Point) -> u64,
}

impl Chart {
    pub(super) fn render(&self, progress: &Progress, area: Rect, buffer: &mut Buffer) {
        let [head, bars] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
        let figure = Line::from(self.figure.clone().unwrap_or_default()).bold();
        // The name and the figure must not overlap.
        if self.name.len() + 1 + figure.width() <= head.width.into() {
            Line::from(self.name).dim().render(head, buffer);
        }
        if figure.width() <= head.width.into() {
            figure.right_aligned().render(head, buffer);
        }
        Sparkline::default().data(self.bars(progress, bars.width.into())).render(bars, buffer);
    }

    /// The last `width` complete intervals. The current interval would always look like a drop.
    fn bars(&self, progress: &Progress, width: usize) -> Vec<SparklineBar> {
        let nothing = Point::default();
        let points = progress.course().points();
        let shown = progress.over().saturating_sub(width)..progress.over();
        shown.map(|index| self.bar(points.get(index).unwrap_or(&nothing))).collect()
    }

    /// Red if requests failed.
    fn bar(&self, point: &Point) -> SparklineBar {
        let style = if point.failed() > 0 { Style::new().red() } else { Style::new().green() };
        SparklineBar::from((self.value)(point)).style(style)
    }
}
