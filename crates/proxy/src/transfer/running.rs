//! One running transfer: its resource and its progress.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use http::Uri;
use http::header::HOST;
use tokio::sync::mpsc;
use tokio::time::Instant;
use watari_handover::Transfer;
use watari_handover::governor::{Order, OriginId, ResourceId, TransferId, TransferView};

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
    moving_to: Option<OriginId>,
    pub(crate) moves: u32,
    pub(crate) delivered: u64,
    pub(crate) remaining: u64,
    waiting_since: Option<Instant>,
    waited: Duration,
}

impl Running {
    /// A transfer of `remaining` bytes that begins at `origin`. The receiver gets its orders.
    pub(super) fn new(
        id: TransferId,
        client: IpAddr,
        resource: Resource,
        origin: OriginId,
        remaining: u64,
    ) -> (Self, mpsc::Receiver<Order>) {
        let (orders, received) = mpsc::channel(1);
        let progress = Progress {
            origin,
            moving_to: None,
            moves: 0,
            delivered: 0,
            remaining,
            waiting_since: None,
            waited: Duration::ZERO,
        };
        (Self { id, client, resource, begun: Instant::now(), progress: Mutex::new(progress), orders }, received)
    }

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
    pub(super) fn bytes_in(&self, time: Duration) -> u64 {
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
    pub(super) fn set_moving(&self, to: Option<OriginId>) {
        lock(&self.progress).moving_to = to;
    }

    /// The transfer continues at another origin.
    pub(super) fn moved(&self, to: OriginId) {
        let mut progress = lock(&self.progress);
        (progress.origin, progress.moving_to) = (to, None);
        progress.moves += 1;
    }

    /// The channel holds one order. The governor sees the transfer as moving once it has received the order.
    pub(super) fn order(&self, order: Order) {
        let _ = self.orders.try_send(order);
    }

    pub(super) fn view(&self) -> TransferView {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
