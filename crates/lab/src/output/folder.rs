//! The runs below a folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use roxmltree::Document;
use serde_json::Value;

use crate::output::{Error, tables, text};
use crate::result::{PlotFile, RunResult};

pub(super) struct Runs {
    /// One for each experiment, in the order of the papers.
    pub(super) runs: Vec<Run>,
    pub(super) unreadable: Vec<Unreadable>,
}

pub(super) struct Run {
    pub(super) result: RunResult,
    pub(super) pictures: Vec<ReadPicture>,
}

pub(super) struct ReadPicture {
    pub(super) title: String,
    /// Safe markup. None if the file is missing, or contains what this program does not draw.
    pub(super) svg: Option<String>,
}

pub(super) struct Unreadable {
    pub(super) path: PathBuf,
    pub(super) why: String,
}

impl Runs {
    /// Reads `result.json` in the folder, and in each folder in it. Of the runs of an experiment it keeps the latest full
    /// one without changes, or else the latest quick one, or else the latest with changes.
    pub(super) fn read(folder: &Path) -> Result<Self, Error> {
        let (mut best, mut unreadable) = (BTreeMap::new(), Vec::new());
        for path in results(folder)? {
            match result(&path) {
                Ok(result) => keep(&mut best, path, result),
                Err(why) => unreadable.push(Unreadable { path, why }),
            }
        }
        let mut runs: Vec<_> = best.into_values().map(|(path, result)| Run::new(&path, result)).collect();
        runs.sort_by_key(|run| tables::paper_place(run.result.paper.as_deref()));
        Ok(Self { runs, unreadable })
    }
}

impl Run {
    fn new(path: &Path, result: RunResult) -> Self {
        let folder = path.parent().unwrap_or(Path::new("."));
        let picture = |plot: &PlotFile| ReadPicture {
            title: plot.title.clone(),
            svg: is_name(&plot.file).then(|| picture(&folder.join(format!("{}.svg", plot.file)))).flatten(),
        };
        Self { pictures: result.plots.iter().map(picture).collect(), result }
    }

    /// The name of the experiment, for copies of its files. None if it is not safe as a file name and in a link.
    pub(super) fn file_name(&self) -> Option<&str> {
        Some(self.result.name.as_str()).filter(|name| is_safe_in_links(name))
    }

    /// Its pictures, with the names of their files.
    pub(super) fn svgs(&self) -> impl Iterator<Item = (&PlotFile, &str)> {
        let svgs = self.result.plots.iter().zip(&self.pictures);
        svgs.filter_map(|(plot, read)| Some((plot, read.svg.as_deref().filter(|_| is_safe_in_links(&plot.file))?)))
    }
}

fn is_safe_in_links(name: &str) -> bool {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    !name.is_empty() && name.chars().all(is_safe)
}

impl Unreadable {
    /// The name of the run's folder.
    pub(super) fn name(&self) -> String {
        let folder = self.path.parent().and_then(Path::file_name);
        text::clean(&folder.map_or_else(|| self.path.to_string_lossy(), |name| name.to_string_lossy()))
    }
}

/// Removes the pictures that a result names, if there is one, from a folder.
pub(super) fn remove_pictures(path: &Path, folder: &Path) {
    let plots = result(path).map_or_else(|_| Vec::new(), |run| run.plots);
    for plot in plots.iter().filter(|plot| is_name(&plot.file)) {
        for ending in ["svg", "png"] {
            let _ = fs::remove_file(folder.join(format!("{}.{ending}", plot.file)));
        }
    }
}

/// The files in a stable order.
fn results(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |error| Error::Read(folder.to_owned(), error);
    let entries = fs::read_dir(folder).map_err(failed)?;
    let folders: Vec<_> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().map_err(failed)?;
    let mut paths: Vec<_> = folders.into_iter().chain([folder.to_owned()]).map(|run| run.join("result.json")).collect();
    paths.retain(|path| path.exists());
    paths.sort();
    Ok(paths)
}

/// The result in a file, without characters that pages cannot contain.
fn result(path: &Path) -> Result<RunResult, String> {
    let json = fs::read(path).map_err(|error| error.to_string())?;
    let value: Value = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
    let mut result: RunResult = serde_json::from_value(cleaned(value)).map_err(|error| error.to_string())?;
    // A `Value` has its keys in alphabetical order.
    let in_file: RunResult = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
    let names = in_file.ratios.keys().map(|name| text::clean(name));
    result.ratios = names.filter_map(|name| result.ratios.shift_remove_entry(&name)).collect();
    Ok(result)
}

fn cleaned(value: Value) -> Value {
    match value {
        Value::String(string) => Value::String(text::clean(&string)),
        Value::Array(values) => values.into_iter().map(cleaned).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (text::clean(&key), cleaned(value))).collect(),
        other => other,
    }
}

fn keep(best: &mut BTreeMap<String, (PathBuf, RunResult)>, path: PathBuf, result: RunResult) {
    let worth = |result: &RunResult| (result.changes.is_empty(), !result.quick, result.started.clone());
    let is_better = best.get(&result.name).is_none_or(|(_, known)| worth(&result) > worth(known));
    if is_better {
        best.insert(result.name.clone(), (path, result));
    }
}

/// A name in the same folder.
fn is_name(file: &str) -> bool {
    !file.is_empty() && !file.contains(['/', '\0'])
}

fn picture(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().filter(|svg| is_safe(svg))
}

/// Whether an SVG contains only what `plots::svg` writes. It is part of a page.
fn is_safe(svg: &str) -> bool {
    let Ok(document) = Document::parse(svg) else { return false };
    let elements = document.descendants().filter(roxmltree::Node::is_element);
    let mut names = elements.flat_map(|element| {
        let attributes = element.attributes().map(|attribute| (ATTRIBUTES, attribute.name()));
        attributes.chain([(ELEMENTS, element.tag_name().name())])
    });
    svg.starts_with("<svg ")
        && !svg.contains("<!")
        && !svg.contains("<?")
        && names.all(|(known, name)| known.contains(&name))
}

const ELEMENTS: &[&str] = &["svg", "rect", "path", "circle", "text"];
const ATTRIBUTES: &[&str] = &[
    "width",
    "height",
    "viewBox",
    "role",
    "aria-label",
    "font-family",
    "font-size",
    "text-anchor",
    "x",
    "y",
    "cx",
    "cy",
    "r",
    "d",
    "fill",
    "fill-opacity",
    "stroke",
    "stroke-width",
    "stroke-dasharray",
    "stroke-linejoin",
];

#[cfg(test)]
mod tests;
