//! Errors of dropping privileges.

use std::io;
use std::path::{Path, PathBuf};

/// Privileges could not be dropped; some may have been.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegesError {
    /// Other threads are running already. The value is their number, with this one.
    #[error("cannot drop privileges: {0} threads are running, and only one may run")]
    Threads(usize),
    /// There is no such user.
    #[error("there is no user {0}")]
    NoUser(String),
    /// The process cannot become that user.
    #[error("cannot become {user}: {source}")]
    User { user: String, source: io::Error },
    /// A path of [`Keep`](super::Keep) cannot be opened.
    #[error("cannot open {}, which has to stay accessible: {source}", .path.display())]
    Path { path: PathBuf, source: io::Error },
    /// Capabilities are left.
    #[error("cannot drop capabilities: {0}")]
    Capabilities(io::Error),
    /// Files cannot be restricted, although the kernel has Landlock.
    #[error("cannot restrict which files may be opened: {0}")]
    Files(#[from] landlock::RulesetError),
    /// System calls cannot be forbidden, although the kernel has seccomp.
    #[error("cannot forbid system calls: {0}")]
    Calls(#[from] seccompiler::Error),
}

pub(super) fn path_error(path: &Path, source: impl Into<io::Error>) -> PrivilegesError {
    PrivilegesError::Path { path: path.to_owned(), source: source.into() }
}
