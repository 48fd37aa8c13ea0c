//! Sessions in a file, sealed with ticket keys.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use watari_session::Session;
use watari_session_stores::{Database, Entry, Usage, Writer, WriterCounters};
use watari_values::SessionKey;

use super::clock::Clock;
use super::tickets::TicketRing;

/// The file for sessions that survive a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseFile {
    /// The path. Each agent has its own file.
    pub path: PathBuf,
    /// The limit on the size of the sessions, in bytes. The file itself is larger.
    pub bytes_max: u64,
}

/// The state of the session file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseStatus {
    /// The number of sessions, and their size in bytes.
    pub usage: Usage,
    /// Counts of written and lost sessions.
    pub counters: WriterCounters,
}

/// The file. It never holds a secret in the clear, nor any key. So an expired or replaced session in it cannot be
/// opened after its epoch's key is destroyed.
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

    /// Queues a session for writing. Drops it if there is no key to seal it with.
    pub(super) fn put(&self, key: SessionKey, session: &Session) {
        if let Some(value) = self.ring.seal_kept(&key, session) {
            self.writer.put(Entry { key, value, expires: session.expires });
        }
    }

    /// Returns the sessions with these keys that are stored and can be opened.
    pub(super) async fn get(&self, keys: Vec<SessionKey>) -> Vec<(SessionKey, Session)> {
        let entries = self.writer.get(keys).await.into_iter();
        entries.filter_map(|entry| Some((entry.key, self.ring.open_kept(&entry.key, &entry.value)?))).collect()
    }

    /// Waits until all queued sessions are written.
    pub(super) async fn flush(&self) {
        self.writer.flush().await;
    }

    pub(super) fn status(&self) -> Option<DatabaseStatus> {
        let usage = self.writer.database().usage().ok()?;
        Some(DatabaseStatus { usage, counters: self.writer.counters() })
    }
}
