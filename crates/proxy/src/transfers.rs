//! The transfers of a pool that could continue at another origin, and the task that gives them orders.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use http::HeaderMap;
use http::Uri;
use http::header::HOST;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval};
use watari_handover::Transfer;
use watari_handover::governor::{
    Availability, Denied, Governor, Order, OriginId, OriginView, ResourceId, Settings, TransferId, TransferView,
};

use crate::client::Client;
use crate::pool::Pool;

/// All transfers of a pool.
#[derive(Debug)]
pub(crate) struct Transfers {
    governor: Mutex<Governor>,
    running: Mutex<HashMap<TransferId, Arc<Running>>>,
    /// Whether a task runs that looks at the transfers.
    watched: AtomicBool,
    begun: Arc<AtomicU64>,
}

/// A running transfer.
#[derive(Debug)]
pub(crate) struct Running {
    id: TransferId,
    client: IpAddr,
    resource: Resource,
    begun: Instant,
    progress: Mutex<Progress>,
    orders: mpsc::Sender<Order>,
}

/// The transferred resource.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    id: ResourceId,
    name: String,
}

/// The progress of a transfer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) origin: OriginId,
    /// The origin that is being asked for the rest.
    pub(crate) moving_to: Option<OriginId>,
    pub(crate) moves: u32,
    pub(crate) delivered: u64,
    pub(crate) remaining: u64,
    waiting_since: Option<Instant>,
    waited: Duration,
}

/// The time between two looks at all transfers.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

impl Transfers {
    pub(crate) fn new(settings: Settings, begun: Arc<AtomicU64>) -> Self {
        let governor = Mutex::new(Governor::new(settings));
        Self { governor, running: Mutex::default(), watched: AtomicBool::new(false), begun }
    }

    /// Registers a transfer that begins at `origin`. It stays registered until the returned [`Registered`] is dropped.
    /// The receiver gets its orders.
    pub(crate) fn begin(
        &self,
        pool: &Arc<Pool>,
        origin: OriginId,
        transfer: &Transfer,
        resource: Resource,
        client: &Client,
    ) -> (Registered, mpsc::Receiver<Order>) {
        let (orders, received) = mpsc::channel(1);
        let id = TransferId(self.begun.fetch_add(1, Ordering::Relaxed));
        let progress = Progress {
            origin,
            moving_to: None,
            moves: 0,
            delivered: 0,
            remaining: transfer.remaining(),
            waiting_since: None,
            waited: Duration::ZERO,
        };
        let client = client.address().ip();
        let running =
            Arc::new(Running { id, client, resource, begun: Instant::now(), progress: Mutex::new(progress), orders });
        let mut all = lock(&self.running);
        all.insert(id, Arc::clone(&running));
        if !self.watched.swap(true, Ordering::Relaxed) {
            tokio::spawn(look_after(Arc::downgrade(pool)));
        }
        (Registered { pool: Arc::clone(pool), running }, received)
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
        lock(&self.governor).stays(running.id);
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
        all.sort_by_key(|running| running.id);
        all
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
async fn look_after(pool: Weak<Pool>) {
    let mut due = interval(LOOK_INTERVAL);
    loop {
        due.tick().await;
        let Some(pool) = pool.upgrade() else { return };
        let views = pool.views();
        let transfers = pool.transfers();
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

impl Running {
    pub(crate) fn id(&self) -> TransferId {
        self.id
    }

    pub(crate) fn client(&self) -> IpAddr {
        self.client
    }

    pub(crate) fn resource(&self) -> &Resource {
        &self.resource
    }

    pub(crate) fn progress(&self) -> Progress {
        *lock(&self.progress)
    }

    /// An estimate of the bytes that the client will get in `time`, from the transfer's average rate. 0 if its origin
    /// has sent nothing for as long already.
    pub(crate) fn bytes_in(&self, time: Duration) -> u64 {
        let progress = self.progress();
        if progress.waiting_since.is_some_and(|since| since.elapsed() >= time) {
            return 0;
        }
        let age_us = self.begun.elapsed().as_micros().max(1);
        let bytes = u128::from(progress.delivered) * time.as_micros() / age_us;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// The total time that the transfer waited for its origins.
    pub(crate) fn waited(&self) -> Duration {
        let progress = self.progress();
        progress.waited + progress.waiting_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// The transfer begins to wait for its origin.
    pub(crate) fn waits(&self) {
        lock(&self.progress).waiting_since.get_or_insert_with(Instant::now);
    }

    /// The client got more bytes.
    pub(crate) fn delivered(&self, transfer: &Transfer) {
        let mut progress = lock(&self.progress);
        let given = progress.remaining.saturating_sub(transfer.remaining());
        progress.delivered += given;
        progress.remaining = transfer.remaining();
        if let Some(since) = progress.waiting_since.take() {
            progress.waited += since.elapsed();
        }
    }

    /// Another origin is being asked, or none any more.
    pub(crate) fn set_moving(&self, to: Option<OriginId>) {
        lock(&self.progress).moving_to = to;
    }

    /// The transfer continues at another origin.
    pub(crate) fn moved(&self, to: OriginId) {
        let mut progress = lock(&self.progress);
        (progress.origin, progress.moving_to) = (to, None);
        progress.moves += 1;
    }

    /// The channel holds one order. The governor sees the transfer as moving once it has received the order.
    fn order(&self, order: Order) {
        let _ = self.orders.try_send(order);
    }

    fn view(&self) -> TransferView {
        let progress = self.progress();
        TransferView {
            id: self.id,
            origin: progress.origin,
            client: self.client,
            resource: self.resource.id,
            moving_to: progress.moving_to,
            delivered: progress.delivered,
            remaining: progress.remaining,
            waiting_since: progress.waiting_since.map(Instant::into_std),
            waited: progress.waited,
        }
    }
}

impl Resource {
    /// The resource of a request.
    pub(crate) fn of(uri: &Uri, headers: &HeaderMap) -> Self {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let name = format!("{host}{uri}");
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self { id: ResourceId(hasher.finish()), name }
    }

    /// Host, path and query.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn id(&self) -> ResourceId {
        self.id
    }
}

/// Keeps a transfer registered until it is dropped.
#[derive(Debug)]
pub(crate) struct Registered {
    pool: Arc<Pool>,
    running: Arc<Running>,
}

impl Registered {
    pub(crate) fn running(&self) -> &Running {
        &self.running
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        lock(&self.pool.transfers().running).remove(&self.running.id);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
