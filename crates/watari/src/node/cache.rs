//! The store of cached responses: opens it, writes purges to its directory, and closes it.
//!
//! The directory belongs to one process at a time: a lock on a file in it ensures that. In an upgrade, the new process
//! waits until the previous one has left it. Until the store is open, requests go to origins.
//!
//! Stored responses have to be checked against all purges. So the purges are in a file beside them, and before a node uses
//! responses of the directory, it learns the purges of the other agents. Without that file, it drops the responses.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use watari_agent::Agent;
use watari_cache::Purges;
use watari_cache_store::{DiskConfig, Store, StoreConfig};
use watari_mesh::Mesh;
use watari_proxy::{CacheClosed, Purge, ResponseCache};

use super::error::NodeError;
use crate::config::{CacheStore, Config, SiteMetrics};

/// How often a new process looks whether the previous one has left the directory.
const LOCK_INTERVAL: Duration = Duration::from_millis(50);
/// How long an agent that ends sends stored responses to others.
const HANDING_ON_MAX: Duration = Duration::from_secs(5);
/// How long an order to purge waits for its file.
const WRITE_MAX: Duration = Duration::from_secs(5);
/// The file whose lock a process has with the directory.
const LOCK: &str = "lock";
const PURGES: &str = "purges";
const ENTRIES: &str = "entries";

/// The cache of this node. Its store opens when a configuration first needs it.
pub(super) struct NodeCache {
    site: SiteMetrics,
    parts: Option<(Agent, Mesh)>,
    shutdown: CancellationToken,
    task: Mutex<Option<CacheTask>>,
}

/// The task that has the store.
struct CacheTask {
    task: JoinHandle<()>,
    /// The number of purges that are in the file. `None`: the store has no directory.
    written: watch::Receiver<Option<u64>>,
}

/// A purge is not in effect, or could be lost.
#[derive(Debug, thiserror::Error)]
pub(super) enum PurgeError {
    #[error(transparent)]
    Closed(#[from] CacheClosed),
    #[error("the purge is in effect, but could not be written to the directory of the cache: a restart may lose it")]
    NotWritten,
}

impl NodeCache {
    pub(super) fn new(site: SiteMetrics, parts: Option<(Agent, Mesh)>, shutdown: CancellationToken) -> Self {
        Self { site, parts, shutdown, task: Mutex::default() }
    }

    /// Opens the store in the background, if a route has a cache and it is not open. An unusable directory is an error
    /// at once.
    pub(super) fn open_if_needed(&self, config: &Config) -> Result<(), NodeError> {
        let (Some(parts), Some(store)) = (&self.parts, config.cache_store().filter(|_| config.has_cache())) else {
            return Ok(());
        };
        let mut task = self.task();
        if task.is_none() {
            *task = Some(CacheTask::start(store, self.site.clone(), parts.clone(), self.shutdown.clone())?);
        }
        Ok(())
    }

    /// Sends shared responses to the agents that own them when this one has left. It ends at `deadline`, or after
    /// [`HANDING_ON_MAX`].
    pub(super) async fn hand_on(&self, deadline: Instant) {
        let Some(cache) = self.site.cache.get() else { return };
        match timeout_at(deadline.min(Instant::now() + HANDING_ON_MAX), cache.hand_on()).await {
            Ok(0) => {}
            Ok(entries) => tracing::info!(entries, "other agents have the stored responses"),
            Err(_) => tracing::info!("other agents have only a part of the stored responses"),
        }
    }

    /// Waits until the store is closed, after the shutdown.
    pub(super) async fn closed(&self) {
        let task = self.task().take();
        if let Some(task) = task {
            let _ = task.task.await;
        }
    }

    /// Purges stored responses at all agents. Returns when the purge is in the directory of the store, if it has one.
    pub(super) async fn purge(&self, purge: Purge) -> Result<(), PurgeError> {
        let handle = &self.site.cache;
        handle.purge(purge)?;
        let (number, written) = (handle.get().map_or(0, |cache| cache.purged()), self.written());
        let Some(mut written) = written else { return Ok(()) };
        let is_written = written.wait_for(|written| written.is_none_or(|written| written >= number));
        timeout(WRITE_MAX, is_written).await.ok().and_then(Result::ok).map(drop).ok_or(PurgeError::NotWritten)
    }

    fn written(&self) -> Option<watch::Receiver<Option<u64>>> {
        self.task().as_ref().map(|task| task.written.clone())
    }

