//! How to run a server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

/// The address and the directory of a server.
pub(super) struct Place<'a> {
    pub(super) address: SocketAddr,
    /// Its own directory.
    pub(super) dir: &'a Path,
    pub(super) root: &'a Path,
    /// The origin of a cache.
    pub(super) behind: SocketAddr,
    pub(super) more: &'a str,
}

impl Place<'_> {
    /// A path in its own directory.
    pub(super) fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// How to run a server in the foreground.
pub(super) struct Plan {
    pub(super) arguments: Vec<String>,
    pub(super) variables: Vec<(&'static str, String)>,
    /// Names of files in its directory, and their contents.
    pub(super) files: Vec<(&'static str, String)>,
    /// Directories in its directory.
    pub(super) directories: Vec<&'static str>,
    /// The signal that ends it at once, within its transfers.
    pub(super) end: Signal,
}

impl Plan {
    pub(super) fn new<const N: usize>(arguments: [&str; N], name: &'static str, configuration: String) -> Self {
        Self {
            arguments: arguments.map(str::to_owned).to_vec(),
            variables: Vec::new(),
            files: vec![(name, configuration)],
            directories: Vec::new(),
            end: Signal::KILL,
        }
    }
}
