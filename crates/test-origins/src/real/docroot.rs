//! Files for servers.

use std::fs::{File, Permissions, set_permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::SystemTime;

use tempfile::TempDir;

use crate::content::Content;

/// A directory of files that all users may read. Dropping it deletes it.
#[derive(Debug)]
pub struct Docroot(TempDir);

impl Docroot {
    /// An empty directory.
    ///
    /// # Errors
    /// No temporary directory can be made.
    pub fn new() -> io::Result<Self> {
        tempdir().map(Self)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file with this time of modification.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn put(&self, name: &str, content: &Content, modified: SystemTime) -> io::Result<()> {
        const PIECE_LEN: usize = 1024 * 1024;
        let path = self.path().join(name);
        let mut file = File::create(&path)?;
        for offset in (0..content.len()).step_by(PIECE_LEN) {
            file.write_all(&content.at(offset, PIECE_LEN))?;
        }
        file.set_modified(modified)?;
        set_permissions(path, Permissions::from_mode(0o644))
    }
}

/// A directory that all users may read, independent of the umask.
pub(super) fn tempdir() -> io::Result<TempDir> {
    let dir = tempfile::Builder::new().prefix("watari-origin-").tempdir()?;
    set_permissions(dir.path(), Permissions::from_mode(0o755))?;
    Ok(dir)
}
