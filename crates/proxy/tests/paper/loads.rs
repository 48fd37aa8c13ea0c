//! Clients that keep two origins busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep};
use watari_handover::governor::{Damping, Metric, Settings, Unequal};
use watari_proxy::{Handover, PoolConfig, TransferStatus};
use watari_test_origins::{Content, Origin, Pace, Resource};

use crate::common::Fixture;
use crate::common::download::{Download, transfers, until};

/// Longer than any client downloads.
const LEN: u64 = 1 << 40;
/// The rate of two clients at one origin, in bytes per second: low enough to be reached on a busy machine.
const SPEED: u64 = 2_000_000;

/// Two origins with the properties of the paper's server, and clients that download as fast as they can.
pub(crate) struct Loads {
    pub(crate) fixture: Arc<Fixture>,
    origins: [Origin; 2],
    content: Content,
    tasks: JoinSet<()>,
    clients: Vec<Client>,
}

/// A client that downloads.
struct Client {
    id: u64,
    received: Arc<AtomicU64>,
    task: AbortHandle,
}

/// Balances the origins by their connections, and sooner than is suitable for downloads of hours.
pub(crate) fn unequal(settle: Duration, damping: Damping) -> Settings {
    let unequal = Unequal { metric: Metric::Connections, settle, ..Unequal::default() };
    Settings { stalled: None, slow: None, unequal: Some(unequal), damping, ..Settings::default() }
}

impl Loads {
    pub(crate) fn new(governor: Settings) -> Self {
        let content = Content::generated(1, LEN);
        let origins = [(); 2].map(|()| Origin::paced(Resource::new(content.clone()), Pace::figure_5(SPEED)));
        let handover = Some(Handover { governor, ..Handover::default() });
        let addresses = origins.each_ref().map(|origin| origin.url().parse().unwrap());
        let fixture = Arc::new(Fixture::of(PoolConfig { handover, ..PoolConfig::plain("pool", addresses) }));
        Self { fixture, origins, content, tasks: JoinSet::new(), clients: Vec::new() }
    }

    /// Adds clients at each origin, and removes at once all of them but `stay`.
    pub(crate) async fn come_and_stay(&mut self, stay: [usize; 2]) {
        let before = self.clients.len();
        for _ in 0..2 * stay.into_iter().max().unwrap_or_default() {
            self.client().await;
        }
        for (origin, stay) in (0..2).zip(stay) {
            let here = |client: &Client| self.status(client.id).origin.to_string() == self.origins[origin].url();
            let of_origin: Vec<_> =
                self.clients[before..].iter().filter(|client| here(client)).map(|client| client.id).collect();
            self.leave(&of_origin[stay..]).await;
        }
    }

    /// Adds a client. The origins take turns.
    async fn client(&mut self) -> u64 {
        let mut download = Download::begin(&self.fixture, "/file", &self.content).await;
        let id = transfers(&self.fixture).last().unwrap().id;
        let received = Arc::<AtomicU64>::default();
        let count = Arc::clone(&received);
        let task = self.tasks.spawn(async move {
            while download.piece().await.unwrap().is_some() {
                count.store(download.position, Ordering::Relaxed);
            }
        });
        self.clients.push(Client { id, received, task });
        id
    }

    /// Ends these clients.
    pub(crate) async fn leave(&mut self, ids: &[u64]) {
        self.clients.retain(|client| {
            if ids.contains(&client.id) {
                client.task.abort();
            }
            !ids.contains(&client.id)
        });
        until(|| transfers(&self.fixture).iter().all(|transfer| !ids.contains(&transfer.id))).await;
    }

    pub(crate) fn ids(&self) -> Vec<u64> {
        self.clients.iter().map(|client| client.id).collect()
    }

    pub(crate) fn status(&self, id: u64) -> TransferStatus {
        transfers(&self.fixture).into_iter().find(|transfer| transfer.id == id).unwrap()
    }

    /// The number of moves of each transfer.
    pub(crate) fn moves(&self) -> Vec<u32> {
        transfers(&self.fixture).iter().map(|transfer| transfer.moves).collect()
    }

    /// The number of transfers of each origin.
    pub(crate) fn counts(&self) -> [usize; 2] {
        let all = transfers(&self.fixture);
        self.origins.each_ref().map(|origin| {
            let url = origin.url();
            all.iter().filter(|transfer| transfer.origin.to_string() == url).count()
        })
    }

    /// The rate of each client during `over`, in bytes per second.
    pub(crate) async fn rates(&self, over: Duration) -> Vec<f64> {
        let received = || self.clients.iter().map(|client| client.received.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let (begun, before) = (Instant::now(), received());
        sleep(over).await;
        let (passed, after) = (begun.elapsed().as_secs_f64(), received());
        before.iter().zip(after).map(|(before, after)| (after - before) as f64 / passed).collect()
    }
}
