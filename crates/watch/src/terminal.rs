//! The terminal view of the states of servers.
//!
//! ```text
//!  watari watch live -i eth0   3 servers, 48211 packets, 0 dropped   q: quit, arrows: select                    12:03:09 UTC
//!  server         sensor state        since  open   ans/s  p50 ms  p99 ms   X %   Y %   Z % unans/s
//!  192.0.2.1:443  here   normal    00:41:10   212  1820.4     7.5    19.8  71.0  28.2   0.8     0.0
//!  192.0.2.2:443  here   SATURATED 00:00:12   ..
//!
//!              Z timeouts                192.0.2.1:443 (here)
//!                 ╱╲                     normal since 2026-05-06 11:21:59 UTC, for 00:41:10: all shares were within their limits
//!                ╱  ╲                    last 20 min: X 71.0 % delivered, Y 28.2 % client aborts, Z 0.8 % timeouts
//!               ╱    ╲                   opened/s                                                1821.0
//!              ╱ ·    ╲                  ▂▃▅▆▇█▇▇▆▇▇▇
//!             ╱  ··    ╲                 ending in the last 20 min: S_NORMAL 71  C_NORMAL ..
//!    X delivered ── Y client aborts
//!  X delivered, Y client aborts, Z timeouts: % of ended connections; rates, times: complete seconds of the last 10 s
//! ```
//!
//! [`View`] draws a [`Board`] into cells, and [`Screen`] is the terminal that shows them. No value is shown in part: if
//! there is no room for it, it is left out (`list`, `text`).

mod format;
mod list;
mod screen;
mod ternary;
mod text;

pub use screen::{Key, Screen};

use std::net::SocketAddr;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::prelude::StatefulWidget;
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline, TableState, Widget};
use watari_endings::{Ending, Lately, Tally};

use crate::board::{Board, Entry};
use crate::report::Health;
use crate::spans::because;
use format::{clock, milliseconds, moment, percent, rate, servers, shown, since, span, style};
use ternary::Ternary;
use text::{printable, width_of, wrap};

/// The selected server, by its name, because servers come and go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    chosen: Option<(String, SocketAddr)>,
    table: usize,
}

/// A drawn board.
#[derive(Debug)]
pub struct View<'a> {
    title: &'a str,
    board: &'a Board,
    servers: Vec<Entry<'a>>,
    chosen: usize,
}

impl Choice {
    /// Selects the server above or below.
    pub fn go(&mut self, board: &Board, down: bool) {
        let servers = sorted(board);
        let at = self.index(&servers);
        let at = if down { (at + 1).min(servers.len().saturating_sub(1)) } else { at.saturating_sub(1) };
        self.chosen = servers.get(at).map(|it| (it.sensor.to_owned(), it.address));
        self.table = at;
    }

    fn index(&self, servers: &[Entry<'_>]) -> usize {
        let chosen = self.chosen.as_ref();
        let place = servers
            .iter()
            .position(|it| chosen.is_some_and(|(sensor, server)| (it.sensor, it.address) == (sensor, *server)));
        place.unwrap_or_else(|| self.table.min(servers.len().saturating_sub(1)))
    }
}

/// The worst first, then the busiest.
fn sorted(board: &Board) -> Vec<Entry<'_>> {
    let mut entries: Vec<_> = board.entries().collect();
    entries.sort_by_key(|it| {
        let opened = it.server.total(Lately::Span).opened;
        (std::cmp::Reverse((it.server.state(), opened)), it.sensor, it.address)
    });
    entries
}

impl<'a> View<'a> {
    /// A view of a board with this title.
    pub fn new(title: &'a str, board: &'a Board, choice: &Choice) -> Self {
        let servers = sorted(board);
        Self { title, board, chosen: choice.index(&servers), servers }
    }