    fn task(&self) -> MutexGuard<'_, Option<CacheTask>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheTask {
    fn start(
        config: &CacheStore,
        site: SiteMetrics,
        (agent, mesh): (Agent, Mesh),
        shutdown: CancellationToken,
    ) -> Result<Self, NodeError> {
        let (writer, written) = watch::channel(None);
        let memory_bytes_max = config.memory_bytes_max;
        let Some(directory) = config.directory.clone() else {
            let loaded = site.cache.load(Purges::new(mesh.incarnation()));
            agent.announce_purges();
            let task = tokio::spawn(async move {
                let config = StoreConfig { memory_bytes_max, disk: None };
                let Ok(store) = Store::open(config, site.cache_store.clone()).await else { return };
                agent.share_cache(&loaded.open(store), &mesh, shutdown);
            });
            return Ok(Self { task, written });
        };
        let lock = fs::create_dir_all(&directory).and_then(|()| File::create(directory.join(LOCK)));
        let lock = lock.map_err(|cause| NodeError::CacheDirectory { directory: directory.clone(), cause })?;
        let disk = Some(DiskConfig { directory: directory.join(ENTRIES), bytes_max: config.directory_bytes_max });
        let config = StoreConfig { memory_bytes_max, disk };
        let owner = Owner { directory, lock, writer };
        let task = tokio::spawn(async move {
            tokio::select! {
                () = owner.wait_for_lock() => owner.run(config, &site, (&agent, &mesh), &shutdown).await,
                () = shutdown.cancelled() => {}
            }
        });
        Ok(Self { task, written })
    }
}

/// The process's part of a directory.
struct Owner {
    directory: PathBuf,
    lock: File,
    writer: watch::Sender<Option<u64>>,
}

impl Owner {
    async fn wait_for_lock(&self) {
        while flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            sleep(LOCK_INTERVAL).await;
        }
    }

    async fn run(
        &self,
        config: StoreConfig,
        site: &SiteMetrics,
        (agent, mesh): (&Agent, &Mesh),
        shutdown: &CancellationToken,
    ) {
        let (purges, has_directory) = match self.purges(mesh.incarnation()) {
            Ok(purges) => (purges, true),
            Err(error) => {
                tracing::error!(directory = %self.directory.display(), %error, "the cache has no directory");
                (Purges::new(mesh.incarnation()), false)
            }
        };
        let loaded = site.cache.load(purges);
        agent.announce_purges();
        if !has_directory {
            return;
        }
        let memory_bytes_max = config.memory_bytes_max;
        let store = match Store::open(config, site.cache_store.clone()).await {
            Ok(store) => store,
            Err(error) => {
                tracing::error!(%error, "the cache has only memory");
                let memory = StoreConfig { memory_bytes_max, disk: None };
                let Ok(store) = Store::open(memory, site.cache_store.clone()).await else { return };
                store
            }
        };
        agent.purges_exchanged().await;
        let cache = loaded.open(store.clone());
        agent.share_cache(&cache, mesh, shutdown.clone());
        tracing::info!(directory = %self.directory.display(), "the cache is open");
        tokio::select! {
            () = self.write_purges(&cache) => {}
            () = shutdown.cancelled() => {}
        }
        store.close().await;
        // Purges of the last requests, too.
        self.write_known_purges(&cache).await;
    }

    /// The purges of the directory. Without them, its entries are removed.
    fn purges(&self, incarnation: u64) -> io::Result<Purges> {
        let read = fs::read(self.directory.join(PURGES)).ok();
        let purges = if let Some(purges) = read.and_then(|bytes| Purges::decode(&bytes, incarnation)) {
            purges
        } else {
            let entries = self.directory.join(ENTRIES);
            if entries.exists() {
                tracing::warn!(directory = %self.directory.display(), "no valid purges: stored responses are dropped");
                fs::remove_dir_all(entries)?;
            }
            Purges::new(incarnation)
        };
        if let Err(error) = write(&self.directory, &purges.encode()) {
            // On a full disk: the file has all purges, or is missing, and then the next start drops all entries.
            tracing::error!(directory = %self.directory.display(), %error, "purges could not be written");
        }
        self.writer.send_replace(Some(purges.sequence()));
        Ok(purges)
    }

    /// Writes the purges that have come until now, and then whenever there are new ones.
    async fn write_purges(&self, cache: &ResponseCache) {
        let mut purged = cache.purges_watch();
        loop {
            self.write_known_purges(cache).await;
            if purged.changed().await.is_err() {
                return;
            }
        }
    }

    async fn write_known_purges(&self, cache: &ResponseCache) {
        let (number, bytes) = cache.encoded_purges();
        let directory = self.directory.clone();
        let is_written = spawn_blocking(move || write(&directory, &bytes)).await;
        match is_written.unwrap_or_else(|error| Err(error.into())) {
            Ok(()) => drop(self.writer.send_replace(Some(number))),
            Err(error) => {
                tracing::error!(directory = %self.directory.display(), %error, "purges could not be written");
            }
        }
    }
}

/// Replaces the file with the purges at once.
fn write(directory: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = directory.join("purges.new");
    fs::write(&new, bytes)?;
    File::open(&new)?.sync_all()?;
    fs::rename(&new, directory.join(PURGES))?;
    // The new name, too.
    File::open(directory)?.sync_all()
}
