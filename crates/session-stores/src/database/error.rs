//! Errors of a database.

use std::io::ErrorKind;
use std::path::PathBuf;

/// Why a database cannot be used, with the path of its file.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The file cannot be opened or created.
    #[error("{}: {cause}", path.display())]
    System { path: PathBuf, cause: std::io::Error },
    /// Another process has it open, or this process opened it twice.
    #[error("{} is in use: another process has it open, and each node needs a database of its own", .0.display())]
    InUse(PathBuf),
    /// The file is not a database of sessions.
    #[error("{} is not a database of sessions, and is not changed", .0.display())]
    NotADatabase(PathBuf),
    /// Another version of this program wrote it.
    #[error("{} is a database of format {found}, which this version does not support; remove it, and the agent makes a new one", path.display())]
    OtherFormat {
        path: PathBuf,
        /// The format number in the file.
        found: u64,
    },
    /// The content is damaged.
    #[error("{} is damaged ({cause}); remove it, and the agent makes a new one: clients then do full handshakes", path.display())]
    Damaged {
        path: PathBuf,
        /// The inconsistency that was found.
        cause: String,
    },
    /// The database was opened, and cannot be read or written any more.
    #[error("{} cannot be read or written: {cause}", path.display())]
    Failed { path: PathBuf, cause: Box<redb::Error> },
}

impl DatabaseError {
    /// Whether the cause is outside the file, so that it may be gone later: a full disk, for example.
    pub fn is_of_the_system(&self) -> bool {
        match self {
            Self::System { .. } => true,
            Self::Failed { cause, .. } => matches!(**cause, redb::Error::Io(_) | redb::Error::PreviousIo),
            Self::InUse(_) | Self::NotADatabase(_) | Self::OtherFormat { .. } | Self::Damaged { .. } => false,
        }
    }

    /// Whether the disk, or the user's share of it, is full.
    pub fn is_full(&self) -> bool {
        let cause = match self {
            Self::System { cause, .. } => cause,
            Self::Failed { cause, .. } => match &**cause {
                redb::Error::Io(cause) => cause,
                _ => return false,
            },
            _ => return false,
        };
        matches!(cause.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
    }
}
