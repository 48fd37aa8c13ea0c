//! The list of servers. A narrow terminal has no room for all columns. Whole columns are left out, the least important
//! first, because a number with a missing digit is another number.

use std::collections::BTreeSet;
use std::time::Duration;

use ratatui::layout::{Alignment, Constraint};
use ratatui::style::Style;
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Row, Table};

use super::format::{milliseconds, percent, rate, shown, since, style};
use super::text::{broken, printable, shortened, width_of};
use crate::board::Entry;

/// A column of the list.
struct Column {
    head: &'static str,
    /// The least width in cells, so that columns do not change with each digit.
    width_min: usize,
    is_number: bool,
    text: fn(&Entry<'_>) -> String,
}

const COLUMNS: [Column; 12] = [
    Column { head: "server", width_min: 0, is_number: false, text: |it| it.address.to_string() },
    Column { head: "sensor", width_min: 0, is_number: false, text: |it| shortened(&printable(it.sensor), NAME_MAX) },
    Column { head: "state", width_min: 9, is_number: false, text: |it| shown(it.server.state()) },
    Column { head: "since", width_min: 8, is_number: true, text: since },
    Column { head: "open", width_min: 5, is_number: true, text: |it| it.open.to_string() },
    Column { head: "ans/s", width_min: 7, is_number: true, text: |it| rate(it, it.recent.tally.answered) },
    Column { head: "p50 ms", width_min: 7, is_number: true, text: |it| quantile(it, 0.5) },
    Column { head: "p99 ms", width_min: 7, is_number: true, text: |it| quantile(it, 0.99) },
    Column { head: "X %", width_min: 5, is_number: true, text: |it| percent(it.shares.map(|it| it.s_normal)) },
    Column { head: "Y %", width_min: 5, is_number: true, text: |it| percent(it.shares.map(|it| it.client_abort)) },
    Column { head: "Z %", width_min: 5, is_number: true, text: |it| percent(it.shares.map(|it| it.timeout)) },
    Column { head: "unans/s", width_min: 7, is_number: true, text: |it| rate(it, it.recent.tally.unanswered) },
];

/// Groups of columns that are shown together or not at all, the most important first.
const IMPORTANT: [&[usize]; 10] = [&[0], &[2], &[5], &[8, 9, 10], &[4], &[3], &[7], &[11], &[6], &[SENSOR]];
const SENSOR: usize = 1;
const STATE: usize = 2;
/// The most characters of a sensor's name, which may be longer than a line.
const NAME_MAX: usize = 24;
const GAP: usize = 1;

/// The list, `width` cells wide.
pub(super) fn table(servers: &[Entry<'_>], width: u16) -> Table<'static> {
    let texts: Vec<_> = servers.iter().map(|entry| COLUMNS.each_ref().map(|column| (column.text)(entry))).collect();
    let widths: [usize; COLUMNS.len()] = std::array::from_fn(|at| {
        let texts = texts.iter().map(|texts| width_of(&texts[at]));
        texts.max().unwrap_or(0).max(COLUMNS[at].head.len()).max(COLUMNS[at].width_min)
    });
    let sensors: BTreeSet<_> = servers.iter().map(|entry| entry.sensor).collect();
    let kept = kept(&widths, width.into(), sensors.len() > 1);
    let constraints = kept.iter().map(|at| Constraint::Length(u16::try_from(widths[*at]).unwrap_or(u16::MAX)));
    let heads = kept.iter().map(|at| Cell::from(aligned(COLUMNS[*at].head, &COLUMNS[*at])));
    let rows = servers.iter().zip(&texts).map(|(entry, texts)| row(entry, texts, &kept, width.into()));
    Table::new(rows, constraints)
        .column_spacing(GAP as u16)
        .header(Row::new(heads).style(Style::new().dim()))
        .row_highlight_style(Style::new().reversed())
}

/// The columns that fit, in their order. The first is always shown.
fn kept(widths: &[usize], width: usize, has_sensors: bool) -> BTreeSet<usize> {
    let mut order: Vec<_> = IMPORTANT.to_vec();
    if has_sensors {
        // The column of sensors stays if several sensors see the same server.
        order.retain(|group| *group != [SENSOR]);
        order.insert(2, &[SENSOR]);
    }
    let (mut kept, mut used) = (BTreeSet::new(), 0);
    for group in order {
        let gaps = if kept.is_empty() { group.len() - 1 } else { group.len() } * GAP;
        let wanted = group.iter().map(|at| widths[*at]).sum::<usize>() + gaps;
        if kept.is_empty() || used + wanted <= width {
            used += wanted;
            kept.extend(group);
        }
    }
    kept
}

fn row(entry: &Entry<'_>, texts: &[String], kept: &BTreeSet<usize>, width: usize) -> Row<'static> {
    // An address alone may be wider than the terminal.
    let address = broken(&texts[0], width.max(1));
    let height = u16::try_from(address.len()).unwrap_or(1);
    let has_state = kept.contains(&STATE);
    let cells = kept.iter().map(|at| match *at {
        0 => {
            let lines: Text<'_> = address.iter().cloned().collect();
            Cell::from(if has_state { lines } else { lines.style(style(entry.server.state())) })
        }
        STATE => Cell::from(aligned(&texts[STATE], &COLUMNS[STATE])).style(style(entry.server.state())),
        at => Cell::from(aligned(&texts[at], &COLUMNS[at])),
    });
    Row::new(cells).height(height)
}

fn aligned(text: &str, column: &Column) -> Line<'static> {
    Line::from(text.to_owned()).alignment(if column.is_number { Alignment::Right } else { Alignment::Left })
}

fn quantile(entry: &Entry<'_>, share: f64) -> String {
    milliseconds(entry.recent.tally.response_quantile(share).map(|time: Duration| time.as_secs_f64() * 1e3))
}
