//! Foyer's disk cache, with a runtime of its own.

use std::io;
use std::mem::forget;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use foyer::{
    Age, BlockEngineConfig, Device, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder, HybridCachePolicy,
    Load, PsyncIoEngineConfig, RecoverMode, Spawner,
};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::time::timeout;
use watari_cache::{Entry, Key};
use watari_sys::return_memory;

use crate::disk::directory::Directory;
use crate::disk::oldest::Oldest;
use crate::disk::queue::Queue;
use crate::disk::record::{Record, RecordKey};
use crate::hashing::KeyHashing;
use crate::metrics::Metrics;

type Cache = HybridCache<RecordKey, Record, KeyHashing>;

/// A log of blocks, and the index of its entries in memory.
#[derive(Debug)]
pub(super) struct Engine {
    /// Its memory part is not used.
    cache: Cache,
    queue: Arc<Queue>,
    record_len_max: usize,
    metrics: Metrics,
    /// Has the open files. Foyer's writes use their descriptors, and do not hold the files.
    device: Option<Arc<dyn Device>>,
    is_closed: AtomicBool,
    /// Foyer's tasks hold one another, and end with this.
    _threads: Threads,
}

/// A runtime that ends without blocking.
#[derive(Debug)]
struct Threads(Option<Runtime>);

/// An entry of the disk.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) entry: Arc<Entry>,
    /// Its block is one of those that are overwritten next.
    pub(crate) is_overwritten_soon: bool,
}

impl Engine {
    /// Opens the log with the entries that it has. `failed` is notified when a write has failed.
    pub(super) async fn open(
        directory: &Directory,
        metrics: Metrics,
        failed: Arc<Notify>,
    ) -> Result<Arc<Self>, String> {
        let threads = Threads::start().map_err(|error| error.to_string())?;
        let times = directory.times().map_err(|error| error.to_string())?;
        directory.free_one(&times).map_err(|error| error.to_string())?;
        let buffer_len = BUFFER_LEN_MAX.min(directory.len() as usize / 8);
        let device = FsDeviceBuilder::new(directory.path()).with_capacity(directory.len() as usize).build();
        let device = device.map_err(|error| error.to_string())?;
        let is_open = Arc::new(AtomicBool::new(false));
        let log = BlockEngineConfig::new(device.clone())
            .with_block_size(directory.block_len())
            .with_buffer_pool_size(buffer_len)
            // `Queue` has the bound.
            .with_submit_queue_size_threshold(usize::MAX)
            .with_eviction_pickers(vec![Box::new(Oldest::new(&times, is_open.clone()))]);
        let building = HybridCacheBuilder::new()
            .with_policy(HybridCachePolicy::WriteOnInsertion)
            .with_flush_on_close(false)
            .memory(1)
            .with_hash_builder(KeyHashing)
            .storage()
            .with_io_engine_config(PsyncIoEngineConfig::new())
            .with_engine_config(log)
            .with_recover_mode(RecoverMode::Quiet)
            .with_spawner(Spawner::from(threads.handle().clone()))
            .build();
        // A task, because foyer panics for a few forged files.
        let cache = match threads.handle().spawn(building).await {
            Ok(Ok(cache)) => cache,
            Ok(Err(error)) => return Err(error.to_string()),
            Err(error) => return Err(error.to_string()),
        };
        // Foyer has read the index of the log into lists that are larger than the index in memory.
        let _ = threads.handle().spawn(async { return_memory() }).await;
        is_open.store(true, Ordering::Relaxed);
        directory.set_times(&times).map_err(|error| error.to_string())?;
        let queue = Queue::new(buffer_len, metrics.clone(), failed);
        let record_len_max = (directory.block_len() - 2 * BLOB_INDEX_LEN).min(buffer_len);
        let engine = Arc::new(Self {
            cache,
            queue,
            record_len_max,
            metrics,
            device: Some(device),
            is_closed: AtomicBool::new(false),
            _threads: threads,
        });
        let index = Arc::downgrade(&engine);
        engine.queue.set_index(move |key| index.upgrade().map(|engine| engine.may_have(key)));
        Ok(engine)
    }

    /// Whether the log has an entry of the key, or of one with the same hash, or one is on its way there.
    pub(super) fn may_have(&self, key: &Key) -> bool {
        self.cache.storage().may_contains(&RecordKey(*key))
    }

