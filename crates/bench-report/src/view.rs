//! The live view of a run in a terminal.
//!
//! ```text
//!  watari bench http http://127.0.0.1:8080/ -d 60s -c 100                    q: end
//!  12.3 s of 60 s ━━━━━━━━━━━━━━━━──────────────────────────────────────────────────
//!
//!  answered/s            48211  latency p99, ms          8.20
//!  ▂▃▅▆▇█▇▇▆▇▇▇                 ▁▁▁▂▁▁▁▁▁▁▁▁
//!
//!  latency, ms       p50       p90       p99     p99.9       max
//!  last second     1.203     ...
//!  so far          1.188     ...
//!
//!  endings      NORMAL 482110  RESET 3
//!  connections  100 open, 100 opened
//!  handshakes   100 full, 0 resumed
//! ```
//!
//! [`View`] draws the content of [`Progress`] into cells. [`screen::Screen`] is the terminal that shows them.
//!
//! Imports: `grid` and `summary`, for text and numbers.

mod chart;
pub mod screen;

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::symbols::line;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, LineGauge, Row, Table, Widget};
use watari_bench_engine::ending::EndingKind;
use watari_bench_engine::plan::Stop;
use watari_bench_engine::progress::{Counts, Progress};
use watari_bench_engine::tally::Point;

use crate::grid::shown;
use crate::summary::float;
use crate::view::chart::Chart;

/// The progress of a run as a widget.
#[derive(Debug)]
pub struct View<'a> {
    title: &'a str,
    stop: Stop,
    progress: &'a Progress,
    last: Option<Point>,
    so_far: Point,
}

impl<'a> View<'a> {
    /// The view of a run that is called `title` and ends by `stop`.
    pub fn new(title: &'a str, stop: Stop, progress: &'a mut Progress) -> Self {
        let so_far = progress.so_far();
        Self { title, stop, last: progress.last(), so_far, progress }
    }

    /// The completed share of the run, from 0 to 1. With two limits, the larger share.
    fn share(&self) -> f64 {
        let requests = self.stop.requests.map(|all| float(self.so_far.endings.iter().sum()) / float(all.max(1)));
        let time = self.stop.after.map(|all| self.progress.elapsed.as_secs_f64() / all.as_secs_f64().max(f64::EPSILON));
        requests.into_iter().chain(time).fold(0.0, f64::max).clamp(0.0, 1.0)
    }

    /// The command, with a mark where it is truncated.
    fn head(&self, width: u16) -> Line<'static> {
        let (title, width) = (shown(self.title), usize::from(width));
        if Span::raw(&title).width() <= width {
            return Line::from(title).bold();
        }
        let mut head = String::new();
        for character in title.chars() {
            head.push(character);
            if Span::raw(&head).width() >= width {
                head.pop();
                break;
            }
        }
        Line::from(head + "…").bold()
    }

    fn gauge(&self, width: u16) -> LineGauge<'static> {
        let elapsed = format!("{:.1} s", self.progress.elapsed.as_secs_f64());
        let of_time = self.stop.after.map(|all| format!(" of {} s", all.as_secs_f64()));
        let of_requests =
            self.stop.requests.map(|all| format!(", {} of {all}", self.so_far.endings.iter().sum::<u64>()));
        let label = fitting([Some(elapsed), of_time, of_requests].into_iter().flatten().map(Span::from), width);
        LineGauge::default()
            .ratio(self.share())
            .label(label)
            .filled_symbol(line::THICK_HORIZONTAL)
            .unfilled_symbol(line::HORIZONTAL)
            .filled_style(Style::new().cyan())
            .unfilled_style(Style::new().dim())
    }

    /// Success rate and latency, side by side if the width permits.
    fn charts(&self, area: Rect, buffer: &mut Buffer) {
        let rate = Chart {
            name: "answered/s",
            figure: self.last.as_ref().map(|last| format!("{:.0}", self.per_second(last))),
            value: Point::succeeded,
        };
        let latency = Chart {
            name: "latency p99, ms",
            figure: self.last.as_ref().map(|last| milliseconds(last.latency(0.99))),
            value: |point| point.latency(0.99).map_or(0, |time| time.as_micros() as u64),
        };
        if area.width < WIDTH_OF_TWO {
            return rate.render(self.progress, area, buffer);
        }
        let [left, _, right] =
            Layout::horizontal([Constraint::Fill(1), Constraint::Length(2), Constraint::Fill(1)]).areas(area);
        rate.render(self.progress, left, buffer);
        latency.render(self.progress, right, buffer);
    }

    fn per_second(&self, point: &Point) -> f64 {
        float(point.succeeded()) / self.progress.course().interval().as_secs_f64()
    }

    /// The latencies of the last interval, and of the whole run so far.
    fn times(&self, width: u16) -> Table<'static> {
        let interval = self.progress.course().interval().as_secs();
        let last = if interval == 1 { "last second".to_owned() } else { format!("last {interval} s") };
        // Only whole columns, the most important first: a truncated number would look like another number.
        let fitting = usize::from(width.saturating_sub(NAME_WIDTH) / (1 + FIGURE_WIDTH));
        let columns: Vec<_> = QUANTILES.into_iter().filter(|(.., rank)| *rank < fitting).collect();
        let heads = columns.iter().map(|(name, ..)| right(*name));
        let heads = Row::new(std::iter::once(Cell::from("latency, ms")).chain(heads)).dim();
        let row = |name: String, of: Option<&Point>| {
            let quantile = |(_, quantile, _): &(_, f64, _)| {
                right(of.map_or_else(|| "-".to_owned(), |of| milliseconds(of.latency(*quantile))))
            };
            Row::new(std::iter::once(Cell::from(name).dim()).chain(columns.iter().map(quantile)))
        };
        let rows = [heads, row(last, self.last.as_ref()), row("so far".to_owned(), Some(&self.so_far))];
        let widths = std::iter::once(Constraint::Length(NAME_WIDTH))
            .chain(columns.iter().map(|_| Constraint::Length(FIGURE_WIDTH)));
        Table::new(rows, widths).column_spacing(1)
    }

    /// The endings that fit completely.
    fn endings(&self, width: u16) -> Line<'static> {
        let kinds = EndingKind::ALL.into_iter().map(|kind| (kind, self.so_far.ended(kind)));
        let occurred = kinds.filter(|(kind, count)| *count > 0 || *kind == EndingKind::Normal);
        let spans = occurred.map(|(kind, count)| {
            let span = Span::from(format!("{} {count}  ", kind.name()));
            if kind == EndingKind::Normal { span.green() } else { span.red().bold() }
        });
        fitting(std::iter::once(Span::from("endings      ").dim()).chain(spans), width)
    }
}

