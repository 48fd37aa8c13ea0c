//! What is known of one peer.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard, Notify, watch};
use tokio_util::sync::CancellationToken;
use watari_wire::{NodeName, Role};

use crate::members::Source;
use crate::outbox::Outbox;
use crate::{LinkError, Peer};

/// A peer as an operator sees it.
#[derive(Debug, Clone)]
pub struct PeerStatus {
    /// Its name.
    pub name: NodeName,
    /// Where it listens for links: as it says itself, or as configured.
    pub address: SocketAddr,
    /// Why it is known.
    pub source: Source,
    /// For how long the link has been up; `None`: it is down.
    pub up_for: Option<Duration>,
    /// What the peer does, as far as its link is up.
    pub roles: BTreeSet<Role>,
    /// Which life of the peer's process the link leads to, while it is up.
    pub incarnation: Option<u64>,
    /// Messages queued for it so far.
    pub messages_sent: u64,
    /// Messages delivered from it so far.
    pub messages_received: u64,
    /// Why the last link ended, or the last attempt failed.
    pub last_error: Option<String>,
}

/// One peer and its link, if any.
pub(crate) struct PeerEntry {
    pub(crate) name: NodeName,
    pub(crate) counters: Counters,
    /// Cancelled when it is a peer no longer, or this node shuts down.
    pub(crate) end: CancellationToken,
    /// It is there: whoever waits before dialing it again need not wait any longer.
    pub(crate) dial: Notify,
    /// It is evicted: whatever it says still counts for nothing.
    expelled: AtomicBool,
    state: Mutex<State>,
    /// The number of the newest connection that has shown to be this peer.
    newest: watch::Sender<u64>,
    /// Held by the connection that is the link.
    turn: AsyncMutex<()>,
}

struct State {
    address: SocketAddr,
    link: Option<Arc<Link>>,
    last_error: Option<String>,
}

/// A link that is up.
pub(crate) struct Link {
    /// Where the peer connected from, or was connected to.
    pub(crate) remote: Option<IpAddr>,
    pub(crate) roles: BTreeSet<Role>,
    pub(crate) incarnation: u64,
    pub(crate) outbox: Outbox,
    pub(crate) since: Instant,
}

#[derive(Default)]
pub(crate) struct Counters {
    sent: AtomicU64,
    received: AtomicU64,
}

/// A connection's claim to be the link of its peer: good until a newer connection makes one.
pub(crate) struct Claim<'a> {
    number: u64,
    newest: watch::Receiver<u64>,
    _turn: AsyncMutexGuard<'a, ()>,
}

impl PeerEntry {
    pub(crate) fn new(peer: Peer, shutdown: &CancellationToken) -> Self {
        Self {
            name: peer.name,
            counters: Counters::default(),
            end: shutdown.child_token(),
            dial: Notify::new(),
            expelled: AtomicBool::new(false),
            state: Mutex::new(State { address: peer.address, link: None, last_error: None }),
            newest: watch::Sender::new(0),
            turn: AsyncMutex::new(()),
        }
    }

    /// Makes the calling connection the newest, and waits until the one before it has ended.
    pub(crate) async fn claim(&self) -> Claim<'_> {
        let mut number = 0;
        self.newest.send_modify(|newest| {
            *newest += 1;
            number = *newest;
        });
        let newest = self.newest.subscribe();
        Claim { number, newest, _turn: self.turn.lock().await }
    }

    /// Ends it, and believes nothing that it says still.
    pub(crate) fn expel(&self) {
        self.expelled.store(true, Ordering::Release);
        self.end.cancel();
    }

    pub(crate) fn is_expelled(&self) -> bool {
        self.expelled.load(Ordering::Acquire)
    }

    /// Waits until no connection is the link.
    pub(crate) async fn ended(&self) {
        drop(self.turn.lock().await);
    }

    /// Where it listens for links.
    pub(crate) fn address(&self) -> SocketAddr {
        self.state().address
    }

    /// Counts from the next attempt to connect.
    pub(crate) fn set_address(&self, address: SocketAddr) {
        self.state().address = address;
    }

    pub(crate) fn link(&self) -> Option<Arc<Link>> {
        self.state().link.clone()
    }

    pub(crate) fn set_up(&self, link: Arc<Link>) {
        self.state().link = Some(link);
    }

    pub(crate) fn set_down(&self) {
        self.state().link = None;
    }

    /// Keeps the error for the operator; true where it is not the same as last time, and so worth a louder log line.
    pub(crate) fn set_error(&self, error: &LinkError) -> bool {
        let error = Some(error.to_string());
        let mut state = self.state();
        let news = state.last_error != error;
        state.last_error = error;
        news
    }

    pub(crate) fn status(&self, source: Source) -> PeerStatus {
        let state = self.state();
        let link = state.link.as_ref();
        PeerStatus {
            name: self.name.clone(),
            address: state.address,
            source,
            up_for: link.map(|link| link.since.elapsed()),
            roles: link.map(|link| link.roles.clone()).unwrap_or_default(),
            incarnation: link.map(|link| link.incarnation),
            messages_sent: self.counters.sent.load(Ordering::Relaxed),
            messages_received: self.counters.received.load(Ordering::Relaxed),
            last_error: state.last_error.clone(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counters {
    pub(crate) fn sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn received(&self) {
        self.received.fetch_add(1, Ordering::Relaxed);
    }
}

impl Claim<'_> {
    /// Waits until a newer connection claims the link.
    pub(crate) async fn replaced(&mut self) {
        let number = self.number;
        // The sender lives as long as the peer, which this borrows.
        let _ = self.newest.wait_for(|newest| *newest > number).await;
    }
}
