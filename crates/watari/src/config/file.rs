//! The file of a configuration: its path, its mistakes, and the files that it names.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// More bytes than any certificate chain or error page has. A wrong path may lead to a large file.
const FILE_LEN_MAX: usize = 1 << 20;

/// The path of a configuration's file, as the user gave it.
#[derive(Debug)]
pub(crate) struct ConfigFile(pub(crate) PathBuf);

impl ConfigFile {
    /// The refusal of a value on `line`.
    pub(super) fn wrong(&self, line: usize, sentence: &impl ToString) -> ConfigError {
        ConfigError::Wrong { file: self.0.clone(), mistakes: vec![(line, sentence.to_string())] }
    }

    /// Reads a file that the configuration names.
    pub(super) fn read_file(&self, file: &At<PathBuf>) -> Result<Zeroizing<Vec<u8>>, ConfigError> {
        let content = File::open(&file.value).and_then(read);
        content.map_err(|error| self.wrong(file.line, &named(&file.value, &error)))
    }

    /// Reads a file that must not be readable by all users.
    pub(super) fn read_key(&self, file: &At<PathBuf>) -> Result<Zeroizing<Vec<u8>>, ConfigError> {
        let content = File::open(&file.value).and_then(|opened| refuse_exposed(&opened).and_then(|()| read(opened)));
        content.map_err(|error| self.wrong(file.line, &named(&file.value, &error)))
    }
}

/// A value, and the line of the configuration that it is on.
#[derive(Debug, Clone)]
pub(crate) struct At<T> {
    pub(crate) line: usize,
    pub(crate) value: T,
}

/// The configuration is not valid. Its `Display` has a line `file:line: sentence` for each mistake.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("{}: {cause}", file.display())]
    Unreadable { file: PathBuf, cause: std::io::Error },
    #[error("{}", lines(file, mistakes).join("\n"))]
    Wrong { file: PathBuf, mistakes: Vec<(usize, String)> },
}

fn lines(file: &Path, mistakes: &[(usize, String)]) -> Vec<String> {
    mistakes.iter().map(|(line, sentence)| format!("{}:{line}: {sentence}", file.display())).collect()
}

impl ConfigError {
    /// Both errors together, sorted by line. An error without a line stays alone.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Wrong { file, mut mistakes }, Self::Wrong { mistakes: others, .. }) => {
                mistakes.extend(others);
                mistakes.sort();
                mistakes.dedup();
                Self::Wrong { file, mistakes }
            }
            (unreadable @ Self::Unreadable { .. }, _) | (_, unreadable) => unreadable,
        }
    }

    /// Both values, or all mistakes.
    pub(crate) fn both<A, B>(a: Result<A, Self>, b: Result<B, Self>) -> Result<(A, B), Self> {
        match (a, b) {
            (Ok(a), Ok(b)) => Ok((a, b)),
            (Err(a), Err(b)) => Err(a.and(b)),
            (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
        }
    }

    /// All values, or all mistakes.
    pub(super) fn all<T>(results: impl IntoIterator<Item = Result<T, Self>>) -> Result<Vec<T>, Self> {
        let (mut values, mut wrong) = (Vec::new(), None::<Self>);
        for result in results {
            match result {
                Ok(value) => values.push(value),
                Err(error) => {
                    wrong = Some(match wrong.take() {
                        Some(earlier) => earlier.and(error),
                        None => error,
                    });
                }
            }
        }
        wrong.map_or(Ok(values), Err)
    }
}

fn refuse_exposed(key: &File) -> io::Result<()> {
    let mode = key.metadata()?.permissions().mode() & 0o7777;
    if mode & 0o004 == 0 {
        return Ok(());
    }
    let sentence = format!("all users can read it (mode {mode:04o}): chmod 600 it");
    Err(io::Error::new(ErrorKind::PermissionDenied, sentence))
}

fn read(file: File) -> io::Result<Zeroizing<Vec<u8>>> {
    // Allocated once for the whole file: a growing vector would leave copies of a key behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(FILE_LEN_MAX + 1));
    file.take(FILE_LEN_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > FILE_LEN_MAX {
        return Err(io::Error::new(ErrorKind::FileTooLarge, "too large: more than 1 MiB"));
    }
    Ok(bytes)
}

pub(super) fn named(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}
