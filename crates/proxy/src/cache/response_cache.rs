//! The cache that all routes of an agent share, over reloads of the configuration.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use watari_cache::{Entry, Key, ObjectId, PIECE_LEN, Purge, PurgeId, Purges, StoredResponse};
use watari_cache_store::{Store, Usage};

use super::handle::KnownPurges;
use super::metrics::CacheMetrics;
use super::owners::{OwnerRequests, Owners};
use super::parts::Fills;
use super::questions::Questions;
use super::stage::Keys;

/// How long requests for a key do not wait for each other after a response that was not for others. If they go on, one
/// request in this time looks whether its response is for others, and the rest do not wait for it.
const RELEASED_FOR: Duration = Duration::from_secs(5);
/// How often expired keys are removed, if there are too many.
const RELEASED_LOOK: Duration = Duration::from_secs(1);
/// The most keys that are remembered for that.
const RELEASED_MAX: usize = 16 * 1024;

/// The most requests at a time with entries of other agents.
const TAKING_MAX: usize = 8;

/// A store of responses, the questions to origins, and the purges.
pub struct ResponseCache {
    store: Store,
    pub(super) questions: Arc<Questions>,
    pub(super) fills: Arc<Fills>,
    released: Mutex<Released>,
    purges: Mutex<Purges>,
    /// The number of the last purge.
    purged: AtomicU64,
    changed: watch::Sender<u64>,
    announce: OnceLock<Box<Announce>>,
    owners: OnceLock<OwnerRequests>,
    /// Requests with entries of other agents.
    pub(super) taking: Semaphore,
    pub(super) metrics: CacheMetrics,
}

type Announce = dyn Fn(&[(PurgeId, Purge)]) + Send + Sync;

/// The state of the cache, as operators see it.
#[derive(Debug, Clone)]
pub struct CacheState {
    pub store: Usage,
    /// Contents that origins are sending for the store.
    pub filling: usize,
    /// Requests to origins that others wait for.
    pub asking: usize,
    /// The number of requests, by result.
    pub requests: BTreeMap<&'static str, u64>,
    /// Purges that the node has learned of.
    pub purges: u64,
}

/// Keys whose responses were not for others.
struct Released {
    /// Until when requests do not wait for each other.
    keys: HashMap<Key, Instant>,
    /// When expired keys were last removed.
    looked: Instant,
}

/// An entry with a response.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) keys: Keys,
    pub(super) entry: Arc<Entry>,
    /// The object of the content while its length is unknown. The entry has no content then.
    pub(super) growing: Option<ObjectId>,
}

impl fmt::Debug for ResponseCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseCache").finish_non_exhaustive()
    }
}

