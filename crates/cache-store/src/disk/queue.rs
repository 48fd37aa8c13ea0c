//! The bound of the bytes that wait for the disk, and what becomes of each write.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;
use watari_cache::Key;

use crate::hashing::{STRIPES, stripe};
use crate::metrics::Metrics;

/// Whether the index has a key. None: the engine has ended.
type Index = Box<dyn Fn(&Key) -> Option<bool> + Send + Sync>;

/// The writes of an engine that are not done.
pub(super) struct Queue {
    len: AtomicUsize,
    len_max: usize,
    /// By key: the number of records that were removed from the index.
    removals: [AtomicU64; STRIPES],
    index: OnceLock<Index>,
    metrics: Metrics,
    /// Notified when a write has failed.
    failed: Arc<Notify>,
}

/// A write in the queue.
#[derive(Debug)]
pub(super) struct Ticket {
    queue: Arc<Queue>,
    key: Key,
    len: usize,
    removals: u64,
}

impl Queue {
    pub(super) fn new(len_max: usize, metrics: Metrics, failed: Arc<Notify>) -> Arc<Self> {
        let removals = [const { AtomicU64::new(0) }; STRIPES];
        Arc::new(Self { len: AtomicUsize::new(0), len_max, removals, index: OnceLock::new(), metrics, failed })
    }

    /// Sets the index, once.
    pub(super) fn set_index(&self, index: impl Fn(&Key) -> Option<bool> + Send + Sync + 'static) {
        let _ = self.index.set(Box::new(index));
    }

    /// A ticket for a record of this length in bytes, if there is room.
    pub(super) fn enter(self: &Arc<Self>, key: &Key, len: usize) -> Option<Ticket> {
        let len = (len + RECORD_OVERHEAD).next_multiple_of(PAGE_LEN);
        let before = self.len.fetch_add(len, Ordering::Relaxed);
        let ticket = Ticket { queue: self.clone(), key: *key, len, removals: self.removals(key) };
        if before + len <= self.len_max {
            return Some(ticket);
        }
        ticket.finish(false);
        None
    }

    /// Counts a removal from the index, before it.
    pub(super) fn count_removal(&self, key: &Key) {
        self.removals[stripe(key)].fetch_add(1, Ordering::Relaxed);
    }

    /// The number of removals from the index of keys like this one.
    pub(super) fn removals(&self, key: &Key) -> u64 {
        self.removals[stripe(key)].load(Ordering::Relaxed)
    }

    pub(super) fn is_half_full(&self) -> bool {
        self.len() > self.len_max / 2
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }
}

impl Ticket {
    /// Leaves the queue. If foyer has encoded the record, but does not have it in its index, the write has failed.
    /// Foyer logs the cause.
    pub(super) fn finish(self, is_encoded: bool) {
        self.queue.len.fetch_sub(self.len, Ordering::Relaxed);
        if !is_encoded {
            self.queue.metrics.disk_writes_dropped.inc();
            return;
        }
        let is_written = self.queue.index.get().and_then(|index| index(&self.key)).unwrap_or(true);
        if !is_written && self.queue.removals(&self.key) == self.removals {
            self.queue.metrics.disk_writes_failed.inc();
            self.queue.failed.notify_one();
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Foyer pads records to pages.
const PAGE_LEN: usize = 4096;

/// What a record has besides an entry of this weight, in bytes: headers, the key, the checksum.
const RECORD_OVERHEAD: usize = 256;
