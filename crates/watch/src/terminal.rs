//! What servers are in, shown in a terminal.
//!
//! ```text
//!  watari watch live -i eth0          3 servers, 48211 packets/s, 0 dropped                    q: end, arrows: choose
//!  server           state      since     open  answers/s  mean ms   x %   y %   z %
//!  192.0.2.1:443    normal     00:41:10   212     1820.4     12.3   71.0  28.2   0.8
//!  192.0.2.2:443    SATURATED  00:00:12   ..
//!
//!              TIMEOUT                   192.0.2.1:443 is normal since 00:41:10:
//!                 ╱╲                     all shares were within their limits
//!                ╱  ╲                    opened/s ▂▃▅▆▇█▇▇▆▇▇▇
//!               ╱    ╲                   answers/s ▂▃▅▆▇█▇▇▆▇▇▇
//!              ╱ ·    ╲                  unanswered/s
//!             ╱  ··    ╲                 ending S_NORMAL 71 %  C_NORMAL ..
//!    S_NORMAL ──────────── ABORT
//! ```
//!
//! [`View`] draws a [`Board`] into cells; [`Screen`] is the terminal that they are shown on.

mod screen;
mod ternary;

pub use screen::{Key, Screen};

use std::net::SocketAddr;
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::prelude::StatefulWidget;
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, Table, TableState, Widget, Wrap};
use watari_endings::{Ending, Lately, Server, ServerState, Tally};
use watari_packets::Timestamp;

use crate::board::{Board, Entry};
use crate::report::Health;
use crate::spans::because;
use ternary::Ternary;

/// Which server is looked at. Servers come and go, so it is known by its name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    chosen: Option<(String, SocketAddr)>,
    table: usize,
}

/// A board, drawn.
#[derive(Debug)]
pub struct View<'a> {
    title: &'a str,
    board: &'a Board,
    servers: Vec<Entry<'a>>,
    chosen: usize,
}

impl Choice {
    /// The server above or below.
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
    /// Of a board; `title` is what it is called.
    pub fn new(title: &'a str, board: &'a Board, choice: &Choice) -> Self {
        let servers = sorted(board);
        Self { title, board, chosen: choice.index(&servers), servers }
    }

    fn head(&self) -> Line<'static> {
        let mut all = Health::default();
        for (_, sensor) in self.board.sensors() {
            all += sensor.health;
        }
        let lost = all.dropped + all.dropped_by_interface;
        let lost_style = if lost > 0 { Style::new().red().bold() } else { Style::new().dim() };
        Line::from(vec![
            Span::from(printable(self.title)).bold(),
            Span::from(format!("  {}, {} packets, ", servers(self.servers.len()), all.frames.all())).dim(),
            Span::styled(format!("{lost} dropped"), lost_style),
            Span::from("  q: end, arrows: choose").dim(),
        ])
    }

    fn table(&self) -> Table<'static> {
        let widths = [Constraint::Min(21), Constraint::Max(16), Constraint::Length(9), Constraint::Length(9)]
            .into_iter()
            .chain([Constraint::Length(7); 8]);
        Table::new(self.servers.iter().map(|entry| self.row(entry)), widths)
            .header(Row::new(HEADS.map(|head| Text::from(head).right_aligned().dim())))
            .row_highlight_style(Style::new().reversed())
    }

    fn row(&self, entry: &Entry<'_>) -> Row<'static> {
        let Entry { sensor, address, server, .. } = entry;
        let (long, short) = (server.shares(Lately::Span), server.total(Lately::ShortSpan));
        let rate = |count: u32| f64::from(count) / Server::SHORT_SPAN.as_secs_f64();
        let share = |value: fn(&watari_endings::Shares) -> f64| {
            long.map_or_else(|| "-".to_owned(), |shares| format!("{:.1}", value(&shares) * 100.0))
        };
        let numbers = [
            since(server, self.board.now()),
            server.open().to_string(),
            format!("{:.1}", rate(short.answered)),
            milliseconds(short.response_quantile(0.5)),
            milliseconds(short.response_quantile(0.99)),
            share(|shares| shares.s_normal),
            share(|shares| shares.client_abort),
            share(|shares| shares.timeout),
            short.unanswered.to_string(),
        ];
        let state = Span::styled(shown(server.state()), style(server.state()));
        let names = [Cell::from(address.to_string()), Cell::from(printable(sensor)), Cell::from(state)];
        Row::new(names.into_iter().chain(numbers.map(|number| Cell::from(Text::from(number).right_aligned()))))
    }

    fn details(&self, area: Rect, buffer: &mut Buffer) {
        let Some(entry) = self.servers.get(self.chosen) else {
            let text = "No server has been seen yet.";
            return Paragraph::new(text).dim().render(area, buffer);
        };
        if area.width < PICTURE_WIDTH_MIN {
            return self.facts(entry, area, buffer);
        }
        let [picture, facts] = Layout::horizontal([Constraint::Percentage(50), Constraint::Fill(1)]).areas(area);
        Ternary::new(entry.server, self.board.profile(), self.board.now()).render(picture, buffer);
        self.facts(entry, facts, buffer);
    }

    fn facts(&self, entry: &Entry<'_>, area: Rect, buffer: &mut Buffer) {
        let Entry { sensor, address, server, .. } = entry;
        let areas = Layout::vertical([
            Constraint::Length(3),
            Constraint::Length(3),
            Constraint::Length(3),
            Constraint::Length(3),
            Constraint::Min(3),
        ]);
        let [verdict, opened, answered, unanswered, endings] = areas.areas(area);
        let why = server.evidence().map_or_else(|| "too little happened to say".to_owned(), because);
        let sentence = Line::from(vec![
            Span::from(format!("{address} ")).bold(),
            Span::from(format!("({}) is ", printable(sensor))),
            Span::styled(shown(server.state()), style(server.state())),
            Span::from(format!(": {why}")),
        ]);
        Paragraph::new(sentence).wrap(Wrap { trim: true }).render(verdict, buffer);
        let now_s = self.board.now().0 / 1_000_000_000;
        for (area, name, value) in [
            (opened, "opened a second", (|tally| tally.opened) as fn(&Tally) -> u32),
            (answered, "answered", |tally| tally.answered),
            (unanswered, "got nothing", |tally| tally.unanswered),
        ] {
            bars(name, server, now_s, value, area, buffer);
        }
        Paragraph::new(counted(&server.total(Lately::Span))).wrap(Wrap { trim: true }).render(endings, buffer);
    }
}