    /// The counts of all servers, in as many lines as the title takes, which may show an error.
    fn head(&self, width: usize) -> Vec<Line<'static>> {
        let mut all = Health::default();
        for (_, sensor) in self.board.sensors() {
            all += sensor.health;
        }
        let lost = all.dropped + all.dropped_by_interface;
        let lost_style = if lost > 0 { Style::new().red().bold() } else { Style::new().dim() };
        let dim = Style::new().dim();
        let parts = [
            (format!("{lost} dropped"), lost_style),
            (clock(self.board.now()), dim),
            (servers(self.servers.len()), dim),
            (format!("{} packets", all.frames.all()), dim),
            ("q: quit, arrows: select".to_owned(), dim),
        ];
        let mut lines: Vec<_> =
            wrap(&printable(self.title), width).into_iter().map(|line| Line::from(line).bold()).collect();
        // Each part whole or not at all, behind the title if there is room.
        let used = lines.last().map_or(0, Line::width);
        let needed = parts.iter().map(|(text, _)| 2 + width_of(text)).sum::<usize>();
        if lines.is_empty() || used + needed > width {
            lines.push(Line::default());
        }
        let Some(line) = lines.last_mut() else { return lines };
        for (text, style) in parts {
            let gap = if line.width() == 0 { "" } else { "  " };
            if line.width() + gap.len() + width_of(&text) <= width {
                line.push_span(Span::raw(gap));
                line.push_span(Span::styled(text, style));
            }
        }
        lines
    }

    fn details(&self, area: Rect, buffer: &mut Buffer) {
        let Some(entry) = self.servers.get(self.chosen) else {
            let lines = wrap("No server has been seen yet.", area.width.into());
            return Paragraph::new(lines.into_iter().map(Line::from).collect::<Vec<_>>()).dim().render(area, buffer);
        };
        let (span_s, is_narrow) = (self.board.profile().span.as_secs(), area.width < ALL_COLUMNS_WIDTH);
        if area.width < PICTURE_WIDTH_MIN || area.height < PICTURE_HEIGHT_MIN {
            return facts(entry, span_s, is_narrow, area, buffer);
        }
        let [picture, _, beside] =
            Layout::horizontal([Constraint::Percentage(50), Constraint::Length(1), Constraint::Fill(1)]).areas(area);
        Ternary::new(entry, self.board.profile()).render(picture, buffer);
        facts(entry, span_s, is_narrow, beside, buffer);
    }
}

/// The text and the charts of a server. If there is no room, the charts are left out first, then the endings.
fn facts(entry: &Entry<'_>, span_s: u64, is_narrow: bool, area: Rect, buffer: &mut Buffer) {
    let width = area.width.into();
    let plain = |text: &str| wrap(text, width).into_iter().map(Line::from).collect::<Vec<_>>();
    let mut lines = plain(&format!("{} ({})", entry.address, printable(entry.sensor)));
    for line in &mut lines {
        *line = line.clone().bold();
    }
    lines.extend(verdict(entry, width));
    lines.extend(plain(&shares(entry)));
    let last = plain(&counted(&entry.server.total(Lately::Span), span_s));
    if is_narrow {
        lines.extend(plain(&now(entry)));
    }
    let rest = usize::from(area.height).saturating_sub(lines.len());
    let last = if last.len() <= rest { last } else { Vec::new() };
    let charts = (rest - last.len()) / 3;
    let height = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
    let each = if charts >= 2 { height(charts.min(CHART_HEIGHT_MAX)) } else { 0 };
    let heights = [height(lines.len()), each, each, each, height(last.len())];
    let [words, opened, answered, unanswered, endings] = Layout::vertical(heights.map(Constraint::Length)).areas(area);
    Paragraph::new(lines).render(words, buffer);
    if each > 0 {
        for (area, name, value) in [
            (opened, "opened/s", (|tally| tally.opened) as fn(&Tally) -> u32),
            (answered, "answered/s", |tally| tally.answered),
            (unanswered, "unanswered/s", |tally| tally.unanswered),
        ] {
            bars(name, entry, value, area, buffer);
        }
    }
    Paragraph::new(last).render(endings, buffer);
}

