//! What the page and the document show of a run, as rows and columns. Missing values are `-`.

use std::collections::BTreeMap;

use crate::catalogue;
use crate::experiment::Printed;
use crate::output::folder::Runs;
use crate::output::plots::sorted;
use crate::output::text::{NONE, measured, or_none, percent, printed, with_range};
use crate::result::{Entry, FigureResult, RatioResult, RunResult, Verdict};
use crate::verdict::agreeing_rounds;

/// How to read the tables: a paragraph each.
pub(super) const LEGEND: [&str; 3] = [
    "The verdicts are about shapes and ratios. They are not about absolute rates, because the papers used other machines. \
     The columns `paper` have numbers that the paper prints, and ratios of such numbers. The columns `ours` have the median \
     of the rounds, and the least and the largest value. A missing value is `-`.",
    "The verdict is that of the median. In brackets is the number of rounds that alone would have it: a verdict that some of \
     them do not have depends on chance. reproduced: ours is as near to the paper's as `required` says, and within its \
     limits. exceeded: ours is better than that. differs: it is neither, and the reason stands beside it, if it is known. \
     impossible: this machine cannot measure it, and the reason stands beside it. A ratio without a paper's number is \
     reproduced if it is within its limits. The reasons of Watari's own experiments are about the runs in its repository.",
    "The spread is the largest minus the least value of all rounds, divided by the median. In brackets is the spread of the \
     speeds of the processor, by fixed work in the same trials: a ratio of equal rates would have that spread. It is 0 if \
     both values are from the same trial.",
];

pub(super) struct Table {
    pub(super) caption: String,
    pub(super) heads: Vec<Head>,
    pub(super) rows: Vec<Vec<String>>,
    /// Texts to which rows refer: `Note 1`.
    pub(super) notes: Vec<String>,
}

pub(super) struct Head {
    pub(super) name: &'static str,
    pub(super) is_number: bool,
}

/// All runs, and those that are unreadable at the end.
pub(super) fn overview(runs: &Runs) -> Table {
    let readable = runs.runs.iter().map(|run| overview_row(&run.result));
    let unreadable = runs.unreadable.iter().map(|run| {
        let start = [run.name(), NONE.to_owned(), NONE.to_owned(), "unreadable".to_owned()];
        start.into_iter().chain([NONE; 4].map(str::to_owned)).collect()
    });
    let heads = [
        word("experiment"),
        word("title"),
        word("paper"),
        word("verdict"),
        word("rows"),
        word("run"),
        number("rounds"),
        word("date"),
    ];
    Table {
        caption: "Experiments".to_owned(),
        heads: heads.into(),
        rows: readable.chain(unreadable).collect(),
        notes: Vec::new(),
    }
}

/// A sentence about the experiments of this program that have no run, if there are any.
pub(super) fn without_runs(runs: &Runs) -> Option<String> {
    let has_run = |name: &String| runs.runs.iter().any(|run| run.result.name == *name);
    let names = catalogue::all().unwrap_or_default().into_iter().map(|experiment| experiment.name);
    let names: Vec<_> = names.filter(|name| !has_run(name)).collect();
    (!names.is_empty()).then(|| format!("Experiments without a run: {}.", names.join(", ")))
}

fn overview_row(run: &RunResult) -> Vec<String> {
    let mut kind = if run.quick { "quick" } else { "full" }.to_owned();
    if !run.changes.is_empty() {
        kind.push_str(", changed");
    }
    vec![
        run.name.clone(),
        or_none(&run.title),
        paper(run.paper.as_deref()),
        run.verdict.to_string(),
        counts(&run.entries),
        kind,
        run.rounds.to_string(),
        or_none(run.started.get(..10).unwrap_or(&run.started)),
    ]
}

/// How many rows have each verdict.
fn counts(entries: &[Entry]) -> String {
    let all = [Verdict::Reproduced, Verdict::Exceeded, Verdict::Differs, Verdict::Impossible];
    let counts = all.map(|verdict| (entries.iter().filter(|entry| entry.verdict == verdict).count(), verdict));
    let counts =
        counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, verdict)| format!("{count} {verdict}"));
    or_none(&counts.collect::<Vec<_>>().join(", "))
}

