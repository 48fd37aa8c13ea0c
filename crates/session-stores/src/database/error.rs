//! Why a database is of no use.

use std::path::PathBuf;

/// What is wrong with a database, and in which file it is.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The system does not give us the file.
    #[error("{}: {cause}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: std::io::Error,
    },
    /// Another process has it open, or this one twice.
    #[error("{} is in use: another process has it open, and each node needs a database of its own", .0.display())]
    InUse(PathBuf),
    /// The file was never a database of sessions.
    #[error("{} is something else than a database of sessions, and is left alone", .0.display())]
    NotADatabase(PathBuf),
    /// It was written by another version of this program.
    #[error("{} is a database of format {found}, which this version does not know; remove it to begin a new one", path.display())]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// It is not as it was written.
    #[error("{} is damaged ({cause}); remove it to begin a new one: it costs full handshakes and nothing else", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        cause: String,
    },
    /// It could be opened, and cannot be read or written any more.
    #[error("{} cannot be read or written: {cause}", path.display())]
    Failed {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        cause: Box<redb::Error>,
    },
}
