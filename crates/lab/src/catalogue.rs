//! Files of experiments: those in this program, and those of the user.

use std::fs;
use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};

use crate::experiment::Experiment;

static BUILT_IN: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/experiments");
const SUFFIX: &str = "toml";

/// An experiment, and where its templates are.
#[derive(Clone, Debug)]
pub struct Found {
    pub experiment: Experiment,
    /// The text of its file.
    pub text: String,
    templates: Templates,
}

#[derive(Clone, Debug)]
enum Templates {
    BuiltIn,
    Folder(PathBuf),
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "no experiment is named {0}: `watari lab list` shows all, and a file's name contains a `/` or ends with .toml"
    )]
    Unknown(String),
    #[error("cannot read {path}: {error}")]
    Read { path: String, error: std::io::Error },
    #[error("cannot write {path}: {error}")]
    Write { path: String, error: std::io::Error },
    #[error("{path}: {error}")]
    Parse { path: String, error: Box<toml::de::Error> },
    #[error("{path}: the experiment is named {name}, and so belongs in {name}.toml")]
    Name { path: String, name: String },
    #[error("no template is named {0}")]
    NoTemplate(String),
}

/// All experiments of this program, by name.
pub fn all() -> Result<Vec<Experiment>, Error> {
    let mut experiments = BUILT_IN
        .files()
        .filter(|file| file.path().extension().is_some_and(|suffix| suffix == SUFFIX))
        .map(|file| parse(file.path(), file.contents_utf8().unwrap_or_default()))
        .collect::<Result<Vec<_>, _>>()?;
    experiments.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(experiments)
}

/// The experiment of this program with a name, or that of a file.
pub fn find(name: &str) -> Result<Found, Error> {
    let is_file = name.contains('/') || Path::new(name).extension().is_some_and(|suffix| suffix == SUFFIX);
    if is_file {
        let path = Path::new(name);
        let text = fs::read_to_string(path).map_err(|error| Error::Read { path: name.to_owned(), error })?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        return Ok(Found { experiment: parse(path, &text)?, text, templates: Templates::Folder(folder) });
    }
    let path = PathBuf::from(format!("{name}.{SUFFIX}"));
    let file = BUILT_IN.get_file(&path).ok_or_else(|| Error::Unknown(name.to_owned()))?;
    let text = file.contents_utf8().unwrap_or_default();
    Ok(Found { experiment: parse(&path, text)?, text: text.to_owned(), templates: Templates::BuiltIn })
}

/// The keys, variables and measures of experiment files.
const MANUAL: &str = include_str!("../../../docs/lab.md");

/// Writes all experiments of this program, with their templates and the manual, to a folder that is not there yet.
pub fn export(folder: &Path) -> Result<(), Error> {
    let failed = |error| Error::Write { path: folder.display().to_string(), error };
    fs::create_dir(folder).map_err(failed)?;
    BUILT_IN.extract(folder).map_err(failed)?;
    fs::write(folder.join("README.md"), MANUAL).map_err(failed)
}

impl Found {
    /// The name of its file.
    pub(crate) fn file(&self) -> String {
        format!("{}.{SUFFIX}", self.experiment.name)
    }

    /// The text of a template.
    pub fn template(&self, name: &str) -> Result<String, Error> {
        match &self.templates {
            Templates::BuiltIn => {
                let file = BUILT_IN.get_file(name).and_then(include_dir::File::contents_utf8);
                file.map(str::to_owned).ok_or_else(|| Error::NoTemplate(name.to_owned()))
            }
            Templates::Folder(folder) => {
                let path = folder.join(name);
                fs::read_to_string(&path).map_err(|error| Error::Read { path: path.display().to_string(), error })
            }
        }
    }
}

fn parse(path: &Path, text: &str) -> Result<Experiment, Error> {
    let shown = path.display().to_string();
    let experiment: Experiment =
        toml::from_str(text).map_err(|error| Error::Parse { path: shown.clone(), error: Box::new(error) })?;
    if path.file_stem().is_none_or(|stem| stem != experiment.name.as_str()) {
        return Err(Error::Name { path: shown, name: experiment.name });
    }
    Ok(experiment)
}