impl Widget for &View<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let rows = [1, 1, 1].map(Constraint::Length).into_iter();
        let rows = rows.chain([Constraint::Fill(1)]).chain([1, 3, 1, 1, 1, 1].map(Constraint::Length));
        let [head, gauge, _, charts, _, times, _, endings, connections, handshakes] =
            Layout::vertical(rows).areas(area);
        let [title, hint] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(HINT_WIDTH)]).areas(head);
        self.head(title.width).render(title, buffer);
        Line::from(HINT).right_aligned().dim().render(hint, buffer);
        self.gauge(gauge.width).render(gauge, buffer);
        self.charts(charts, buffer);
        Widget::render(self.times(times.width), times, buffer);
        self.endings(endings.width).render(endings, buffer);
        if let Some(counts) = self.progress.counts {
            connections_of(counts, connections.width).render(connections, buffer);
            handshakes_of(counts, handshakes.width).render(handshakes, buffer);
        }
    }
}

fn connections_of(Counts { opened, closed, .. }: Counts, width: u16) -> Line<'static> {
    let open = format!("{} open", opened.saturating_sub(closed));
    fitting(["connections  ".dim(), open.into(), format!(", {opened} opened").into()], width)
}

/// Empty without TLS.
fn handshakes_of(Counts { full, resumed, .. }: Counts, width: u16) -> Line<'static> {
    if full + resumed == 0 {
        return Line::default();
    }
    fitting(["handshakes   ".dim(), format!("{full} full").into(), format!(", {resumed} resumed").into()], width)
}

/// The first parts that fit completely.
fn fitting(parts: impl IntoIterator<Item = Span<'static>>, width: u16) -> Line<'static> {
    let mut line = Line::default();
    for part in parts {
        if line.width() + Span::raw(part.content.trim_end()).width() > width.into() {
            break;
        }
        line.push_span(part);
    }
    line
}

fn right(text: impl Into<String>) -> Cell<'static> {
    Cell::from(Line::from(text.into()).right_aligned())
}

/// At least four digits, so that the value fits its column.
fn milliseconds(time: Option<Duration>) -> String {
    let Some(ms) = time.map(|time| time.as_secs_f64() * 1e3) else { return "-".to_owned() };
    match ms {
        1000.0.. => format!("{ms:.0}"),
        100.0.. => format!("{ms:.1}"),
        10.0.. => format!("{ms:.2}"),
        _ => format!("{ms:.3}"),
    }
}

/// Number of rows of the view, if the terminal has as many.
pub const HEIGHT: u16 = 16;
/// Each with its rank: if there is room for `n` columns, those with a rank below `n` are shown.
const QUANTILES: [(&str, f64, usize); 5] =
    [("p50", 0.5, 1), ("p90", 0.9, 3), ("p99", 0.99, 0), ("p99.9", 0.999, 4), ("max", 1.0, 2)];
const NAME_WIDTH: u16 = 13;
const FIGURE_WIDTH: u16 = 8;
const HINT: &str = " q: end";
const HINT_WIDTH: u16 = HINT.len() as u16;
/// Two charts are side by side from this width on.
const WIDTH_OF_TWO: u16 = 60;

#[cfg(test)]
mod tests;
