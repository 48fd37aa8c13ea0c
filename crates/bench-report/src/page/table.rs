//! The figures as tables.

use std::collections::BTreeMap;

use askama::Template;
use askama::filters::HtmlSafe;
use watari_bench_engine::ending::EndingKind;

use crate::grid::shown;
use crate::summary::rows::{PARTS_HEADS, TIMES_HEADS};
use crate::summary::{EndingCount, PartSummary, SeriesSummary, Summary, WorkerSummary, float};

/// A table. Its first columns contain words, and all others numbers.
#[derive(Template)]
#[template(path = "table.html")]
pub(super) struct Table {
    caption: &'static str,
    heads: &'static [&'static str],
    words: usize,
    rows: Vec<Vec<String>>,
}

/// The template escapes the fields.
impl HtmlSafe for Table {}

/// All tables that have rows, except that of the course.
pub(super) fn of_run(summary: &Summary) -> Vec<Table> {
    let total = &summary.total;
    let tables = [
        endings("How requests ended", &total.endings_at),
        figures("Times", &TIMES_HEADS, summary.times()),
        figures("Split by family, handshake and class", &PARTS_HEADS, summary.parts()),
        endings("How connections ended", &total.connections.endings_at),
        tls(total),
        statuses(total),
        workers(&summary.run.workers),
    ];
    tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

/// The course; `None` without intervals.
pub(super) fn of_course(series: &SeriesSummary) -> Option<Table> {
    let rows = series.points.iter().enumerate().map(|(index, point)| {
        let counts = EndingKind::ALL.map(|kind| point.endings.of(kind));
        let failed = counts[1..].iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
        let start = (index as u64).saturating_mul(series.interval_s);
        let counts = [start, counts[0], failed, point.opened, point.full, point.resumed].map(|count| count.to_string());
        let times = [point.p50_ms, point.p99_ms, point.max_ms].map(|ms| format!("{ms:.3}"));
        counts.into_iter().chain(times).collect()
    });
    let heads = &["from, s", "NORMAL", "failed", "connections", "full", "resumed", "p50, ms", "p99, ms", "longest, ms"];
    let table = Table { caption: "Intervals of the run", heads, words: 1, rows: rows.collect() };
    (!table.rows.is_empty()).then_some(table)
}

fn endings(caption: &'static str, at: &[EndingCount]) -> Table {
    let all: f64 = at.iter().map(|row| float(row.count)).sum();
    let row = |row: &EndingCount| {
        let share = format!("{:.4}%", 100.0 * float(row.count) / all.max(1.0));
        vec![shown(&row.kind), shown(&row.phase), shown(&row.side), row.count.to_string(), share]
    };
    let heads = &["ending", "in phase", "by", "count", "share"];
    Table { caption, heads, words: 3, rows: at.iter().map(row).collect() }
}

fn figures<const N: usize>(caption: &'static str, heads: &'static [&'static str; N], rows: Vec<[String; N]>) -> Table {
    let row = |row: [String; N]| row.iter().map(|cell| shown(cell.trim_start())).collect();
    Table { caption, heads, words: 1, rows: rows.into_iter().map(row).collect() }
}

fn tls(total: &PartSummary) -> Table {
    let tls = &total.tls;
    let groups = [
        ("version", &tls.versions),
        ("cipher suite", &tls.suites),
        ("group", &tls.groups),
        ("server's key", &tls.keys),
        ("ALPN", &tls.alpn),
    ];
    let rows = groups.into_iter().flat_map(|(what, counts)| counted(what, counts)).collect();
    Table { caption: "Results of TLS handshakes", heads: &["property", "value", "handshakes"], words: 2, rows }
}

fn statuses(total: &PartSummary) -> Table {
    let rows = total.status.iter().map(|(status, count)| vec![shown(status), count.to_string()]);
    Table { caption: "Statuses", heads: &["status", "responses"], words: 1, rows: rows.collect() }
}

fn workers(workers: &[WorkerSummary]) -> Table {
    let row = |worker: &WorkerSummary| {
        let lost = worker.lost.as_deref().map_or_else(|| "done".to_owned(), |why| shown(&format!("lost: {why}")));
        let figures = [worker.requests, worker.begun_after_ms, worker.start_error_us].map(|figure| figure.to_string());
        [shown(&worker.name), lost].into_iter().chain(figures).collect()
    };
    let heads = &["worker", "state", "requests", "began after, ms", "error at most, us"];
    Table { caption: "Workers", heads, words: 2, rows: workers.iter().map(row).collect() }
}

fn counted(what: &str, counts: &BTreeMap<String, u64>) -> impl Iterator<Item = Vec<String>> {
    counts.iter().map(move |(name, count)| vec![what.to_owned(), shown(name), count.to_string()])
}
