//! A summary as text.

use std::collections::BTreeMap;
use std::fmt;

use watari_bench_engine::ending::EndingKind;

use super::rows::{PARTS_HEADS, TIMES_HEADS};
use super::{EndingCount, EndingCounts, PartSummary, Summary, WorkerSummary, float};
use crate::grid::Column::{Left, Right};
use crate::grid::{Grid, shown};

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = &self.total;
        head(f, total)?;
        for note in self.notes() {
            writeln!(f, "{note}")?;
        }
        workers(f, &self.run.workers)?;
        write!(f, "\n{}", endings(&total.endings, &total.endings_at, total.requests))?;
        write!(f, "\n{}", table(TIMES_HEADS, self.times()))?;
        write!(f, "\n{}", table(PARTS_HEADS, self.parts()))?;
        writeln!(f)?;
        tls(f, total)?;
        connections(f, total)
    }
}

fn head(f: &mut fmt::Formatter<'_>, total: &PartSummary) -> fmt::Result {
    writeln!(
        f,
        "{} requests in {:.2} s: {:.1}/s succeeded, {}/s of bodies",
        total.requests,
        total.seconds,
        total.requests_per_s,
        bytes(total.bytes_per_s)
    )?;
    line(f, "status", &total.status)?;
    failures(f, total)
}

/// The line about failed requests, by status and by ending.
fn failures(f: &mut fmt::Formatter<'_>, total: &PartSummary) -> fmt::Result {
    if total.failed == 0 {
        return writeln!(f, "no request failed");
    }
    let kinds = EndingKind::ALL.into_iter().filter(|kind| *kind != EndingKind::Normal);
    let kinds = kinds.map(|kind| (kind.name(), total.endings.of(kind)));
    let ways = [("status", total.error_statuses)].into_iter().chain(kinds).filter(|(_, count)| *count > 0);
    let ways: Vec<_> = ways.map(|(way, count)| format!("{way} {count}")).collect();
    writeln!(f, "failed: {} ({}): {}", total.failed, percent(total.failed, total.requests), ways.join(", "))
}

/// A line for each worker, if there are any.
fn workers(f: &mut fmt::Formatter<'_>, workers: &[WorkerSummary]) -> fmt::Result {
    for worker in workers {
        let WorkerSummary { name, requests, begun_after_ms, start_error_us, lost } = worker;
        write!(f, "{name}: {requests} requests, began after {begun_after_ms} ms (error at most {start_error_us} us)")?;
        match lost {
            Some(why) => writeln!(f, ", LOST: {why}")?,
            None => writeln!(f)?,
        }
    }
    Ok(())
}

/// A row for each kind of ending that occurred, and for NORMAL.
fn endings(counts: &EndingCounts, at: &[EndingCount], of: u64) -> Grid {
    let mut grid = Grid::new(vec![Left("ending"), Right("requests"), Right("share"), Left("in phase (by side)")]);
    for kind in EndingKind::ALL {
        let count = counts.of(kind);
        if count > 0 || kind == EndingKind::Normal {
            grid.row([kind.name().to_owned(), count.to_string(), percent(count, of), phases(kind, at)]);
        }
    }
    grid
}

/// The phases and sides of failures. Empty for NORMAL, for which they give no further information.
fn phases(kind: EndingKind, at: &[EndingCount]) -> String {
    if kind == EndingKind::Normal {
        return String::new();
    }
    let phases = at.iter().filter(|row| row.kind == kind.name());
    phases.map(|row| format!("{} ({}) {}", row.phase, row.side, row.count)).collect::<Vec<_>>().join(", ")
}

/// A table with names in the first column, and figures in the others.
fn table<const N: usize>(heads: [&'static str; N], rows: Vec<[String; N]>) -> Grid {
    let columns = heads.into_iter().enumerate().map(|(at, head)| if at == 0 { Left(head) } else { Right(head) });
    let mut grid = Grid::new(columns.collect());
    for row in rows {
        grid.row(row);
    }
    grid
}

fn tls(f: &mut fmt::Formatter<'_>, total: &PartSummary) -> fmt::Result {
    let tls = &total.tls;
    if tls.full == 0 && tls.resumed == 0 {
        return Ok(());
    }
    writeln!(f, "TLS handshakes: {} full, {} resumed", tls.full, tls.resumed)?;
    line(f, "  version", &tls.versions)?;
    line(f, "  suite", &tls.suites)?;
    line(f, "  group", &tls.groups)?;
    line(f, "  server's key", &tls.keys)?;
    line(f, "  ALPN", &tls.alpn)
}

fn connections(f: &mut fmt::Formatter<'_>, total: &PartSummary) -> fmt::Result {
    let connections = &total.connections;
    writeln!(
        f,
        "connections: {} opened, {} read, {} written",
        connections.opened,
        bytes(float(connections.bytes_read)),
        bytes(float(connections.bytes_written))
    )?;
    for kind in EndingKind::ALL.into_iter().skip(1).filter(|kind| connections.endings.of(*kind) > 0) {
        let count = connections.endings.of(kind);
        writeln!(f, "  {} {count}: {}", kind.name(), phases(kind, &connections.endings_at))?;
    }
    Ok(())
}

/// Writes `name: a 3, b 4`. Writes nothing if `counts` is empty.
fn line(f: &mut fmt::Formatter<'_>, name: &str, counts: &BTreeMap<String, u64>) -> fmt::Result {
    if counts.is_empty() {
        return Ok(());
    }
    let counts: Vec<_> = counts.iter().map(|(what, count)| format!("{} {count}", shown(what))).collect();
    writeln!(f, "{name}: {}", counts.join(", "))
}

/// Rounded down, so that with one failure among millions the share of NORMAL is not 100%.
fn percent(count: u64, of: u64) -> String {
    let thousandths = u128::from(count) * 100_000 / u128::from(of.max(1));
    format!("{}.{:03}%", thousandths / 1_000, thousandths % 1_000)
}

fn bytes(count: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{value:.1} {}", units[unit]) }
}
