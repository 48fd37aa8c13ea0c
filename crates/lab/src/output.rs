//! The files of a run: tables, plots, the page.
//!
//! * `text`: numbers and texts as people read them;
//! * `csv_files`, `plots`: the files in the folder of a run;
//! * `folder`: the runs below a folder;
//! * `tables`: what a page shows, as rows and columns;
//! * `page`, `markdown`: all runs on one page of HTML, and as a document.

#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "counts of rows, lines and decimals are small")]

mod csv_files;
mod folder;
mod markdown;
mod page;
mod plots;
mod tables;
#[cfg(test)]
mod test_samples;
mod text;

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::experiment::Plot;
use crate::output::folder::{Run, Runs};
use crate::output::plots::Picture;
use crate::result::{CpuSeries, PlotFile, RunResult};

/// How the connections of a variant ended, for [`Plot::Ternary`].
#[derive(Clone, Debug)]
pub struct TernaryPoints {
    /// The process that printed the spans.
    pub process: String,
    /// The key of the variant.
    pub variant: String,
    /// A point for each span, in percent: `S_NORMAL`, the clients' aborts, `TIMEOUT`. It leaves out
    /// spans without a connection.
    pub points: Vec<[f64; 3]>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot write {path}: {1}; name a folder that can be written", path = .0.display())]
    Write(PathBuf, io::Error),
    #[error("cannot read {path}: {1}; name the folder in which `watari lab run` has put runs", path = .0.display())]
    Read(PathBuf, io::Error),
    #[error("cannot draw the plot {0:?}: the experiment has no figure {1:?}; name one of its figures")]
    NoFigure(String, String),
    #[error("{} needs an extension, such as .md: without it, it is the folder of the results", .0.display())]
    NoExtension(PathBuf),
    #[error("cannot draw the plot {0:?}: {1}")]
    Draw(String, String),
}

/// Writes the folder of a run: `result.json`, `figures.csv`, `ratios.csv`, `cpu.csv`, and an SVG and a PNG of each plot.
///
/// It sets `run.plots`. A plot without any value is left out. If a plot cannot be drawn, all other files are written before it returns the error.
pub fn write_run(
    dir: &Path,
    run: &mut RunResult,
    cpu: &[CpuSeries],
    plots: &[Plot],
    ternary: &[TernaryPoints],
) -> Result<(), Error> {
    let (pictures, failed) = plots::draw(plots, run, cpu, ternary);
    run.plots = pictures.iter().map(Picture::entry).collect();
    create_dir(dir)?;
    write(&dir.join("result.json"), json(run).as_bytes())?;
    write(&dir.join("figures.csv"), &csv_files::figures(run))?;
    write(&dir.join("ratios.csv"), &csv_files::ratios(run))?;
    write(&dir.join("cpu.csv"), &csv_files::cpu(cpu))?;
    let pictures = pictures.iter().map(|picture| write_picture(dir, picture)).collect::<Vec<_>>();
    pictures.into_iter().collect::<Result<(), _>>()?;
    failed.map_or(Ok(()), Err)
}

/// Removes the pictures of the run in a folder, if there is one.
pub(crate) fn remove_pictures(dir: &Path) {
    folder::remove_pictures(&dir.join("result.json"), dir);
}

/// Writes one page with the runs below a folder, and a document (`docs/reproduction.md`) with the results beside it
/// (`docs/reproduction/NAME.json`, and the plots in `docs/reproduction/NAME`): the latest full run of each experiment
/// without changes, or else the nearest to that.
///
/// It names runs that it cannot read on standard error.
pub fn report(runs: &Path, html: &Path, markdown: Option<&Path>) -> Result<(), Error> {
    let results = markdown.map(results_folder).transpose()?;
    let runs = Runs::read(runs)?;
    for unreadable in &runs.unreadable {
        let path = unreadable.path.display();
        let _ = writeln!(io::stderr(), "cannot read {path}: {}; the report leaves it out", unreadable.why);
    }
    write(html, page::page(&runs).as_bytes())?;
    let (Some(path), Some(results)) = (markdown, results) else { return Ok(()) };
    write(path, markdown::document(&runs, &results).as_bytes())?;
    create_dir(&results)?;
    let mut copied = runs.runs.iter().filter_map(|run| Some((run, results.join(run.file_name()?))));
    copied.try_for_each(|(run, place)| copy(run, &place))
}

/// Writes the result to `PLACE.json`, and its pictures to the folder `place`.
fn copy(run: &Run, place: &Path) -> Result<(), Error> {
    let path = place.with_extension("json");
    folder::remove_pictures(&path, place);
    write(&path, json(&run.result).as_bytes())?;
    for (plot, svg) in run.svgs() {
        create_dir(place)?;
        write(&place.join(format!("{}.svg", plot.file)), svg.as_bytes())?;
    }
    Ok(())
}

fn create_dir(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(|error| Error::Write(path.to_owned(), error))
}

/// The folder of the results beside a document.
fn results_folder(markdown: &Path) -> Result<PathBuf, Error> {
    let folder = markdown.with_extension("");
    if folder == markdown { Err(Error::NoExtension(folder)) } else { Ok(folder) }
}

fn json(run: &RunResult) -> String {
    let text = serde_json::to_string_pretty(run).expect("all keys are strings");
    format!("{text}\n")
}

fn write_picture(dir: &Path, picture: &Picture) -> Result<(), Error> {
    let PlotFile { title, file } = picture.entry();
    let png = plots::png(&picture.svg).map_err(|why| Error::Draw(title, why))?;
    write(&dir.join(format!("{file}.svg")), picture.svg.as_bytes())?;
    write(&dir.join(format!("{file}.png")), &png)
}

fn write(path: &Path, content: &[u8]) -> Result<(), Error> {
    fs::write(path, content).map_err(|error| Error::Write(path.to_owned(), error))
}

#[cfg(test)]
mod tests;
