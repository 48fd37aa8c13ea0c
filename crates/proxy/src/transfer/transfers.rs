//! The transfers of a pool that could continue at another origin, and the task that gives them orders.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, interval};
use watari_handover::governor::{
    Availability, Cause, Denied, Governor, Order, OriginId, OriginView, ResourceId, Settings, TransferId,
};
use watari_handover::{Stays, Transfer};

use crate::exchange::client::Client;
use crate::observe::metrics::{Metrics, TransferMetrics};
use crate::pool::{Handover, Pool, PoolConfig};
use crate::transfer::resources::Resources;
use crate::transfer::running::{Resource, Running};
use crate::transport::connect::InvalidTransport;

/// A pool, and its transfers.
#[derive(Debug)]
pub(crate) struct Transfers {
    pool: Pool,
    handover: Option<Handover>,
    governor: Mutex<Governor>,
    running: Mutex<HashMap<TransferId, Arc<Running>>>,
    /// Whether a task runs that looks at the transfers.
    watched: AtomicBool,
    begun: Arc<AtomicU64>,
    resources: Resources,
    metrics: TransferMetrics,
}

/// The time between two looks at all transfers.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// The maximum distance of a seam from the current position, in bytes. The source would not reach a later one before
/// the other origin responds.
const AHEAD_MAX: u64 = 64 << 20;

impl Transfers {
    /// Makes a pool without connections. `begun` is the source of transfer ids.
    pub(crate) fn new(config: PoolConfig, begun: &Arc<AtomicU64>, metrics: &Metrics) -> Result<Self, InvalidTransport> {
        let handover = config.handover.clone();
        let governor = handover.as_ref().map(|handover| handover.governor).unwrap_or_default();
        let governor = Settings { rate_min: config.limits.body_bytes_per_s_min, ..governor };
        Ok(Self {
            handover,
            governor: Mutex::new(Governor::new(governor)),
            running: Mutex::default(),
            watched: AtomicBool::new(false),
            begun: Arc::clone(begun),
            resources: Resources::default(),
            metrics: metrics.of_pool(&config.name),
            pool: Pool::new(config, metrics)?,
        })
    }

    /// Replaces the pool of the same name among `old`, see [`Pool::after`].
    pub(crate) fn after(self, old: &[Arc<Self>]) -> Self {
        let old: Vec<&Pool> = old.iter().map(|transfers| &transfers.pool).collect();
        Self { pool: self.pool.after(&old), ..self }
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// How transfers continue at another origin. `None`: they do not.
    pub(super) fn handover(&self) -> Option<&Handover> {
        self.handover.as_ref()
    }

    pub(crate) fn resources(&self) -> &Resources {
        &self.resources
    }

    /// Registers a transfer that begins at `origin`. It stays registered until the returned [`Registered`] is dropped.
    /// The receiver gets its orders.
    pub(super) fn begin(
        self: &Arc<Self>,
        origin: OriginId,
        transfer: &Transfer,
        resource: Resource,
        client: &Client,
    ) -> (Registered, mpsc::Receiver<Order>) {
        let id = TransferId(self.begun.fetch_add(1, Ordering::Relaxed));
        let (running, orders) = Running::new(id, client.address().ip(), resource, origin, transfer.remaining());
        let running = Arc::new(running);
        let mut all = lock(&self.running);
        all.insert(id, Arc::clone(&running));
        if !self.watched.swap(true, Ordering::Relaxed) {
            tokio::spawn(look_after(Arc::downgrade(self)));
        }
        (Registered { transfers: Arc::clone(self), running }, orders)
    }

    /// The origin where a transfer may continue after its origin has failed.
    pub(crate) fn failed(&self, running: &Running, origins: &[OriginView]) -> Result<OriginId, Denied> {
        lock(&self.governor).failed(Instant::now().into_std(), origins, &running.view())
    }

    /// Records that an origin does not continue this resource, or would not.
    pub(crate) fn refused(&self, resource: ResourceId, origin: OriginId) {
        lock(&self.governor).refused(Instant::now().into_std(), resource, origin);
    }

    /// Records that the origin of an order does not continue this transfer.
    pub(crate) fn stays(&self, running: &Running) {
        lock(&self.governor).stays(running.id());
    }

    /// Orders a move that an operator requests.
    pub(crate) fn asked(&self, running: &Running, to: Option<OriginId>, origins: &[OriginView]) -> Result<(), Denied> {
        running.order(lock(&self.governor).asked(Instant::now().into_std(), origins, &running.view(), to)?);
        Ok(())
    }

    /// The running transfer with this id.
    pub(crate) fn find(&self, id: TransferId) -> Option<Arc<Running>> {
        lock(&self.running).get(&id).cloned()
    }

    /// All running transfers, the oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Running>> {
        let mut all: Vec<_> = lock(&self.running).values().cloned().collect();
        all.sort_by_key(|running| running.id());
        all
    }

    /// An estimate of the bytes that a transfer delivers until an origin responds.
    pub(super) fn bytes_until_answer(&self, origin: OriginId, running: &Running) -> u64 {
        running.bytes_in(self.pool.origin(origin).response(Instant::now())).min(AHEAD_MAX)
    }

    pub(super) fn count_stay(&self, stays: Stays) {
        self.metrics.count_stay(stays);
    }

    pub(super) fn count_refusal(&self, origin: OriginId, reason: &'static str) {
        self.metrics.count_refusal(&self.pool.origin(origin).address, reason);
    }

    pub(super) fn count_handover(&self, to: OriginId, cause: Cause, took: Duration) {
        self.metrics.count_handover(&self.pool.origin(to).address, cause, took);
    }

    fn look(&self, origins: &[OriginView]) {
        let all = lock(&self.running).clone();
        let views: Vec<_> = all.values().map(|running| running.view()).collect();
        let orders = lock(&self.governor).look(Instant::now().into_std(), origins, &views);
        for order in orders {
            if let Some(running) = all.get(&order.transfer) {
                running.order(order);
            }
        }
    }
}

/// Gives orders for as long as there is a transfer.
async fn look_after(transfers: Weak<Transfers>) {
    let mut due = interval(LOOK_INTERVAL);
    loop {
        due.tick().await;
        let Some(transfers) = transfers.upgrade() else { return };
        let pool = transfers.pool();
        let views = pool.views();
        transfers.look(&views);
        // A transfer may have to continue at any of these origins without delay, so connections are made in advance.
        let up = views.iter().filter(|origin| origin.availability == Availability::Up);
        up.for_each(|origin| pool.origin(origin.id).prepare());
        // Under the lock that `begin` takes, too: the next transfer starts the task again.
        let running = lock(&transfers.running);
        if running.is_empty() {
            transfers.watched.store(false, Ordering::Relaxed);
            return;
        }
    }
}

/// Keeps a transfer registered until it is dropped.
#[derive(Debug)]
pub(super) struct Registered {
    transfers: Arc<Transfers>,
    running: Arc<Running>,
}

impl Registered {
    pub(crate) fn running(&self) -> &Running {
        &self.running
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        lock(&self.transfers.running).remove(&self.running.id());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
