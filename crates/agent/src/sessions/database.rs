//! Sessions in a file, sealed with ticket keys.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use watari_session::Session;
use watari_session_stores::{Database, DatabaseError, Entry, Usage, Writer, WriterCounters};
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

/// How long another process of this node may take to close the file, and how often this one tries to open it.
const OPEN_MAX: Duration = Duration::from_mins(1);
const OPEN_AGAIN: Duration = Duration::from_millis(50);
/// How often the agent tries to open the file while the disk is full.
const OPEN_WHEN_FULL: Duration = Duration::from_secs(10);
/// How long the agent waits until the file is closed.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// The file, which only one process can open. During an upgrade, the predecessor closes it and the successor opens it.
pub(super) struct OneProcessDatabase {
    file: Option<DatabaseFile>,
    ring: Arc<TicketRing>,
    clock: Clock,
    state: Mutex<FileState>,
}

#[derive(Default)]
struct FileState {
    open: Option<Arc<SealedDatabase>>,
    /// Whether this process has the file, or is about to open it.
    is_wanted: bool,
}

impl OneProcessDatabase {
    /// `file`: `None` if sessions are only in memory. The file is not open.
    pub(super) fn new(file: Option<DatabaseFile>, ring: Arc<TicketRing>, clock: Clock) -> Self {
        Self { file, ring, clock, state: Mutex::default() }
    }

    /// The file, if it is open.
    pub(super) fn get(&self) -> Option<Arc<SealedDatabase>> {
        self.state().open.clone()
    }

    /// Opens the file at once. If the disk is full, opens it when there is room. That requires a tokio runtime.
    pub(super) fn open(self: &Arc<Self>) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        match SealedDatabase::open(file, Arc::clone(&self.ring), self.clock) {
            Ok(opened) => {
                *self.state() = FileState { open: Some(Arc::new(opened)), is_wanted: true };
                Ok(())
            }
            Err(error) if error.is_full() => {
                log_full(&error);
                self.open_soon();
                Ok(())
            }
            Err(error) => Err(io::Error::other(format!("{error} (agent.sessions.database)"))),
        }
    }

    /// Opens the file when another process of this node has closed it, unless it is open. Until then, and if that fails,
    /// sessions are only in memory. Requires a tokio runtime.
    pub(super) fn open_soon(self: &Arc<Self>) {
        let was_wanted = std::mem::replace(&mut self.state().is_wanted, true);
        if self.file.is_some() && !was_wanted {
            let this = Arc::clone(self);
            tokio::spawn(async move { this.open_when_closed().await });
        }
    }

    async fn open_when_closed(self: &Arc<Self>) {
        let mut deadline = Instant::now() + OPEN_MAX;
        loop {
            let this = Arc::clone(self);
            let Some(file) = self.file.clone() else { return };
            let opened = spawn_blocking(move || SealedDatabase::open(&file, Arc::clone(&this.ring), this.clock)).await;
            match opened {
                Ok(Ok(opened)) => {
                    let mut state = self.state();
                    // Otherwise a successor of this process waits for the file.
                    state.open = state.is_wanted.then(|| Arc::new(opened));
                    return;
                }
                _ if !self.state().is_wanted => return,
                Ok(Err(error)) if error.is_full() => {
                    log_full(&error);
                    sleep(OPEN_WHEN_FULL).await;
                    deadline = Instant::now() + OPEN_MAX;
                }
                Ok(Err(error)) if Instant::now() >= deadline => {
                    tracing::error!(
                        %error,
                        "cannot open the database of sessions: sessions are only in memory (agent.sessions.database)"
                    );
                    return;
                }
                Ok(Err(_)) => sleep(OPEN_AGAIN).await,
                // The runtime ends.
                Err(_) => return,
            }
        }
    }

    /// Writes what is queued, and closes the file. A lookup in progress keeps it open for a moment.
    pub(super) async fn close(&self) {
        let open = {
            let mut state = self.state();
            state.is_wanted = false;
            state.open.take()
        };
        if let Some(open) = open {
            let close = async {
                open.flush().await;
                // It waits for the thread of the file.
                let _ = spawn_blocking(move || drop(open)).await;
            };
            if timeout(CLOSE_MAX, close).await.is_err() {
                tracing::warn!("the file of sessions is still being written: the new process waits for it");
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, FileState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log_full(error: &DatabaseError) {
    tracing::error!(
        %error,
        "cannot open the database of sessions: sessions are only in memory until there is room (agent.sessions.database)"
    );
}

/// The open file. It never holds a secret in the clear, nor any key. So an expired or replaced session in it cannot be
/// opened after its epoch's key is destroyed.
pub(super) struct SealedDatabase {
    writer: Writer,
    ring: Arc<TicketRing>,
}

impl SealedDatabase {
    pub(super) fn open(file: &DatabaseFile, ring: Arc<TicketRing>, clock: Clock) -> Result<Self, DatabaseError> {
        let database = Database::open(&file.path, file.bytes_max)?;
        let writer = Writer::start(database, move || clock.unix_s());
        let writer = writer.map_err(|cause| DatabaseError::System { path: file.path.clone(), cause })?;
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
