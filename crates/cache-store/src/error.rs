//! Why a store cannot be opened.

use std::io;
use std::path::PathBuf;

use crate::disk::DISK_BYTES_MIN;

/// Why a store cannot be opened. The operator has to change the configuration or the machine.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be made or written, or the disk has no room for all of the store.
    #[error("cannot use {} for the cache: {cause}", .directory.display())]
    Directory { directory: PathBuf, cause: io::Error },
    #[error("cannot use {} for the cache: another process uses it", .directory.display())]
    InUse { directory: PathBuf },
    #[error("cannot use {} for the cache: {bytes_max} bytes are less than {DISK_BYTES_MIN}", .directory.display())]
    TooSmall { directory: PathBuf, bytes_max: u64 },
    #[error("cannot use {} for the cache: {cause}", .directory.display())]
    Engine { directory: PathBuf, cause: String },
}
