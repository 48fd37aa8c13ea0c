//! The state that all tasks of a mesh share.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use watari_pki::Identity;
use watari_values::{NodeName, Role};
use watari_wire::{Hello, Message};

use crate::config::Limits;
use crate::event::{Event, SendError};
use crate::http_setup::HttpSetup;
use crate::members::Members;
use crate::metrics::Metrics;
use crate::outbox::Outbox;
use crate::peer::PeerEntry;
use crate::rules;

/// How a message enters the queue of a link.
pub(crate) type Push = fn(&Outbox, &Message) -> Result<(), SendError>;

/// The state that all tasks of a mesh share.
pub(crate) struct MeshShared {
    pub(crate) identity: Identity,
    pub(crate) http: HttpSetup,
    pub(crate) roles: BTreeSet<Role>,
    pub(crate) hello: Hello,
    /// Determines the peers. A task that locks both locks this first.
    pub(crate) members: Mutex<Members>,
    pub(crate) legs: watch::Sender<BTreeMap<NodeName, SocketAddr>>,
    /// Whether unknown nodes may become members.
    pub(crate) is_open: bool,
    pub(crate) peers: RwLock<BTreeMap<NodeName, Arc<PeerEntry>>>,
    /// The addresses on which peers listen, and those from which their links come.
    pub(crate) addresses: RwLock<HashSet<IpAddr>>,
    pub(crate) limits: Limits,
    pub(crate) metrics: Metrics,
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl MeshShared {
    pub(crate) fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this node dials `peer`. Otherwise `peer` dials this node.
    pub(crate) fn dials(&self, peer: &NodeName) -> bool {
        self.hello.node < *peer
    }

    pub(crate) fn peer(&self, name: &NodeName) -> Option<Arc<PeerEntry>> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// All peers, by name.
    pub(crate) fn all_peers(&self) -> Vec<Arc<PeerEntry>> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn is_address_of_member(&self, address: IpAddr) -> bool {
        self.addresses.read().unwrap_or_else(PoisonError::into_inner).contains(&address.to_canonical())
    }

    /// Updates the addresses of all peers, after a change of a peer or its link.
    pub(crate) fn note_addresses(&self) {
        let peers = self.all_peers();
        let all = peers.iter().flat_map(|peer| {
            let remote = peer.link().and_then(|link| link.remote);
            [Some(peer.address().ip()), remote].into_iter().flatten().map(|address| address.to_canonical())
        });
        *self.addresses.write().unwrap_or_else(PoisonError::into_inner) = all.collect();
    }

    pub(crate) fn remove(&self, name: &NodeName) -> Option<Arc<PeerEntry>> {
        self.peers.write().unwrap_or_else(PoisonError::into_inner).remove(name)
    }

    pub(crate) fn send(&self, peer: &NodeName, message: &Message, push: Push) -> Result<(), SendError> {
        if self.is_own(peer) {
            return self.send_to_self(message);
        }
        let peer = self.peer(peer).ok_or(SendError::NoLink)?;
        let link = peer.link().ok_or(SendError::NoLink)?;
        let kind = message.kind();
        if !rules::allowed(message, &self.roles, &link.roles) {
            return Err(SendError::NotAllowed(kind.as_str()));
        }
        push(&link.outbox, message)?;
        self.metrics.sent(kind);
        peer.counters.sent();
        Ok(())
    }

    /// Whether `peer` is this node. It sends messages to itself if it has several roles, or both ends of an anchored
    /// stream.
    pub(crate) fn is_own(&self, peer: &NodeName) -> bool {
        *peer == self.hello.node
    }

    pub(crate) fn send_to_self(&self, message: &Message) -> Result<(), SendError> {
        let kind = message.kind();
        if !rules::allowed(message, &self.roles, &self.roles) {
            return Err(SendError::NotAllowed(kind.as_str()));
        }
        message.check_bounds()?;
        let event = Event::Message { peer: self.hello.node.clone(), message: message.clone() };
        self.events.try_send(event).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SendError::QueueFull,
            mpsc::error::TrySendError::Closed(_) => SendError::NoLink,
        })
    }

    /// Reports an event. During a shutdown the receiver may be gone.
    pub(crate) async fn report(&self, event: Event) {
        tokio::select! {
            _ = self.events.send(event) => {}
            () = self.shutdown.cancelled() => {}
        }
    }
}
