//! Opens the file of a database.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use redb::backends::FileBackend;
use redb::{Builder, StorageError};

use super::DatabaseError;

/// The size of redb's own cache, in bytes. The kernel's page cache is additional.
const CACHE_BYTES: usize = 32 << 20;

/// Opens and checks the file at `path`, or creates one.
pub(super) fn open(path: &Path) -> Result<redb::Database, DatabaseError> {
    let system = |cause| DatabaseError::System { path: path.to_owned(), cause };
    let file = create(path).map_err(system)?;
    let was_empty = file.metadata().map_err(system)?.len() == 0;
    let begun = file.try_clone().map_err(system)?;
    let opened = FileBackend::new(file).and_then(|backend| {
        Builder::new().set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true).create_with_backend(backend)
    });
    opened.map_err(|cause| {
        let error = explain(path, cause);
        // The begin of a new database would look like a file of another program.
        if was_empty && !matches!(error, DatabaseError::InUse(_)) {
            let _ = begun.set_len(0);
        }
        error
    })
}

/// Opens or creates the file, and syncs its directory.
fn create(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(file)
}

fn explain(path: &Path, cause: redb::DatabaseError) -> DatabaseError {
    let path = path.to_owned();
    match cause {
        redb::DatabaseError::DatabaseAlreadyOpen | redb::DatabaseError::LockProtocolMismatch => {
            DatabaseError::InUse(path)
        }
        redb::DatabaseError::UpgradeRequired(found) => DatabaseError::OtherFormat { path, found: found.into() },
        redb::DatabaseError::Storage(StorageError::Io(cause)) if cause.kind() == ErrorKind::InvalidData => {
            DatabaseError::NotADatabase(path)
        }
        redb::DatabaseError::Storage(StorageError::Io(cause)) if cause.kind() != ErrorKind::UnexpectedEof => {
            DatabaseError::System { path, cause }
        }
        cause => DatabaseError::Damaged { path, cause: cause.to_string() },
    }
}
