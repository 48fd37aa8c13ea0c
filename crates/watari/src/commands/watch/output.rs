//! Output about captures.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;

use serde::Serialize;
use watari_endings::{Connection, Ending, Request, Tally};
use watari_watch::batch::{Sink, Summary};
use watari_watch::rows::{ConnectionRow, RequestRow};
use watari_watch::spans::{Span, SpanRow, because};

use crate::failure::Failure;
use crate::table::Table;

/// The format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    Json,
    Csv,
    /// No rows at all.
    Nothing,
}

/// The subject of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Connections,
    Requests,
    Spans,
}

/// Prints the results of an analysis.
pub(super) struct Output<W: Write> {
    what: What,
    rows: Rows<W>,
}

enum Rows<W: Write> {
    Text { out: BufWriter<W>, spans: Vec<Span> },
    Json(BufWriter<W>),
    Csv(Box<csv::Writer<W>>),
    Nothing,
}

/// An output that prints to `out`.
pub(super) fn sink<W: Write>(format: Format, what: What, out: W) -> Result<Output<W>, Failure> {
    let rows = match format {
        Format::Text if what == What::Spans => Rows::Text { out: BufWriter::new(out), spans: Vec::new() },
        Format::Text if what == What::Requests => {
            return Err(Failure::Usage("--requests needs --json or --csv".to_owned()));
        }
        Format::Text => Rows::Text { out: BufWriter::new(out), spans: Vec::new() },
        Format::Json => Rows::Json(BufWriter::new(out)),
        Format::Csv if what == What::Spans => {
            return Err(Failure::Usage("--states has no CSV format: use --json, or neither".to_owned()));
        }
        Format::Csv => Rows::Csv(Box::new(csv::Writer::from_writer(out))),
        Format::Nothing => Rows::Nothing,
    };
    Ok(Output { what, rows })
}

impl<W: Write> Sink for Output<W> {
    type Error = Failure;

    fn connection(&mut self, connection: &Connection) -> Result<(), Failure> {
        if self.what == What::Connections { self.rows.print(&ConnectionRow::new(connection)) } else { Ok(()) }
    }

    fn request(&mut self, request: &Request) -> Result<(), Failure> {
        if self.what == What::Requests { self.rows.print(&RequestRow::new(request)) } else { Ok(()) }
    }

    fn span(&mut self, span: &Span) -> Result<(), Failure> {
        match &mut self.rows {
            Rows::Text { spans, .. } => {
                spans.push(span.clone());
                Ok(())
            }
            rows if self.what == What::Spans => rows.print(&SpanRow::from(span)),
            _ => Ok(()),
        }
    }
}

impl<W: Write> Output<W> {
    /// Writes all that is buffered, for readers that follow the output.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        let flushed = match &mut self.rows {
            Rows::Text { out, .. } | Rows::Json(out) => out.flush(),
            Rows::Csv(out) => out.flush(),
            Rows::Nothing => Ok(()),
        };
        flushed.map_err(Failure::Output)
    }

    /// Prints the parts that are complete only at the end.
    pub(super) fn finish(self, summary: &Summary) -> Result<(), Failure> {
        match self.rows {
            Rows::Text { mut out, spans } => {
                if self.what == What::Connections {
                    write!(out, "{}\n{}\n", overview(summary), servers(&summary.servers)).map_err(Failure::Output)?;
                }
                write!(out, "{}", verdicts(spans)).and_then(|()| out.flush()).map_err(Failure::Output)
            }
            Rows::Json(mut out) => out.flush().map_err(Failure::Output),
            Rows::Csv(mut out) => out.flush().map_err(Failure::Output),
            Rows::Nothing => Ok(()),
        }
    }
}

impl<W: Write> Rows<W> {
    fn print(&mut self, row: &impl Serialize) -> Result<(), Failure> {
        match self {
            Self::Json(out) => serde_json::to_writer(&mut *out, row)
                .map_err(io::Error::from)
                .and_then(|()| out.write_all(b"\n"))
                .map_err(Failure::Output),
            Self::Csv(out) => out.serialize(row).map_err(|error| Failure::Output(csv_error(error))),
            Self::Text { .. } | Self::Nothing => Ok(()),
        }
    }
}

