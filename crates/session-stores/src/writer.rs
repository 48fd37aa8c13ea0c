//! Access to a database for callers that must not block.
//!
//! ```text
//!   put, take --> queue (bounded; beyond it: dropped) --> a thread: one transaction for all orders that have gathered
//!   get --------> lookups in progress (bounded; beyond it: not found) --> a thread of the runtime for blocking work
//! ```

mod counters;
mod thread;

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use tokio::sync::{Semaphore, oneshot};
use tokio::task::spawn_blocking;
use watari_values::SessionKey;

use counters::Counters;
pub use counters::WriterCounters;
use thread::{Clock, Order, Thread};

use crate::{Database, Entry};

/// Writes to a database in a thread of its own, and reads from it in threads of the runtime.
///
/// No call returns an error. An entry is found once its transaction is on disk, usually some 10 ms after
/// [`Writer::put`]. Entries that the disk is too slow for, or does not take, are dropped and counted. Dropping a
/// `Writer` waits until the queue is written.
pub struct Writer {
    database: Arc<Database>,
    clock: Clock,
    /// `None` while it is being dropped.
    queue: Option<SyncSender<Order>>,
    lookups: Arc<Semaphore>,
    counters: Arc<Counters>,
    thread: Option<JoinHandle<()>>,
}

/// The maximum number of orders that wait to be written.
const QUEUE: usize = 8192;
/// The maximum number of lookups in progress. More would take all threads for blocking work from other parts of the
/// runtime.
const LOOKUPS: usize = 32;

impl Writer {
    /// Starts to write to `database`, and to remove expired entries. `clock` returns the time, in seconds of Unix time.
    pub fn start(database: Database, clock: impl Fn() -> u64 + Send + Sync + 'static) -> std::io::Result<Self> {
        Self::start_with(database, clock, QUEUE, LOOKUPS)
    }

    fn start_with(
        database: Database,
        clock: impl Fn() -> u64 + Send + Sync + 'static,
        queue: usize,
        lookups: usize,
    ) -> std::io::Result<Self> {
        let (database, clock, counters): (_, Clock, _) = (Arc::new(database), Arc::new(clock), Arc::default());
        let (queue, orders) = sync_channel(queue);
        let thread = Thread::new(Arc::clone(&database), Arc::clone(&clock), Arc::clone(&counters));
        let thread = std::thread::Builder::new().name("sessions".to_owned()).spawn(move || thread.run(&orders))?;
        let (queue, lookups) = (Some(queue), Arc::new(Semaphore::new(lookups)));
        Ok(Self { database, clock, queue, lookups, counters, thread: Some(thread) })
    }

    /// Stores an entry until it expires, in place of another with its key.
    pub fn put(&self, entry: Entry) {
        self.order(Order::Put(entry));
    }

    /// Removes the entry with this key. If the process is killed before the transaction, the entry reappears after a
    /// restart.
    pub fn take(&self, key: SessionKey) {
        self.order(Order::Take(key));
    }

    /// The entries with these keys that are in the file and have not expired.
    pub async fn get(&self, keys: Vec<SessionKey>) -> Vec<Entry> {
        let Ok(turn) = Arc::clone(&self.lookups).try_acquire_owned() else {
            self.counters.refused();
            return Vec::new();
        };
        let (database, counters, now) = (Arc::clone(&self.database), Arc::clone(&self.counters), (self.clock)());
        let lookup = spawn_blocking(move || {
            let found = database.get(&keys, now);
            drop(turn);
            found.unwrap_or_else(|error| {
                counters.failed(1, &error);
                Vec::new()
            })
        });
        lookup.await.unwrap_or_default()
    }

    /// Returns when all earlier puts and takes are written, or have failed.
    pub async fn flush(&self) {
        let Some(queue) = self.queue.clone() else { return };
        let (done, written) = oneshot::channel();
        // If the queue is full, this waits, too.
        let sent = spawn_blocking(move || queue.send(Order::Flush(done)));
        if matches!(sent.await, Ok(Ok(()))) {
            let _ = written.await;
        }
    }

    /// The database itself, for callers that may block.
    pub fn database(&self) -> &Database {
        &self.database
    }

    pub fn counters(&self) -> WriterCounters {
        self.counters.now()
    }

    fn order(&self, order: Order) {
        if self.queue.as_ref().is_none_or(|queue| queue.try_send(order).is_err()) {
            self.counters.dropped();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // If the thread has panicked, that was logged when it happened.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("database", &self.database).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