/// All tables of a run that have rows, except that of its versions.
pub(super) fn of_run(run: &RunResult) -> Vec<Table> {
    let tables = [ratios(run)].into_iter().chain(run.figures.iter().map(figure)).chain([
        entries(run),
        printed_figures(run),
        delays(run),
    ]);
    tables.filter(|table| !table.rows.is_empty()).collect()
}

pub(super) fn versions(run: &RunResult) -> Table {
    let rows = run.versions.iter().map(|(name, version)| vec![or_none(name), or_none(version)]);
    let heads = vec![word("program"), word("version")];
    Table { caption: "Versions".to_owned(), heads, rows: rows.collect(), notes: Vec::new() }
}

fn ratios(run: &RunResult) -> Table {
    let heads = [
        word("ratio"),
        word("source"),
        number("paper"),
        number("ours"),
        number("spread (of the processor)"),
        word("peers"),
        word("required"),
        word("verdict"),
        word("why"),
    ];
    let notes = notes(run);
    let rows = run.ratios.iter().map(|(name, ratio)| ratio_row(name, ratio, &notes)).collect();
    let notes = notes.into_iter().map(str::to_owned).collect();
    Table { caption: "Ratios".to_owned(), heads: heads.into(), rows, notes }
}

/// The reasons that several ratios have.
fn notes(run: &RunResult) -> Vec<&str> {
    let reasons = || run.ratios.values().flat_map(|ratio| [&ratio.because, &ratio.spread_because]);
    let mut notes = Vec::new();
    for reason in reasons().filter(|reason| !reason.is_empty()) {
        if reasons().filter(|other| *other == reason).count() > 1 && !notes.contains(&reason.as_str()) {
            notes.push(reason);
        }
    }
    notes
}

fn ratio_row(name: &str, ratio: &RatioResult, notes: &[&str]) -> Vec<String> {
    vec![
        or_none(name),
        or_none(&ratio.source),
        printed(ratio.paper),
        with_range(ratio.ours, &ratio.values),
        spread(ratio),
        peers(&ratio.peers),
        required(ratio),
        verdict(ratio),
        why(ratio, notes),
    ]
}

/// The verdict, and how many of the rounds have it.
fn verdict(ratio: &RatioResult) -> String {
    match ratio.values.len() {
        0 | 1 => ratio.verdict.to_string(),
        rounds => format!("{} ({} of {rounds})", ratio.verdict, agreeing_rounds(ratio)),
    }
}

/// The spread of a ratio, and what the speed of the processor alone does to it.
fn spread(ratio: &RatioResult) -> String {
    let both = |_| format!("{} ({})", percent(ratio.spread), percent(ratio.speed_spread));
    ratio.spread.map_or(NONE.to_owned(), both)
}

/// Why it differs, and why its spread is large.
fn why(ratio: &RatioResult, notes: &[&str]) -> String {
    let short = |reason: &String| match notes.iter().position(|note| note == reason) {
        Some(number) => format!("Note {}.", number + 1),
        None => reason.clone(),
    };
    let because = Some(short(&ratio.because)).filter(|because| !because.is_empty());
    let spread = Some(short(&ratio.spread_because)).filter(|spread| !spread.is_empty());
    let spread = spread.map(|spread| format!("Spread: {spread}"));
    or_none(&because.into_iter().chain(spread).collect::<Vec<_>>().join(" "))
}

fn peers(peers: &BTreeMap<String, Option<f64>>) -> String {
    let one = |(name, value): (&String, &Option<f64>)| format!("{name} {}", measured(*value));
    or_none(&peers.iter().map(one).collect::<Vec<_>>().join("; "))
}

/// How near to the paper's value ours has to be, and its limits.
fn required(ratio: &RatioResult) -> String {
    let near = ratio.paper.map(|_| format!("within {} %", measured(Some(ratio.tolerance * 100.0))));
    let limits = [ratio.at_least.map(|limit| ("at least", limit)), ratio.at_most.map(|limit| ("at most", limit))];
    let limits = limits.into_iter().flatten().map(|(word, limit)| format!("{word} {}", printed(Some(limit))));
    or_none(&near.into_iter().chain(limits).collect::<Vec<_>>().join(", "))
}

