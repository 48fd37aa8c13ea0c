//! Peers and their links.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard, Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use watari_values::{NodeName, Role};

use crate::config::{Limits, Peer};
use crate::error::LinkError;
use crate::members::Source;
use crate::outbox::Outbox;

/// The status of a peer.
#[derive(Debug, Clone)]
pub struct PeerStatus {
    pub name: NodeName,
    /// Its mesh listener, by its own statement or by the configuration.
    pub address: SocketAddr,
    /// The reason that it is a member.
    pub source: Source,
    /// How long the link has been up. `None`: it is down.
    pub up_for: Option<Duration>,
    /// The roles of the peer's process. Empty while the link is down.
    pub roles: BTreeSet<Role>,
    /// The random number of the peer's process. `None`: the link is down.
    pub incarnation: Option<u64>,
    /// Messages queued for it so far.
    pub messages_sent: u64,
    /// Messages delivered from it so far.
    pub messages_received: u64,
    /// The reason that the last link ended or the last attempt failed.
    pub last_error: Option<String>,
}

/// A peer and its link, if any.
pub(crate) struct PeerEntry {
    pub(crate) name: NodeName,
    pub(crate) counters: Counters,
    /// Cancelled when the peer is removed, or this node shuts down.
    pub(crate) end: CancellationToken,
    /// Notified when the peer has introduced itself, so that the pause before the next dial can end.
    pub(crate) dial: Notify,
    /// Places for accepted connections for HTTP.
    pub(crate) http: Arc<Semaphore>,
    /// Set when the peer is evicted. Its messages are ignored from then on.
    expelled: AtomicBool,
    state: Mutex<PeerState>,
    /// The number of the newest connection that was identified as this peer.
    newest: watch::Sender<u64>,
    /// Held by the connection that is the link.
    turn: AsyncMutex<()>,
}

struct PeerState {
    address: SocketAddr,
    link: Option<Arc<Link>>,
    last_error: Option<String>,
}

/// A link that is up.
pub(crate) struct Link {
    /// The peer's address on this connection.
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

/// A connection's claim to be the link of its peer. It lasts until a newer connection makes one.
pub(crate) struct Claim<'a> {
    number: u64,
    newest: watch::Receiver<u64>,
    _turn: AsyncMutexGuard<'a, ()>,
}

impl PeerEntry {
    pub(crate) fn new(peer: Peer, limits: &Limits, shutdown: &CancellationToken) -> Self {
        Self {
            name: peer.name,
            counters: Counters::default(),
            end: shutdown.child_token(),
            dial: Notify::new(),
            http: Arc::new(Semaphore::new(limits.http_per_peer_max)),
            expelled: AtomicBool::new(false),
            state: Mutex::new(PeerState { address: peer.address, link: None, last_error: None }),
            newest: watch::Sender::new(0),
            turn: AsyncMutex::new(()),
        }
    }

    /// Makes the calling connection the newest, and waits until the previous one has ended.
    pub(crate) async fn claim(&self) -> Claim<'_> {
        let mut number = 0;
        self.newest.send_modify(|newest| {
            *newest += 1;
            number = *newest;
        });
        let newest = self.newest.subscribe();
        Claim { number, newest, _turn: self.turn.lock().await }
    }

    /// Ends the peer's link and its connections for HTTP. Its messages are ignored from now on.
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

    /// The address of its mesh listener.
    pub(crate) fn address(&self) -> SocketAddr {
        self.state().address
    }

    /// Takes effect at the next attempt to connect.
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

    /// Stores the error for the status. Returns `true` if it differs from the last one, and deserves a warning.
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

    fn state(&self) -> MutexGuard<'_, PeerState> {
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
