//! Entries on a disk.
//!
//! ```text
//!              a write fails
//!  working --------------------> off
//!     ^                           | each `RETRY_AFTER`
//!     '---- an empty log is made -'
//! ```
//!
//! After a failed write, foyer 0.22 loses blocks and mixes up their offsets. So its engine is closed then, and an empty
//! log is made. A log with entries would have those that were replaced or removed meanwhile.

mod directory;
mod engine;
mod oldest;
mod queue;
mod record;

use std::mem;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tracing::{debug, error, info, warn};
use watari_cache::{Entry, Key};

use crate::disk::directory::Directory;
use crate::disk::engine::Engine;
use crate::metrics::Metrics;
use crate::{DiskConfig, DiskUsage, OpenError};

pub(crate) use crate::disk::engine::Found;

/// The least size of a disk, in bytes.
pub const DISK_BYTES_MIN: u64 = 16 << 20;

/// Entries on a disk.
#[derive(Debug)]
pub(crate) struct Disk {
    log: Arc<Log>,
    /// It has the directory. None: closed.
    supervisor: Mutex<Option<JoinHandle<()>>>,
}

/// The log, and what is needed to make a new one.
#[derive(Debug)]
struct Log {
    /// None: it is off.
    engine: RwLock<Option<Arc<Engine>>>,
    len: u64,
    metrics: Metrics,
}

impl Disk {
    pub(crate) async fn open(config: DiskConfig, metrics: Metrics) -> Result<Self, OpenError> {
        let directory = Directory::take_elsewhere(config).await?;
        let failed = Arc::new(Notify::new());
        let (directory, engine) = match Engine::open(&directory, metrics.clone(), failed.clone()).await {
            Ok(engine) => (directory, engine),
            Err(cause) => {
                warn!("the cache in {} is damaged, and starts empty: {cause}", directory.path().display());
                open_empty(directory, &metrics, &failed).await.map_err(|(_, error)| error)?
            }
        };
        let log = Arc::new(Log { engine: RwLock::new(Some(engine)), len: directory.len(), metrics });
        let supervisor = Mutex::new(Some(tokio::spawn(supervise(log.clone(), directory, failed))));
        Ok(Self { log, supervisor })
    }

    /// Whether it is worth to read an entry.
    pub(crate) fn may_have(&self, key: &Key) -> bool {
        self.log.engine().is_some_and(|engine| engine.may_have(key))
    }

    pub(crate) async fn read(&self, key: &Key) -> Option<Found> {
        self.log.engine()?.read(key).await
    }

    /// Puts an entry into the queue.
    pub(crate) fn write(&self, key: &Key, entry: &Arc<Entry>) {
        match self.log.engine() {
            Some(engine) => engine.write(key, Some(entry.clone())),
            None => {
                self.log.metrics.disk_writes_dropped.inc();
            }
        }
    }

    pub(crate) fn remove(&self, key: &Key) {
        if let Some(engine) = self.log.engine() {
            engine.write(key, None);
        }
    }

    pub(crate) fn usage(&self) -> DiskUsage {
        let engine = self.log.engine();
        let engine = engine.as_deref();
        DiskUsage {
            is_working: engine.is_some(),
            bytes: self.log.len,
            written_bytes: engine.map_or(0, Engine::written_len),
            queued_bytes: engine.map_or(0, |engine| engine.queued_len() as u64),
        }
    }

    /// Writes the queue, and those of the entries that the log does not have. Then it is off.
    pub(crate) async fn close(&self, entries: impl Iterator<Item = (Key, Arc<Entry>)>) {
        let Some(supervisor) = self.supervisor() else { return };
        if let Some(engine) = self.log.engine() {
            let _ = timeout(REFILL_MAX, refill(&engine, entries)).await;
            self.log.set(None);
            engine.close().await;
        }
        supervisor.abort();
        // The directory is free afterwards.
        let _ = supervisor.await;
        self.log.set(None);
    }

    fn supervisor(&self) -> Option<JoinHandle<()>> {
        self.supervisor.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(supervisor) = self.supervisor() {
            supervisor.abort();
        }
    }
}

impl Log {
    fn engine(&self) -> Option<Arc<Engine>> {
        self.engine.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, engine: Option<Arc<Engine>>) -> Option<Arc<Engine>> {
        mem::replace(&mut *self.engine.write().unwrap_or_else(PoisonError::into_inner), engine)
    }
}

async fn refill(engine: &Engine, entries: impl Iterator<Item = (Key, Arc<Entry>)>) {
    for (key, entry) in entries {
        if !engine.may_have(&key) {
            engine.make_room().await;
            engine.write(&key, Some(entry));
        }
    }
}

/// Turns the log off when a write has failed, and on again when an empty one can be made.
async fn supervise(log: Arc<Log>, mut directory: Directory, failed: Arc<Notify>) {
    loop {
        failed.notified().await;
        let Some(engine) = log.set(None) else { continue };
        let path = directory.path().to_owned();
        error!(
            "cannot write to the cache in {}: the disk is full or broken, and the cache goes on in memory",
            path.display()
        );
        if !engine.close().await {
            error!("cannot close the cache in {}: it is off until a restart", path.display());
            return;
        }
        drop(engine);
        let engine;
        (directory, engine) = reopen(directory, &log.metrics, &failed).await;
        log.set(Some(engine));
        info!("the cache in {} works again, and starts empty", path.display());
    }
}

async fn reopen(mut directory: Directory, metrics: &Metrics, failed: &Arc<Notify>) -> (Directory, Arc<Engine>) {
    loop {
        sleep(RETRY_AFTER).await;
        match open_empty(directory, metrics, failed).await {
            Ok(opened) => return opened,
            Err((unusable, cause)) => {
                debug!("{cause}");
                directory = unusable;
            }
        }
    }
}

async fn open_empty(
    directory: Directory,
    metrics: &Metrics,
    failed: &Arc<Notify>,
) -> Result<(Directory, Arc<Engine>), (Directory, OpenError)> {
    let directory = directory.clear_elsewhere().await?;
    match Engine::open(&directory, metrics.clone(), failed.clone()).await {
        Ok(engine) => Ok((directory, engine)),
        Err(cause) => {
            let error = OpenError::Engine { directory: directory.path().to_owned(), cause };
            Err((directory, error))
        }
    }
}

const REFILL_MAX: Duration = Duration::from_secs(5);

const RETRY_AFTER: Duration = Duration::from_secs(5);