impl Widget for &View<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let listed = u16::try_from(self.servers.len() + 1).unwrap_or(u16::MAX).min(area.height / 2).max(2);
        let rows = [Constraint::Length(1), Constraint::Length(listed), Constraint::Length(1), Constraint::Fill(1)];
        let [head, table, _, details] = Layout::vertical(rows).areas(area);
        self.head().render(head, buffer);
        let mut state = TableState::new().with_selected(Some(self.chosen));
        StatefulWidget::render(self.table(), table, buffer, &mut state);
        self.details(details, buffer);
    }
}

/// In less, the picture says nothing.
const PICTURE_WIDTH_MIN: u16 = 60;

const HEADS: [&str; 12] =
    ["server", "sensor", "state", "since", "open", "ans/s", "p50 ms", "p99 ms", "x %", "y %", "z %", "nothing"];

/// The latest seconds as bars, as many as there is room for.
fn bars(name: &'static str, server: &Server, now_s: u64, value: fn(&Tally) -> u32, area: Rect, buffer: &mut Buffer) {
    let [head, bars] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    // The current second would always seem to drop, and connections are counted when they have settled.
    let first = (now_s - now_s.min(1)).saturating_sub(bars.width.into());
    let mut data = vec![0; bars.width.into()];
    for (at_s, tally) in server.window().seconds() {
        if let Some(bar) = at_s.checked_sub(first).and_then(|at| data.get_mut(at as usize)) {
            *bar = value(tally).into();
        }
    }
    let last = data.last().copied().unwrap_or(0);
    Line::from(name).dim().render(head, buffer);
    Line::from(last.to_string()).bold().right_aligned().render(head, buffer);
    Sparkline::default().data(data).style(Style::new().cyan()).render(bars, buffer);
}

/// How connections ended, those of which there were any.
fn counted(tally: &Tally) -> Line<'static> {
    let counts = Ending::ALL.into_iter().map(|ending| (ending, tally.ending(ending)));
    let mut words: Vec<_> = counts.filter(|(_, count)| *count > 0).map(|(e, count)| format!("{e} {count}")).collect();
    if tally.tls_full + tally.tls_resumed > 0 {
        words.push(format!("TLS {} full, {} resumed", tally.tls_full, tally.tls_resumed));
    }
    Line::from(words.join("  "))
}

fn since(server: &Server, now: Timestamp) -> String {
    let Some(verdict) = server.verdict() else { return "-".to_owned() };
    let seconds = now.since(verdict.since).as_secs();
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Those that somebody must look at stand out without colours, too.
fn shown(state: ServerState) -> String {
    match state {
        ServerState::Idle | ServerState::Normal => state.as_str().to_owned(),
        ServerState::Saturated | ServerState::Stopped => state.as_str().to_uppercase(),
    }
}

const fn style(state: ServerState) -> Style {
    match state {
        ServerState::Idle => Style::new().add_modifier(ratatui::style::Modifier::DIM),
        ServerState::Normal => Style::new().fg(Color::Green),
        ServerState::Saturated => Style::new().fg(Color::Yellow),
        ServerState::Stopped => Style::new().fg(Color::Red),
    }
}

fn servers(count: usize) -> String {
    if count == 1 { "1 server".to_owned() } else { format!("{count} servers") }
}

fn milliseconds(time: Option<Duration>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| format!("{:.1}", time.as_secs_f64() * 1e3))
}

/// Names come from elsewhere, and must not command the terminal.
fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests;