/// Its state, the begin of the state, and the evidence.
fn verdict(entry: &Entry<'_>, width: usize) -> Vec<Line<'static>> {
    let state = entry.server.state();
    let text = entry.server.verdict().map_or_else(
        || format!("{}: too little happened to decide", shown(state)),
        |it| {
            format!(
                "{} since {}, for {}: {}",
                shown(state),
                moment(it.since),
                since(entry),
                entry.server.evidence().map(because).unwrap_or_default()
            )
        },
    );
    let mut lines: Vec<_> = wrap(&text, width).into_iter().map(Line::from).collect();
    if let Some(first) = lines.first_mut() {
        let text = first.to_string();
        // The state is the first word, or the whole line if that has only a part of it.
        let at = text.find(|c: char| !c.is_alphabetic()).unwrap_or(text.len());
        *first = Line::from(vec![Span::styled(text[..at].to_owned(), style(state)), Span::raw(text[at..].to_owned())]);
    }
    lines
}

fn shares(entry: &Entry<'_>) -> String {
    let span = span(entry.shares_span_s);
    let Some(it) = entry.shares else { return format!("last {span}: no connection ended, so no X, Y and Z") };
    let [x, y, z] = [it.s_normal, it.client_abort, it.timeout].map(|share| percent(Some(share)));
    format!("last {span}: X {x} % delivered, Y {y} % client aborts, Z {z} % timeouts")
}

/// The values that may have no column.
fn now(entry: &Entry<'_>) -> String {
    let tally = &entry.recent.tally;
    let time = |share| milliseconds(tally.response_quantile(share).map(|time| time.as_secs_f64() * 1e3));
    format!(
        "last {}: {} answered/s, {} unanswered/s, p50 {} ms, p99 {} ms; {} open",
        span(entry.recent.covered_s),
        rate(entry, tally.answered),
        rate(entry, tally.unanswered),
        time(0.5),
        time(0.99),
        entry.open
    )
}

impl Widget for &View<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let height = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
        let head = self.head(area.width.into());
        let legend = wrap(LEGEND, area.width.into());
        let legend =
            if usize::from(area.height) >= head.len() + legend.len() + LEGEND_HEIGHT_MIN { legend } else { Vec::new() };
        let listed = height(self.servers.len() + 1).min(area.height / 2).max(2);
        let rows = [
            Constraint::Length(height(head.len())),
            Constraint::Length(listed),
            Constraint::Length(1),
            Constraint::Fill(1),
            Constraint::Length(height(legend.len())),
        ];
        let [title, table, _, details, bottom] = Layout::vertical(rows).areas(area);
        Paragraph::new(head).render(title, buffer);
        let mut state = TableState::new().with_selected(Some(self.chosen));
        StatefulWidget::render(list::table(&self.servers, table.width), table, buffer, &mut state);
        self.details(details, buffer);
        Paragraph::new(legend.into_iter().map(Line::from).collect::<Vec<_>>()).dim().render(bottom, buffer);
    }
}

/// The least width at which the ternary diagram is shown, in cells.
const PICTURE_WIDTH_MIN: u16 = 60;
const PICTURE_HEIGHT_MIN: u16 = 8;
/// The least width at which the list always has room for all columns, in cells.
const ALL_COLUMNS_WIDTH: u16 = 100;
const CHART_HEIGHT_MAX: usize = 4;
/// The least height of the rest at which the legend is shown, in lines.
const LEGEND_HEIGHT_MIN: usize = 14;
const LEGEND: &str = "X delivered, Y client aborts, Z timeouts: % of ended connections; rates, p50, p99 (time to the first octet): last 10 s";

/// The latest complete seconds as bars, as many as fit, and the rate in the last ten of them.
fn bars(name: &'static str, entry: &Entry<'_>, value: fn(&Tally) -> u32, area: Rect, buffer: &mut Buffer) {
    let [head, bars] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let first = entry.covered.until_s.saturating_sub(bars.width.into());
    let mut data = vec![0; bars.width.into()];
    for (at_s, tally) in entry.server.window().seconds() {
        if let Some(bar) = at_s.checked_sub(first).and_then(|at| data.get_mut(at as usize)) {
            *bar = value(tally).into();
        }
    }
    let rate = rate(entry, value(&entry.recent.tally));
    if name.len() + 1 + width_of(&rate) <= head.width.into() {
        Line::from(name).dim().render(head, buffer);
        Line::from(rate).bold().right_aligned().render(head, buffer);
    }
    Sparkline::default().data(data).style(Style::new().cyan()).render(bars, buffer);
}

/// The endings with a count above 0.
fn counted(tally: &Tally, span_s: u64) -> String {
    let counts = Ending::ALL.into_iter().map(|ending| (ending, tally.ending(ending)));
    let mut words: Vec<_> = counts.filter(|(_, count)| *count > 0).map(|(e, count)| format!("{e} {count}")).collect();
    if tally.tls_full + tally.tls_resumed > 0 {
        words.push(format!("TLS {} full, {} resumed", tally.tls_full, tally.tls_resumed));
    }
    if words.is_empty() { String::new() } else { format!("endings, last {}: {}", span(span_s), words.join(", ")) }
}

#[cfg(test)]
mod tests;
