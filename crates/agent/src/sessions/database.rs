//! Sessions in a file, sealed with the keys of tickets.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use watari_session::Session;
use watari_session_stores::{Database, Entry, Usage, Writer, WriterCounters};
use watari_wire::SessionKey;

use super::clock::Clock;
use super::tickets::TicketRing;

/// Where sessions are kept that shall outlive the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseFile {
    /// Which file; each agent has its own.
    pub path: PathBuf,
    /// How much the sessions in it may take, in bytes. The file itself is larger.
    pub bytes_max: u64,
}

/// The sessions in the file, and what became of those that were to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseStatus {
    /// How many, and how many bytes they take.
    pub usage: Usage,
    /// What was written, and what was not.
    pub counters: WriterCounters,
}

/// The file. It never holds a secret in the clear, nor any key: what expires in it, or is replaced, cannot be opened once its
/// epoch's key is destroyed.
pub(super) struct SealedDatabase {
    writer: Writer,
    ring: Arc<TicketRing>,
}

impl SealedDatabase {
    pub(super) fn open(file: &DatabaseFile, ring: Arc<TicketRing>, clock: Clock) -> io::Result<Self> {
        let database = Database::open(&file.path, file.bytes_max).map_err(io::Error::other)?;
        let writer = Writer::start(database, move || clock.unix_s())?;
        Ok(Self { writer, ring })
    }

    /// Keeps a session, soon. Where there is no key to seal it with, it is not kept.
    pub(super) fn put(&self, key: SessionKey, session: &Session) {
        if let Some(value) = self.ring.seal_kept(&key, session) {
            self.writer.put(Entry { key, value, expires: session.expires });
        }
    }

    /// Those of the sessions with these keys that are there and can be opened.
    pub(super) async fn get(&self, keys: Vec<SessionKey>) -> Vec<(SessionKey, Session)> {
        let entries = self.writer.get(keys).await.into_iter();
        entries.filter_map(|entry| Some((entry.key, self.ring.open_kept(&entry.key, &entry.value)?))).collect()
    }

    /// Returns when all that was put is in the file.
    pub(super) async fn flush(&self) {
        self.writer.flush().await;
    }

    pub(super) fn status(&self) -> Option<DatabaseStatus> {
        let usage = self.writer.database().usage().ok()?;
        Some(DatabaseStatus { usage, counters: self.writer.counters() })
    }
}