    pub(super) async fn read(&self, key: &Key) -> Option<Found> {
        let (cache, record_key) = (self.cache.clone(), RecordKey(*key));
        let removals = self.queue.removals(key);
        // A task, because foyer panics for a few forged files.
        let load = tokio::spawn(async move { cache.storage().load(&record_key).await }).await;
        match load {
            Ok(Ok(Load::Entry { value, populated, .. })) => {
                let is_overwritten_soon = populated.age == Age::Old;
                Some(Found { entry: value.entry.clone()?, is_overwritten_soon })
            }
            Ok(Ok(Load::Piece { piece, .. })) => {
                Some(Found { entry: piece.value().entry.clone()?, is_overwritten_soon: false })
            }
            Ok(Ok(Load::Miss | Load::Throttled)) => {
                if !self.may_have(key) && self.queue.removals(key) == removals {
                    self.metrics.disk_entries_damaged.inc();
                }
                None
            }
            Ok(Err(_)) | Err(_) => {
                self.metrics.disk_reads_failed.inc();
                None
            }
        }
    }

    /// Puts an entry into the queue. None: the mark of a removal.
    pub(super) fn write(&self, key: &Key, entry: Option<Arc<Entry>>) {
        let len = entry.as_ref().map_or(0, |entry| entry.weight());
        // Otherwise the earlier entry would stay if this write is dropped.
        let had_entry = self.may_have(key);
        if had_entry {
            self.queue.count_removal(key);
            self.cache.storage().delete(&RecordKey(*key));
        }
        if entry.is_none() && !had_entry {
            return;
        }
        if len > self.record_len_max {
            self.metrics.disk_writes_dropped.inc();
            return;
        }
        if let Some(ticket) = self.queue.enter(key, len) {
            self.cache.storage_writer(RecordKey(*key)).force().insert(Record::new(entry, ticket));
        }
    }

    /// Waits until there is room for entries in the queue.
    pub(super) async fn make_room(&self) {
        if self.queue.is_half_full() {
            self.cache.storage().wait().await;
        }
    }

    pub(super) fn queued_len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn written_len(&self) -> u64 {
        self.cache.statistics().disk_write_bytes() as u64
    }

    /// Waits until all writes are done, and returns whether they are.
    pub(super) async fn close(&self) -> bool {
        let is_closed = matches!(timeout(CLOSE_MAX, self.cache.close()).await, Ok(Ok(())));
        self.is_closed.store(is_closed, Ordering::Relaxed);
        is_closed
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(device) = self.device.take()
            && !*self.is_closed.get_mut()
        {
            // A write may be in progress. If the file was closed, the write could go to another file.
            forget(device);
        }
    }
}

impl Threads {
    fn start() -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_blocking_threads(BLOCKING_THREADS).enable_time().thread_name("cache-disk");
        Ok(Self(Some(builder.build()?)))
    }

    fn handle(&self) -> &Handle {
        self.0.as_ref().expect("it is there until the end").handle()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Bytes that are written together, at most. There are two buffers, and entries for one of them.
const BUFFER_LEN_MAX: usize = 16 << 20;

/// Reads and writes at the same time.
const BLOCKING_THREADS: usize = 16;

/// Foyer's index of some entries in a block, in bytes.
const BLOB_INDEX_LEN: usize = 4096;

const CLOSE_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::DiskConfig;

    use super::*;

    #[tokio::test]
    async fn entries_that_are_overwritten_soon_are_known() {
        let temporary = tempfile::tempdir().unwrap();
        let config = DiskConfig { directory: temporary.path().to_owned(), bytes_max: 40 << 20 };
        let directory = Directory::take_elsewhere(config).await.unwrap();
        let engine = Engine::open(&directory, Metrics::default(), Arc::default()).await.unwrap();
        let key = |number: u8| Key([number; 16]);
        let piece = Arc::new(Entry::Piece(vec![7; 250_000].into()));
        // 4 in a block of 1 MiB.
        for number in 0..240 {
            engine.make_room().await;
            engine.write(&key(number), Some(piece.clone()));
        }
        engine.cache.storage().wait().await;
        let mut found = Vec::new();
        for number in 0..240 {
            found.extend(engine.read(&key(number)).await.map(|found| found.is_overwritten_soon));
        }
        let soon = found.iter().filter(|is_soon| **is_soon).count();
        assert!((130..160).contains(&found.len()), "{}", found.len());
        assert!((4..=16).contains(&soon), "{soon}");
        assert!(found[..soon].iter().all(|is_soon| *is_soon), "the oldest ones: {found:?}");
    }
}
