//! All runs as the document `docs/reproduction.md`. No line has over 120 characters, except in tables and
//! those of plots.

use std::fmt::Write;
use std::path::Path;

use crate::output::folder::{Run, Runs};
use crate::output::page::paragraphs;
use crate::output::tables::{self, Table};
use crate::output::text::wrapped;

/// The document. `results` is the folder of the results, beside it.
pub(super) fn document(runs: &Runs, results: &Path) -> String {
    let results = results.file_name().unwrap_or_default().to_string_lossy();
    let mut text = HEADER.to_owned();
    for paragraph in tables::LEGEND {
        prose(&mut text, "", paragraph);
        text.push('\n');
    }
    table(&mut text, &tables::overview(runs));
    if let Some(missing) = tables::without_runs(runs) {
        text.push('\n');
        prose(&mut text, "", &missing);
    }
    for run in &runs.runs {
        experiment(&mut text, run, &results);
    }
    text
}

fn experiment(text: &mut String, run: &Run, results: &str) {
    let result = &run.result;
    add(text, format_args!("\n## {}\n", line(&result.name)));
    prose(text, "", &format!("{}: {}", tables::paper(result.paper.as_deref()), result.title));
    for paragraph in paragraphs(&result.text) {
        text.push('\n');
        prose(text, "", paragraph);
    }
    text.push('\n');
    prose(text, "", &tables::circumstances(result));
    if let Some(file) = run.file_name() {
        add(text, format_args!("\nAll values of all rounds, and the commands: [{file}.json]({results}/{file}.json)\n"));
    }
    for shown in tables::of_run(result) {
        heading(text, &shown.caption);
        table(text, &shown);
    }
    plots(text, run, results);
    list(text, tables::deviations_heading(result), result.deviations.iter().cloned());
    if !result.versions.is_empty() {
        heading(text, "Versions");
        table(text, &tables::versions(result));
    }
}

fn plots(text: &mut String, run: &Run, results: &str) {
    let (Some(name), mut svgs) = (run.file_name(), run.svgs().peekable()) else { return };
    if svgs.peek().is_some() {
        heading(text, "Plots");
    }
    let images = svgs.map(|(plot, _)| format!("![{}]({results}/{name}/{}.svg)\n", line(&plot.title), plot.file));
    text.push_str(&images.collect::<Vec<_>>().join("\n"));
}

fn heading(text: &mut String, heading: &str) {
    add(text, format_args!("\n### {}\n\n", line(heading)));
}

fn list(text: &mut String, name: &str, entries: impl Iterator<Item = String>) {
    let mut entries = entries.peekable();
    if entries.peek().is_some() {
        heading(text, name);
    }
    for entry in entries {
        prose(text, "* ", &entry);
    }
}

fn table(text: &mut String, table: &Table) {
    let heads = table.heads.iter().map(|head| head.name.to_owned());
    let rules = table.heads.iter().map(|head| if head.is_number { "---:" } else { "---" }.to_owned());
    row(text, heads);
    row(text, rules);
    for cells in &table.rows {
        row(text, cells.iter().map(|cell| line(cell).replace('|', "\\|")));
    }
    if !table.notes.is_empty() {
        text.push('\n');
    }
    for (number, note) in (1..).zip(&table.notes) {
        prose(text, "* ", &format!("Note {number}: {note}"));
    }
}

fn row(text: &mut String, cells: impl Iterator<Item = String>) {
    add(text, format_args!("| {} |\n", cells.collect::<Vec<_>>().join(" | ")));
}

/// A paragraph, or an entry of a list.
fn prose(text: &mut String, bullet: &str, content: &str) {
    let width = (LINE_LEN_MAX - bullet.len()) as f64;
    // An escaped character at the beginning of a line is longer by one.
    let lines = wrapped(&escaped(content), width - 1.0, |line| line.chars().count() as f64);
    for (index, line) in lines.iter().enumerate() {
        let start = if index == 0 { bullet } else { &" ".repeat(bullet.len()) };
        add(text, format_args!("{start}{}\n", begun(line)));
    }
}

/// Escaped text on one line.
fn line(text: &str) -> String {
    escaped(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Escapes what Markdown would take for markup, except for `code`.
fn escaped(text: &str) -> String {
    let parts: Vec<_> = text.split('`').collect();
    if parts.len() % 2 == 0 {
        return plain(text).replace('`', "\\`");
    }
    let part = |(index, part): (usize, &&str)| if index % 2 == 1 { format!("`{part}`") } else { plain(part) };
    parts.iter().enumerate().map(part).collect()
}

fn plain(text: &str) -> String {
    let mut escaped = String::new();
    let (mut before, mut rest) = (' ', text.chars().peekable());
    while let Some(c) = rest.next() {
        let after = rest.peek().copied().unwrap_or(' ');
        let is_markup = match c {
            '\\' | '*' | '[' | '<' => true,
            '&' => after.is_alphanumeric() || after == '#',
            // Within a word it is none.
            '_' => !(before.is_alphanumeric() && after.is_alphanumeric()),
            _ => false,
        };
        if is_markup {
            escaped.push('\\');
        }
        escaped.push(c);
        before = c;
    }
    escaped
}

/// A line that is not taken for a heading, a list or a quotation.
fn begun(line: &str) -> String {
    let digits = line.chars().take_while(char::is_ascii_digit).count();
    if digits > 0 && line[digits..].starts_with(['.', ')']) {
        return format!("{}\\{}", &line[..digits], &line[digits..]);
    }
    if line.starts_with(['#', '>', '+', '-', '=', '~', '|']) { format!("\\{line}") } else { line.to_owned() }
}

fn add(text: &mut String, content: std::fmt::Arguments<'_>) {
    text.write_fmt(content).expect("a string takes all");
}

const LINE_LEN_MAX: usize = 120;
const HEADER: &str = "\
# Reproduction of the papers' experiments

`watari lab report --markdown` generates this file from the results of `watari lab run`. Do not edit it.

";

#[cfg(test)]
mod tests;
