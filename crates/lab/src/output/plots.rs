//! Pictures of a run as SVG, and as PNG of the same drawing.
//!
//! Only numbers that the paper prints are drawn beside ours. No curve of a paper is invented.
//!
//! * `svg`, `png`: the drawing;
//! * `scale`, `frame`: axes, titles and legends;
//! * `bars`, `cpu`, `lines`, `ternary`: the kinds of plots.

mod bars;
mod cpu;
mod frame;
mod lines;
mod png;
mod scale;
mod svg;
mod ternary;

pub(super) use png::png;

use crate::experiment::Plot;
use crate::output::{Error, TernaryPoints, text};
use crate::result::{CpuSeries, FigureResult, FigureRow, PlotFile, RunResult};

/// A drawn plot.
pub(super) struct Picture {
    title: String,
    /// The name of its files, without an ending.
    file: String,
    pub(super) svg: String,
}

impl Picture {
    pub(super) fn entry(&self) -> PlotFile {
        PlotFile { title: self.title.clone(), file: self.file.clone() }
    }
}

/// Draws all plots that have values, and returns the first error beside them.
pub(super) fn draw(
    plots: &[Plot],
    run: &RunResult,
    cpu: &[CpuSeries],
    ternary: &[TernaryPoints],
) -> (Vec<Picture>, Option<Error>) {
    let (mut pictures, mut failed) = (Vec::new(), None);
    for plot in plots {
        match drawings(plot, run, cpu, ternary) {
            Ok(drawings) => {
                for (title, svg) in drawings {
                    pictures.push(Picture { file: file_name(pictures.len() + 1, &title), title, svg });
                }
            }
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    (pictures, failed)
}

/// The titles and pictures of a plot.
fn drawings(
    plot: &Plot,
    run: &RunResult,
    cpu: &[CpuSeries],
    ternary: &[TernaryPoints],
) -> Result<Vec<(String, String)>, Error> {
    let one = |title: &String, svg: Option<String>| svg.into_iter().map(|svg| (title.clone(), svg)).collect();
    Ok(match plot {
        Plot::Bars { title, figure, .. } => one(title, bars::draw(title, find(run, title, figure)?)),
        Plot::Lines { title, figure, x, series, .. } => {
            one(title, lines::draw(title, find(run, title, figure)?, x, series.as_deref()))
        }
        Plot::Cpu { title, hosts, variants, .. } => cpu::draw(title, hosts, variants, run, cpu),
        Plot::Ternary { title, process, variants } => {
            let points: Vec<_> = ternary.iter().filter(|points| points.process == *process).collect();
            one(title, ternary::draw(title, variants, run, &points))
        }
    })
}

fn find<'a>(run: &'a RunResult, title: &str, figure: &str) -> Result<&'a FigureResult, Error> {
    let found = run.figures.iter().find(|one| one.name == figure);
    found.ok_or_else(|| Error::NoFigure(title.to_owned(), figure.to_owned()))
}

/// The rows of a figure. Neighbours with the same variables are in the order of the values of these.
pub(super) fn sorted(figure: &FigureResult) -> Vec<&FigureRow> {
    let mut rows: Vec<_> = figure.rows.iter().collect();
    for rows in rows.chunk_by_mut(|a, b| a.matrix.keys().eq(b.matrix.keys())) {
        rows.sort_by(|a, b| {
            let pairs = a.matrix.values().zip(b.matrix.values());
            pairs.map(|(a, b)| text::by_amount(a, b)).find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
        });
    }
    rows
}

/// Whether the paper's machine was so much slower, or faster, that its values need a scale of their own.
fn are_far_apart(ours: &[f64], paper: &[f64]) -> bool {
    let most =
        |values: &[f64]| values.iter().map(|value| value.abs()).filter(|value| value.is_finite()).reduce(f64::max);
    match (most(ours), most(paper)) {
        (Some(ours), Some(paper)) if ours > 0.0 && paper > 0.0 => ours.max(paper) / ours.min(paper) > FAR_APART,
        _ => false,
    }
}

/// The title of a variant. Only figures have titles: without one, it is the key.
fn variant_title<'a>(run: &'a RunResult, key: &'a str) -> &'a str {
    let mut rows = run.figures.iter().flat_map(|figure| &figure.rows);
    rows.find(|row| row.variant == key).map_or(key, |row| &row.title)
}

/// The keys of variants that a plot shows: those that it names, or all, in their order.
fn selected<'a>(named: &'a [String], all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut keys: Vec<&str> = Vec::new();
    for key in all {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    if named.is_empty() {
        return keys;
    }
    named.iter().map(String::as_str).filter(|key| keys.contains(key)).collect()
}

/// `03-requests-per-second`
fn file_name(number: usize, title: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { ' ' };
    let words: String = title.chars().take(FILE_NAME_CHARS_MAX).map(plain).collect();
    let words: Vec<_> = words.split_whitespace().collect();
    format!("{number:02}-{}", words.join("-"))
}

const FILE_NAME_CHARS_MAX: usize = 60;
const FAR_APART: f64 = 2.5;

#[cfg(test)]
mod tests;
