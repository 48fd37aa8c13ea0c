//! The store of the response cache: entries in memory, and on a disk.
//!
//! ```text
//!  get_now() --> memory                       insert() --> memory --> evicted
//!                   ^                                 '--> queue --> disk: a log of blocks; the oldest one is reused
//!  get() -----------+<-- disk                 remove() --> memory, and a mark in the log
//! ```
//!
//! * **Memory**: crate `quick_cache` (S3-FIFO). It is bounded in bytes. `examples/hit_ratios.rs` compares policies.
//! * **Disk**: crate `foyer`. Each insertion is written at once, so that a restart, or the end of the process at any
//!   moment, keeps the entries. [`Store::close`] adds those that are in memory, and that the log has overwritten.
//!
//! **Invariants**
//!
//! * No caller waits for the disk, except [`Store::get`] for an entry that is there. If the disk is slow, writes are
//!   dropped and counted.
//! * An entry of the disk has two checksums, and its key. If one of them is wrong, it is a miss.
//! * After an insertion or a removal, `get` does not find an earlier entry of the key, also if the write is dropped.
//!   Only a restart before the write is done, or after it was dropped, finds it again.
//! * If a write fails, the disk is off until an empty store can be made there. The store goes on with memory.

mod disk;
mod error;
mod hashing;
mod memory;
mod metrics;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use watari_cache::{Entry, Key};

use crate::disk::Disk;
use crate::hashing::STRIPES;
use crate::memory::Memory;

pub use disk::DISK_BYTES_MIN;
pub use error::OpenError;
pub use metrics::Metrics;

/// The settings of a store.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// For entries in memory, with what the store needs for each. A disk needs 48 MiB more, and memory for each entry
    /// on it: 84 bytes with 10 million entries (`tests/store/measure.rs`).
    pub memory_bytes_max: usize,
    pub disk: Option<DiskConfig>,
}

/// A directory for entries.
#[derive(Debug, Clone)]
pub struct DiskConfig {
    /// It is made if it is missing. It belongs to one store at a time.
    pub directory: PathBuf,
    /// At least [`DISK_BYTES_MIN`]. The files have this size from the start.
    pub bytes_max: u64,
}

/// Entries by their keys. Clones share them.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    memory: Memory,
    disk: Option<Disk>,
    /// By key: makes a change of memory and disk one step.
    changes: [Mutex<()>; STRIPES],
}

/// What a store takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub memory_bytes: u64,
    pub memory_entries: u64,
    pub disk: Option<DiskUsage>,
}

/// What a store has on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskUsage {
    /// False while writing fails.
    pub is_working: bool,
    /// The size of the files.
    pub bytes: u64,
    /// Bytes written since the start, with the padding of entries.
    pub written_bytes: u64,
    /// Bytes that wait for being written.
    pub queued_bytes: u64,
}

impl Store {
    /// Opens the store, with the entries that the directory has. Needs a tokio runtime with a timer.
    pub async fn open(config: StoreConfig, metrics: Metrics) -> Result<Self, OpenError> {
        let memory = Memory::new(config.memory_bytes_max, metrics.clone());
        let disk = match config.disk {
            Some(config) => Some(Disk::open(config, metrics).await?),
            None => None,
        };
        Ok(Self { inner: Arc::new(Inner { memory, disk, changes: [const { Mutex::new(()) }; STRIPES] }) })
    }

    /// From memory only, without waiting: the hot path.
    pub fn get_now(&self, key: &Key) -> Option<Arc<Entry>> {
        self.inner.memory.get(key)
    }

    /// From memory or disk. An entry of the disk is in memory afterwards. Concurrent calls read it once.
    pub async fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        let entry = self.get_now(key);
        let Some(disk) = self.inner.disk.as_ref().filter(|disk| entry.is_none() && disk.may_have(key)) else {
            return entry;
        };
        let loading = match self.inner.memory.get_or_load(key).await {
            Ok(entry) => return Some(entry),
            Err(loading) => loading,
        };
        let found = disk.read(key).await?;
        loading.finish(&found.entry);
        if found.is_overwritten_soon {
            let _change = self.change(key);
            // Otherwise, a later insertion or removal would be undone.
            if self.inner.memory.has(key, &found.entry) {
                disk.write(key, &found.entry);
            }
        }
        Some(found.entry)
    }

    /// Stores an entry, in place of an earlier one. It may be dropped at any time.
    pub fn insert(&self, key: Key, entry: Arc<Entry>) {
        let Some(disk) = &self.inner.disk else { return self.inner.memory.insert(key, entry) };
        let _change = self.change(&key);
        self.inner.memory.insert(key, entry.clone());
        disk.write(&key, &entry);
    }

    /// Stores an entry, unless memory or disk may have one under the key. Returns whether it was stored.
    pub fn insert_if_absent(&self, key: Key, entry: Arc<Entry>) -> bool {
        let _change = self.change(&key);
        let disk = self.inner.disk.as_ref();
        if self.inner.memory.get(&key).is_some() || disk.is_some_and(|disk| disk.may_have(&key)) {
            return false;
        }
        if let Some(disk) = disk {
            disk.write(&key, &entry);
        }
        self.inner.memory.insert(key, entry);
        true
    }

    pub fn remove(&self, key: &Key) {
        let _change = self.change(key);
        self.inner.memory.remove(key);
        if let Some(disk) = &self.inner.disk {
            disk.remove(key);
        }
    }

    /// The entries in memory, in no order. Insertions and removals meanwhile may be among them or not.
    pub fn in_memory(&self) -> impl Iterator<Item = (Key, Arc<Entry>)> {
        self.inner.memory.entries()
    }

    pub fn usage(&self) -> Usage {
        let (memory_bytes, memory_entries) = self.inner.memory.usage();
        Usage { memory_bytes, memory_entries, disk: self.inner.disk.as_ref().map(Disk::usage) }
    }

    /// Writes the entries of the queue, and those of memory that are not on the disk, for 10 seconds at most. Then the
    /// disk is off, and another store may use its directory.
    pub async fn close(&self) {
        if let Some(disk) = &self.inner.disk {
            disk.close(self.inner.memory.entries()).await;
        }
    }

    fn change(&self, key: &Key) -> MutexGuard<'_, ()> {
        self.inner.changes[hashing::stripe(key)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