impl ResponseCache {
    pub fn new(store: Store, purges: Purges, metrics: CacheMetrics) -> Self {
        Self {
            store,
            questions: Arc::default(),
            fills: Arc::default(),
            released: Mutex::new(Released { keys: HashMap::new(), looked: Instant::now() }),
            purged: AtomicU64::new(purges.sequence()),
            purges: Mutex::new(purges),
            changed: watch::channel(0).0,
            announce: OnceLock::new(),
            owners: OnceLock::new(),
            taking: Semaphore::new(TAKING_MAX),
            metrics,
        }
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// The number of the last purge. A response that is requested now has it.
    pub fn purged(&self) -> u64 {
        self.purged.load(Ordering::Acquire)
    }

    /// The entry under this key, unless it was purged.
    pub(super) async fn find(&self, key: &Key) -> Option<Arc<Entry>> {
        let entry = self.store.get(key).await?;
        let is_purged = matches!(&*entry, Entry::Response(response) if self.is_purged(response));
        (!is_purged).then_some(entry)
    }

    /// Purges stored responses, also those that are on their way. Other nodes learn of it.
    pub fn purge(&self, purge: Purge) {
        let mut purges = self.purges();
        let ordered = purges.order(purge);
        self.note_purged(purges.sequence());
        drop(purges);
        if let Some(announce) = self.announce.get() {
            announce(&[ordered]);
        }
    }

    /// Learns purges of another node. Returns those that were new here.
    pub(super) fn learn(&self, known: KnownPurges) -> Vec<(PurgeId, Purge)> {
        let mut purges = self.purges();
        let new = purges.merge(known.generation, known.folded, known.purges);
        self.note_purged(purges.sequence());
        new
    }

    fn note_purged(&self, number: u64) {
        self.purged.store(number, Ordering::Release);
        self.changed.send_replace(number);
    }

    /// Changes with each purge.
    pub fn purges_watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The number of the last purge, and all of them in the form of their file.
    pub fn encoded_purges(&self) -> (u64, Vec<u8>) {
        let purges = self.purges();
        (purges.sequence(), purges.encode())
    }

    /// What other nodes have to know.
    pub(super) fn known_purges(&self) -> KnownPurges {
        KnownPurges::of(&self.purges())
    }

    /// Calls `announce` with the purges that are ordered at this node. A second call has no effect.
    pub fn announce_by(&self, announce: impl Fn(&[(PurgeId, Purge)]) + Send + Sync + 'static) {
        let _ = self.announce.set(Box::new(announce));
    }

    /// Asks other agents for entries from now on. A second call has no effect.
    pub fn share_with(&self, owners: impl Owners + 'static) {
        let _ = self.owners.set(OwnerRequests::new(owners));
    }

    pub(super) fn owners(&self) -> Option<&OwnerRequests> {
        self.owners.get()
    }

    /// Of each process, the last purge that this node knows.
    pub(super) fn latest_purges(&self) -> Vec<PurgeId> {
        let latest = self.purges().latest().into_iter();
        latest.map(|(incarnation, number)| PurgeId { incarnation, number }).collect()
    }

    /// Whether this node knows all purges up to these.
    pub(crate) fn knows_all(&self, latest: &[PurgeId]) -> bool {
        let purges = self.purges();
        latest.iter().all(|last| purges.knows_all(*last))
    }

    /// The state of the cache.
    pub fn status(&self) -> CacheState {
        CacheState {
            store: self.store.usage(),
            filling: self.fills.len(),
            asking: self.questions.len(),
            requests: self.metrics.results(),
            purges: self.purged(),
        }
    }

    /// Whether a purge after the request of a response is for it.
    pub(super) fn is_purged(&self, response: &StoredResponse) -> bool {
        let (known, current) = (response.purges.load(Ordering::Relaxed), self.purged());
        if known == current {
            return false;
        }
        let host = response.url.split_once('/').map_or(&*response.url, |(host, _)| host);
        if self.purges().affects(known, &response.url, host, &response.groups) {
            return true;
        }
        response.purges.store(current, Ordering::Relaxed);
        false
    }

    /// All pieces of an object. `None`: one is missing.
    pub(super) async fn hold(&self, object: ObjectId, len: u64) -> Option<Vec<Arc<Entry>>> {
        let mut pieces = Vec::new();
        for index in 0..len.div_ceil(PIECE_LEN) {
            pieces.push(self.store.get(&Key::piece(object, index)).await?);
        }
        Some(pieces)
    }

    /// Whether a request asks the origin without waiting for another, because the last response under this key was not
    /// for other clients. Returns false to one request in [`RELEASED_FOR`], which looks whether that is still so.
    pub(super) fn lets_pass(&self, key: &Key) -> bool {
        let now = Instant::now();
        match self.released().keys.get_mut(key) {
            Some(until) if *until > now => true,
            Some(until) => {
                if *until + RELEASED_FOR > now {
                    *until = now + RELEASED_FOR;
                }
                false
            }
            None => false,
        }
    }

    /// The response under this key is for others: requests wait for each other.
    pub(super) fn collapse(&self, key: &Key) {
        self.released().keys.remove(key);
    }

    /// Requests for this key do not wait for each other, for a while.
    pub(super) fn release(&self, key: Key) {
        let now = Instant::now();
        let mut released = self.released();
        let Released { keys, looked } = &mut *released;
        if keys.len() >= RELEASED_MAX && *looked + RELEASED_LOOK <= now {
            *looked = now;
            keys.retain(|_, until| *until + RELEASED_FOR > now);
        }
        if keys.len() < RELEASED_MAX {
            keys.insert(key, now + RELEASED_FOR);
        }
    }

    pub(super) fn purges(&self) -> MutexGuard<'_, Purges> {
        self.purges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn released(&self) -> MutexGuard<'_, Released> {
        self.released.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Found {
    /// `None`: the entry has no response.
    pub(super) fn of(keys: Keys, entry: Arc<Entry>) -> Option<Self> {
        matches!(*entry, Entry::Response(_)).then_some(Self { keys, entry, growing: None })
    }

    pub(super) fn response(&self) -> &StoredResponse {
        match &*self.entry {
            Entry::Response(response) => response,
            Entry::Varies(_) | Entry::Piece(_) => unreachable!("checked when it was made"),
        }
    }
}
