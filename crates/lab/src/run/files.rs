//! Files of a run, and templates that become files.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::plan::Plan;
use crate::variables::{self, Values};

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot {doing}: {error}")]
    File { doing: String, error: io::Error },
    #[error("{place}: {error}")]
    Variable { place: String, error: variables::Error },
}

/// Writes templates to a directory: name there, name in the experiment's folder.
pub(super) fn write_templates(
    plan: &Plan,
    templates: &BTreeMap<String, String>,
    values: &Values,
    directory: &Path,
) -> Result<(), FileError> {
    for (file, template) in templates {
        let text = variables::fill(&plan.templates[template], values).map_err(in_place(template))?;
        write(&directory.join(file), text.as_bytes())?;
    }
    Ok(())
}

/// Writes a file, and makes its directory.
pub(super) fn write(path: &Path, contents: &[u8]) -> Result<(), FileError> {
    if let Some(parent) = path.parent() {
        create_dir(parent)?;
    }
    fs::write(path, contents).map_err(|error| file_error("write", path, error))
}

pub(super) fn create_dir(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).map_err(|error| file_error("create", path, error))
}

/// Moves all files of a directory to another one of the same file system.
pub(super) fn move_files(from: &Path, to: &Path) -> Result<(), FileError> {
    create_dir(to)?;
    let failed = |error| file_error("move files to", to, error);
    for entry in fs::read_dir(from).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let place = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            move_files(&path, &place)?;
        } else {
            fs::rename(&path, &place).map_err(failed)?;
        }
    }
    Ok(())
}

pub(super) fn file_error(verb: &str, path: &Path, error: io::Error) -> FileError {
    FileError::File { doing: format!("{verb} {}", path.display()), error }
}

pub(super) fn in_place(place: &str) -> impl Fn(variables::Error) -> FileError + '_ {
    move |error| FileError::Variable { place: place.to_owned(), error }
}