fn figure(figure: &FigureResult) -> Table {
    let unit = if figure.unit.is_empty() { String::new() } else { format!(", {}", figure.unit) };
    let source = if figure.source.is_empty() { String::new() } else { format!(" ({})", figure.source) };
    let rows = sorted(figure)
        .into_iter()
        .map(|row| vec![or_none(&row.title), printed(row.paper), with_range(row.median, &row.values)]);
    let heads = vec![word("variant"), number("paper"), number("ours: median (least to largest)")];
    Table { caption: format!("{}{unit}{source}", figure.name), heads, rows: rows.collect(), notes: Vec::new() }
}

fn entries(run: &RunResult) -> Table {
    let row = |entry: &Entry| {
        let verdict = entry.verdict.as_str();
        // The table of ratios has the reasons of these.
        let is_stated = run.ratios.values().any(|ratio| ratio.because == entry.why);
        let why =
            if is_stated || entry.why.is_empty() { verdict.to_owned() } else { format!("{verdict} ({})", entry.why) };
        vec![or_none(&entry.source), why]
    };
    let heads = vec![word("row"), word("verdict")];
    Table {
        caption: if run.paper.is_some() { "Rows of the paper" } else { "Rows" }.to_owned(),
        heads,
        rows: run.entries.iter().map(row).collect(),
        notes: Vec::new(),
    }
}

/// Figures of other papers.
fn printed_figures(run: &RunResult) -> Table {
    let row = |figure: &Printed| vec![or_none(&figure.paper), or_none(&figure.text), or_none(&figure.ours)];
    let heads = vec![word("paper"), word("its own figure, not measured here"), word("ours")];
    let rows = run.printed.iter().map(row).collect();
    Table { caption: "Figures of other papers".to_owned(), heads, rows, notes: Vec::new() }
}

pub(super) fn deviations_heading(run: &RunResult) -> &'static str {
    if run.paper.is_some() { "Deviations from the paper" } else { "Deviations" }
}

fn delays(run: &RunResult) -> Table {
    let rows = run
        .delays
        .iter()
        .map(|delay| vec![or_none(&delay.router), printed(Some(delay.set_ms)), measured(Some(delay.measured_ms))]);
    let heads = vec![word("router"), number("set, ms"), number("measured, ms")];
    Table {
        caption: "Round trips through delay routers, before the run".to_owned(),
        heads,
        rows: rows.collect(),
        notes: Vec::new(),
    }
}

/// One line about how the run was done.
pub(super) fn circumstances(run: &RunResult) -> String {
    let kind = if run.quick { "A quick run, with fewer rounds and smaller loads" } else { "A full run" };
    let rounds = if run.rounds == 1 { "1 round".to_owned() } else { format!("{} rounds", run.rounds) };
    let (started, seconds) = (or_none(&run.started), measured(Some(run.seconds.round())));
    let changes = if run.changes.is_empty() { String::new() } else { format!(" Changed: {}.", run.changes.join(", ")) };
    format!("{kind}: {rounds}, started at {started}, {seconds} s, seed {}.{changes}", run.seed)
}

/// The authors of a paper, by its digest.
pub(super) fn paper(digest: Option<&str>) -> String {
    let Some(digest) = digest else { return "beyond the papers".to_owned() };
    let known = PAPERS.iter().find(|(name, _)| *name == digest);
    known.map_or(digest, |(_, authors)| authors).to_owned()
}

/// The place of a paper among all. Experiments beyond the papers are the last.
pub(super) fn paper_place(digest: Option<&str>) -> usize {
    let known = |digest: &str| PAPERS.iter().position(|(name, _)| *name == digest).unwrap_or(PAPERS.len());
    digest.map_or(PAPERS.len() + 1, known)
}

fn word(name: &'static str) -> Head {
    Head { name, is_number: false }
}

fn number(name: &'static str) -> Head {
    Head { name, is_number: true }
}

const PAPERS: [(&str, &str); 5] = [
    ("cssl", "Hatsugai and Saito, 2007"),
    ("standby", "Shimazaki and others, c. 2009"),
    ("handover", "Doi and Goto, 2008"),
    ("anma-enma", "Nakayama, 2003"),
    ("tls-suites", "Maniac Java Programming 10, 2009"),
];
