//! Files to be served.

use std::fs::{File, Permissions, set_permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::SystemTime;

use tempfile::TempDir;

use crate::content::Content;

/// A directory of files that everybody may read. It goes when this is dropped.
#[derive(Debug)]
pub struct Docroot(TempDir);

impl Docroot {
    /// An empty one.
    ///
    /// # Errors
    /// There is no place for temporary files.
    pub fn new() -> io::Result<Self> {
        tempdir().map(Self)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file anew that was last modified then.
    ///
    /// # Errors
    /// It could not be written.
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

/// A directory that everybody may look into, whatever the umask.
pub(super) fn tempdir() -> io::Result<TempDir> {
    let dir = tempfile::Builder::new().prefix("watari-origin-").tempdir()?;
    set_permissions(dir.path(), Permissions::from_mode(0o755))?;
    Ok(dir)
}
