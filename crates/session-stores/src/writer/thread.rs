//! The thread that writes.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use watari_values::SessionKey;

use super::counters::Counters;
use crate::database::Change;
use crate::{Database, DatabaseError, Entry};

/// Returns the time, in seconds of Unix time.
pub(super) type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// A task of the writer.
pub(super) enum Order {
    Put(Entry),
    Take(SessionKey),
    /// Sent when all orders before it are done.
    Flush(oneshot::Sender<()>),
}

pub(super) struct Thread {
    database: Arc<Database>,
    clock: Clock,
    counters: Arc<Counters>,
    /// When to look next for expired entries.
    expire_at: Instant,
    /// When to open the file again after an error.
    reopen_at: Option<Instant>,
}

/// A transaction gathers orders for at most this time ..
const GATHER: Duration = Duration::from_millis(50);
/// .. and at most this many. Each order waits until the disk has all of them.
const BATCH: usize = 1000;
const EXPIRE_EVERY: Duration = Duration::from_secs(1);
/// The pause before the file is opened again, which takes as long as reading it.
const REOPEN_AFTER: Duration = Duration::from_secs(10);

impl Thread {
    pub(super) fn new(database: Arc<Database>, clock: Clock, counters: Arc<Counters>) -> Self {
        Self { database, clock, counters, expire_at: Instant::now(), reopen_at: None }
    }

    /// Executes orders until all senders are dropped.
    pub(super) fn run(mut self, orders: &Receiver<Order>) {
        loop {
            match orders.recv_timeout(self.expire_at.saturating_duration_since(Instant::now())) {
                Ok(first) => self.write(&mut gather(orders, first)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.expire();
            self.reopen();
        }
    }

    fn write(&mut self, orders: &mut Vec<Order>) {
        let changes = || orders.iter().filter_map(Order::change);
        let count = changes().count();
        if count > 0 {
            match self.database.apply(changes(), (self.clock)()) {
                Ok(done) => self.counters.written(count, done.evicted),
                Err(error) => self.failed(count, &error),
            }
        }
        for order in orders.drain(..) {
            if let Order::Flush(done) = order {
                // The receiver may have been dropped.
                let _ = done.send(());
            }
        }
    }

    fn failed(&mut self, count: usize, error: &DatabaseError) {
        self.counters.failed(count, error);
        if error.is_of_the_system() {
            self.reopen_at.get_or_insert_with(|| Instant::now() + REOPEN_AFTER);
        }
    }

    /// Opens the file again some time after an error. Otherwise no later write would succeed.
    fn reopen(&mut self) {
        if self.reopen_at.is_none_or(|at| Instant::now() < at) {
            return;
        }
        self.reopen_at = None;
        if let Err(error) = self.database.reopen() {
            self.failed(0, &error);
        }
    }

    /// Removes some of the expired entries. If more are left, the next call comes soon.
    fn expire(&mut self) {
        if Instant::now() < self.expire_at {
            return;
        }
        let expired = self.database.expire((self.clock)()).unwrap_or_else(|error: DatabaseError| {
            self.failed(0, &error);
            0
        });
        let pause = if expired == crate::EXPIRE_MAX { GATHER } else { EXPIRE_EVERY };
        self.expire_at = Instant::now() + pause;
    }
}

impl Order {
    fn change(&self) -> Option<Change<'_>> {
        match self {
            Self::Put(entry) => Some(Change::Put(entry)),
            Self::Take(key) => Some(Change::Take(key)),
            Self::Flush(_) => None,
        }
    }
}

/// The orders that arrive soon after `first`. A flush ends the gathering.
fn gather(orders: &Receiver<Order>, first: Order) -> Vec<Order> {
    let due = Instant::now() + GATHER;
    let mut gathered = vec![first];
    while gathered.len() < BATCH && !matches!(gathered.last(), Some(Order::Flush(_))) {
        let Ok(next) = orders.recv_timeout(due.saturating_duration_since(Instant::now())) else { break };
        gathered.push(next);
    }
    gathered
}
