//! The privileges that a process keeps.

use std::path::PathBuf;

/// The privileges that a process keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keep {
    /// The user to change to; `None` keeps the user. Only root can change its user. (See [`user`](super::user).)
    pub user: Option<String>,
    /// Files and directories that the process may open to read.
    pub read: Vec<PathBuf>,
    /// Files that the process may open to write, and directories in which it may do anything except run programs. New
    /// files must be in one of these directories.
    pub write: Vec<PathBuf>,
    /// Whether the process runs programs. Then it and they may read and run all that the user may, but write only to
    /// `write`.
    pub programs: bool,
    /// Whether the process resolves host names and uses the certificate authorities of the system. Then it may read the
    /// libraries and the files in `/etc` that this takes.
    pub names: bool,
}
