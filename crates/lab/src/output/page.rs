//! All runs as one self-contained page of HTML: no network, no script. The markup is also valid XML.
//!
//! Templates escape all texts. Pictures are SVG files that `folder` has checked.

use askama::Template;
use askama::filters::HtmlSafe;

use crate::output::folder::{ReadPicture, Run, Runs};
use crate::output::tables::{self, Head, Table};

pub(super) fn page(runs: &Runs) -> String {
    Page::new(runs).render().expect("a string takes all")
}

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    legend: Vec<String>,
    overview: Shown,
    missing: Option<String>,
    experiments: Vec<Experiment<'a>>,
}

#[derive(Template)]
#[template(path = "experiment.html")]
struct Experiment<'a> {
    number: usize,
    name: &'a str,
    title: &'a str,
    paper: String,
    verdict: &'static str,
    circumstances: String,
    paragraphs: Vec<&'a str>,
    tables: Vec<Shown>,
    pictures: &'a [ReadPicture],
    deviations_heading: &'static str,
    deviations: &'a [String],
    versions: Shown,
    commands: &'a [String],
}

#[derive(Template)]
#[template(path = "table.html")]
struct Shown {
    caption: String,
    heads: Vec<Head>,
    rows: Vec<Vec<Cell>>,
    /// Escaped texts.
    notes: Vec<String>,
}

struct Cell {
    /// CSS classes.
    class: String,
    /// Escaped text.
    markup: String,
}

/// The templates escape the fields.
impl HtmlSafe for Experiment<'_> {}
impl HtmlSafe for Shown {}

impl<'a> Page<'a> {
    fn new(runs: &'a Runs) -> Self {
        let overview = Shown::new(tables::overview(runs)).linked(runs.runs.len());
        let legend = tables::LEGEND.iter().map(|paragraph| rich(paragraph)).collect();
        let missing = tables::without_runs(runs);
        Self { legend, overview, missing, experiments: runs.runs.iter().zip(1..).map(Experiment::new).collect() }
    }
}

impl<'a> Experiment<'a> {
    fn new((run, number): (&'a Run, usize)) -> Self {
        let result = &run.result;
        Self {
            number,
            name: &result.name,
            title: &result.title,
            paper: tables::paper(result.paper.as_deref()),
            verdict: result.verdict.as_str(),
            circumstances: tables::circumstances(result),
            paragraphs: paragraphs(&result.text),
            tables: tables::of_run(result).into_iter().map(Shown::new).collect(),
            pictures: &run.pictures,
            deviations_heading: tables::deviations_heading(result),
            deviations: &result.deviations,
            versions: Shown::new(tables::versions(result)),
            commands: &result.commands,
        }
    }
}

impl Shown {
    fn new(table: Table) -> Self {
        let Table { caption, heads, rows, notes } = table;
        let cells = |row: Vec<String>| row.iter().zip(&heads).map(|(text, head)| Cell::new(head, text)).collect();
        let notes = notes.iter().map(|note| rich(note)).collect();
        Self { caption, rows: rows.into_iter().map(cells).collect(), heads, notes }
    }

    /// The first cells of the first rows link to experiments.
    fn linked(mut self, count: usize) -> Self {
        for (row, number) in self.rows.iter_mut().zip(1..=count) {
            row[0].markup = format!("<a href=\"#experiment-{number}\">{}</a>", row[0].markup);
        }
        self
    }
}

impl Cell {
    fn new(head: &Head, text: &str) -> Self {
        let class = match head {
            Head { is_number: true, .. } => "number".to_owned(),
            Head { name: "verdict", .. } => verdict_class(text),
            Head { .. } => "word".to_owned(),
        };
        Self { class, markup: rich(text) }
    }
}

/// The classes of a cell that is a verdict, or begins with one.
fn verdict_class(cell: &str) -> String {
    let known = ["reproduced", "exceeded", "differs", "impossible", "unreadable"];
    let verdict = known.into_iter().find(|verdict| cell.starts_with(verdict)).unwrap_or_default();
    if verdict == cell { format!("word verdict {verdict}") } else { format!("word {verdict}") }
}

pub(super) fn paragraphs(text: &str) -> Vec<&str> {
    text.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty()).collect()
}

/// Escaped text with its `code` marked up.
fn rich(text: &str) -> String {
    let parts: Vec<_> = text.split('`').map(escaped).collect();
    if parts.len() % 2 == 0 {
        return escaped(text);
    }
    let part = |(index, part): (usize, String)| if index % 2 == 1 { format!("<code>{part}</code>") } else { part };
    parts.into_iter().enumerate().map(part).collect()
}

fn escaped(text: &str) -> String {
    askama::filters::escape(text, askama::filters::Html).map_or_else(|never| match never {}, |safe| safe.to_string())
}

#[cfg(test)]
mod tests;
