//! Compares the runs that files contain.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::path::PathBuf;

use serde::Serialize;
use watari_bench_report::summary::{ReadError, Summary};

use super::options::Options;
use super::{CompareError, Comparison, compare};

/// A comparison of files.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileComparison {
    files_a: Vec<PathBuf>,
    files_b: Vec<PathBuf>,
    #[serde(flatten)]
    comparison: Comparison,
}

/// The files cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareFilesError {
    /// A run that counts twice is not a second run: it would show no difference from run to run.
    #[error("{file} is given twice: each file must be another run", file = .0.display())]
    Twice(PathBuf),
    #[error("{file} {error}", file = file.display())]
    Read { file: PathBuf, error: ReadError },
    #[error(transparent)]
    Compare(#[from] CompareError),
}

/// Compares side B with side A. Each file has the summary of one run.
pub fn compare_files(a: Vec<PathBuf>, b: Vec<PathBuf>, options: &Options) -> Result<FileComparison, CompareFilesError> {
    for side in [&a, &b] {
        check_once(side)?;
    }
    let comparison = compare(&read_all(&a)?, &read_all(&b)?, options)?;
    Ok(FileComparison { files_a: a, files_b: b, comparison })
}

impl fmt::Display for FileComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.comparison.fmt(f)
    }
}

fn check_once(files: &[PathBuf]) -> Result<(), CompareFilesError> {
    let mut seen = HashSet::new();
    let twice = files.iter().find(|file| !seen.insert(file.canonicalize().unwrap_or_else(|_| (*file).clone())));
    twice.map_or(Ok(()), |file| Err(CompareFilesError::Twice(file.clone())))
}

fn read_all(files: &[PathBuf]) -> Result<Vec<Summary>, CompareFilesError> {
    let read = |file: &PathBuf| {
        let read = File::open(file).map_err(ReadError::Input).and_then(Summary::read);
        read.map_err(|error| CompareFilesError::Read { file: file.clone(), error })
    };
    files.iter().map(read).collect()
}