/// Serialization of rows does not fail, so only writing can.
fn csv_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// Counts of the capture, in a few lines.
fn overview(summary: &Summary) -> String {
    let mut lines = vec![match summary.span {
        Some((first, last)) => {
            let frames = summary.frames.all();
            let seconds = last.since(first).as_secs_f64();
            format!("{frames} packets in {seconds:.3} s from {}", moment(first.0))
        }
        None => "no packets".to_owned(),
    }];
    lines.extend(summary.frames.reasons().map(|(other, count)| format!("{count} not followed: {other}")));
    let counts = summary.counts;
    for (count, what) in [
        (counts.stray, "packets belong to no connection"),
        (counts.evicted, "connections, half open or seen from one side only, were dropped to follow others"),
        (counts.untracked, "packets of connections that were not followed: --connections-max is reached"),
        (summary.uncounted, "events at more servers than are judged"),
    ] {
        if count > 0 {
            lines.push(format!("{count} {what}"));
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

/// How the connections of each server ended.
fn servers(servers: &BTreeMap<SocketAddr, Tally>) -> Table {
    let mut table = Table::new(&SERVER_HEADS).leaving_out(&SERVER_DISPENSABLE);
    let mut servers: Vec<_> = servers.iter().collect();
    servers.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.closed()));
    for (server, tally) in servers.into_iter().take(SERVERS_SHOWN) {
        let mut cells = [const { String::new() }; SERVER_HEADS.len()];
        cells[0] = server.to_string();
        for (cell, ending) in cells[1..].iter_mut().zip(Ending::ALL) {
            *cell = tally.ending(ending).to_string();
        }
        cells[10] = tally.answered.to_string();
        for (cell, quantile) in cells[11..].iter_mut().zip([0.5, 0.99]) {
            let time = tally.response_quantile(quantile);
            *cell = time.map_or_else(|| "-".into(), |time| format!("{:.3}", time.as_secs_f64() * 1e3));
        }
        table.row(cells);
    }
    table
}

const SERVER_HEADS: [&str; 13] = [
    "server",
    "S_NORMAL",
    "C_NORMAL",
    "C_RESET",
    "S_RESET",
    "TIMEOUT",
    "REFUSED",
    "NO_ANSWER",
    "OPEN",
    "BACKSCATTER",
    "answered",
    "p50_ms",
    "p99_ms",
];

/// Columns that a narrow terminal has no room for, the least important first.
const SERVER_DISPENSABLE: [&str; 9] =
    ["BACKSCATTER", "OPEN", "p50_ms", "answered", "p99_ms", "NO_ANSWER", "S_RESET", "REFUSED", "C_NORMAL"];

/// The most servers that the table lists. JSON has all.
const SERVERS_SHOWN: usize = 50;

/// Spans of time, server by server.
fn verdicts(mut spans: Vec<Span>) -> Table {
    spans.sort_by_key(|span| (span.server, span.from));
    let mut table = Table::new(&["server", "from", "to", "state", "x_%", "y_%", "z_%", "because"])
        .leaving_out(&["x_%", "y_%", "z_%", "to"]);
    for span in &spans {
        let shares = span.total.shares();
        let share = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{:.1}", value * 100.0));
        table.row([
            span.server.to_string(),
            moment(span.from.0),
            moment(span.to.0),
            span.state.as_str().to_owned(),
            share(shares.map(|shares| shares.s_normal)),
            share(shares.map(|shares| shares.client_abort)),
            share(shares.map(|shares| shares.timeout)),
            span.evidence.as_ref().map_or_else(|| "too few connections to judge".to_owned(), because),
        ]);
    }
    table
}

/// Date and time of day, in UTC.
pub(super) fn moment(nanoseconds: u64) -> String {
    use time::format_description::well_known::Rfc3339;
    let seconds = i64::try_from(nanoseconds / 1_000_000_000).unwrap_or(i64::MAX);
    let moment = time::OffsetDateTime::from_unix_timestamp(seconds).ok();
    moment.and_then(|moment| moment.format(&Rfc3339).ok()).unwrap_or_else(|| seconds.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use watari_endings::{Evidence, Reason, ServerState};
    use watari_packets::Timestamp;

    use super::*;

    /// A server whose connections ended in all ways, with numbers of seven digits.
    fn busy(server: &str) -> (SocketAddr, Tally) {
        let mut tally = Tally { answered: 7_654_321, ..Tally::default() };
        tally.endings.fill(1_234_567);
        tally.responses.0[9] = 7_654_321;
        tally.response_max_us = 98_765_432;
        (server.parse().unwrap(), tally)
    }

    fn widest(table: &str) -> usize {
        table.lines().map(|line| line.chars().count()).max().unwrap()
    }

    #[test]
    fn the_table_of_endings_fits_80_columns_with_whole_numbers() {
        let narrow = servers(&[busy("192.0.2.101:8443")].into()).for_width(80).to_string();
        let expected = "\
server            S_NORMAL  C_NORMAL  C_RESET  S_RESET  TIMEOUT  REFUSED
192.0.2.101:8443   1234567   1234567  1234567  1234567  1234567  1234567
";
        assert!(narrow.starts_with(expected), "{narrow}");
        assert!(widest(&narrow) <= 80, "{narrow}");
        let longest = servers(&[busy("[2001:db8:1111:2222:3333:4444:5555:6666]:65535")].into()).for_width(80);
        let longest = longest.to_string();
        assert!(widest(&longest) <= 80 && longest.contains("  C_RESET  TIMEOUT\n"), "{longest}");
    }

    #[test]
    fn the_table_of_states_fits_80_columns() {
        let span = |server: &str| Span {
            server: server.parse().unwrap(),
            from: Timestamp(1_700_000_000_000_000_000),
            to: Timestamp(1_700_000_060_000_000_000),
            state: ServerState::Saturated,
            total: Tally { s_normal: 3, client_abort: 1, ..Tally::default() },
            evidence: Some(Evidence {
                reason: Reason::AbortsAndTimeouts,
                value: 0.25,
                limit: 0.125,
                span: Duration::from_mins(1),
                shares: None,
                tally: Tally::default(),
            }),
        };
        let table = verdicts(vec![span("192.0.2.101:8443"), span("[2001:db8::1]:443")]).for_width(80).to_string();
        assert!(widest(&table) <= 80, "{table}");
        assert!(table.contains("2023-11-14T22:13:20Z  saturated  25.0 % of ended"), "{table}");
    }
}
