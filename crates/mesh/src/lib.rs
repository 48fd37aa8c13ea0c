//! Mutual-TLS links between the nodes of a cluster.
//!
//! Between every two members there is one link: a TLS 1.3 connection on which both present certificates of the
//! cluster's authority. The node whose name sorts first dials, repeatedly and with growing pauses (`dial`). The other
//! accepts (`accept`). Both send a hello. Then [messages](watari_wire::Message) go both ways in frames, and all that
//! wait are written at once (`link`, `outbox`). A link without received bytes for a while is closed. If its dialer
//! connects again, the new link replaces it.
//!
//! The configuration lists the members, or every node with a certificate is one, and nodes report members to each other
//! (`members`, `membership`, `introduce`). In both cases an operator can evict a node, even if its certificate is
//! valid.
//!
//! The roles of both nodes, which their certificates limit, decide which messages one may send to the other (`rules`).
//! Other messages are neither sent nor delivered.
//!
//! A node with several roles sends messages to itself in the same way, without a link.
//!
//! Delivery is at most once and in order within one link. There are no retries: after [`Event::Down`] it is unknown how
//! many of the sent messages arrived. This crate decides nothing about connections.

mod accept;
mod backoff;
mod config;
mod dial;
mod error;
mod hello;
mod inbox;
mod introduce;
mod link;
mod members;
mod membership;
mod metrics;
mod outbox;
mod peer;
mod rules;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use watari_pki::Identity;
use watari_values::{NodeName, Role};
use watari_wire::{BadLength, Hello, Message};

pub use config::{Config, Join, Limits, Peer, StartError};
pub use error::LinkError;
pub use members::{OrderError, Source};
pub use peer::PeerStatus;

use members::{Members, Now};
use membership::Ending;
use metrics::{DropReason, Metrics};
use outbox::Outbox;
use peer::PeerEntry;

/// This node's end of all its links. Clones share it.
#[derive(Clone)]
pub struct Mesh {
    shared: Arc<MeshShared>,
}

/// Events of the links, in the order in which they happened on each.
#[derive(Debug)]
pub enum Event {
    /// A link is up.
    Up {
        peer: NodeName,
        /// The roles of the peer's process.
        roles: BTreeSet<Role>,
        /// A random number, drawn when the peer's process started.
        incarnation: u64,
    },
    /// A link is down. The messages sent on it may or may not have arrived.
    Down {
        peer: NodeName,
        /// An order of this node (shutdown, removal, eviction) takes precedence over the error that it caused.
        reason: LinkError,
    },
    /// A node was evicted, and its link has ended. No message goes to it any more.
    Evicted {
        peer: NodeName,
        /// The Unix time of the order in seconds, by the clock of the node that received it.
        at: u64,
        /// The agent that has to make new ticket keys, which the evicted node does not get.
        keys_by: Option<NodeName>,
    },
    /// A peer has sent a message that its role allows.
    Message {
        /// The authenticated sender.
        peer: NodeName,
        message: Message,
    },
}

/// A message was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// There is no link to the node, or it is no peer.
    #[error("there is no link to the peer")]
    NoLink,
    /// Too many messages wait. The peer or the network is too slow.
    #[error("the queue to the peer is full")]
    QueueFull,
    /// The roles of the two nodes do not allow the message. The caller is at fault.
    #[error("the roles of the nodes do not allow a message of kind `{0}` to the peer")]
    NotAllowed(&'static str),
    /// A field of the message is too long. The caller is at fault.
    #[error(transparent)]
    BadLength(#[from] BadLength),
}

impl Mesh {
    /// Starts dialing and accepting, until `shutdown` is cancelled. Requires a tokio runtime.
    ///
    /// The receiver has a limited capacity. While it is full, links are not read. Metrics are registered as
    /// `watari_mesh_*`.
    pub fn start(
        config: Config,
        registry: &mut Registry,
        shutdown: CancellationToken,
    ) -> Result<(Self, mpsc::Receiver<Event>), StartError> {
        config.check()?;
        let (events, receiver) = mpsc::channel(config.limits.events_max);
        let hello = Hello::new(config.identity.node().clone(), &config.roles, random_u64()?);
        if config.roles.len() > 1 {
            let (peer, incarnation) = (hello.node.clone(), hello.incarnation);
            // The channel is new, and holds at least one event.
            let _ = events.try_send(Event::Up { peer, roles: config.roles.clone(), incarnation });
        }
        let (is_open, advertised) = match config.join {
            Join::Configured => (false, None),
            Join::Certified { mesh, legs } => (true, Some((mesh, legs))),
        };
        let forget_after = config.limits.members_forgotten_after;
        let shared = Arc::new(MeshShared {
            peers: RwLock::default(),
            addresses: RwLock::default(),
            members: Mutex::new(Members::new(hello.node.clone(), advertised, forget_after, Now::read())),
            legs: watch::Sender::default(),
            is_open,
            hello,
            identity: config.identity,
            roles: config.roles,
            limits: config.limits,
            metrics: Metrics::register(registry),
            events,
            shutdown,
            tasks: TaskTracker::new(),
        });
        shared.configure(config.peers);
        shared.tasks.spawn(membership::keep(Arc::clone(&shared)));
        shared.tasks.spawn(accept::run(Arc::clone(&shared), config.listener));
        shared.tasks.close();
        Ok((Self { shared }, receiver))
    }

    /// Puts `message` into the queue of the link to `peer`. Never waits.
    pub fn send(&self, peer: &NodeName, message: &Message) -> Result<(), SendError> {
        self.send_by(peer, message, Outbox::push)
    }

    /// Sends a message that no peer waits for. It may be sent a few milliseconds later, in one packet with others. The
    /// order of messages stays.
    pub fn send_soon(&self, peer: &NodeName, message: &Message) -> Result<(), SendError> {
        self.send_by(peer, message, Outbox::push_soon)
    }

    fn send_by(&self, peer: &NodeName, message: &Message, push: Push) -> Result<(), SendError> {
        self.shared.send(peer, message, push).inspect_err(|error| {
            self.shared.metrics.dropped(match error {
                SendError::NoLink => DropReason::NoLink,
                SendError::QueueFull => DropReason::QueueFull,
                SendError::NotAllowed(_) => DropReason::NotAllowed,
                SendError::BadLength(_) => DropReason::BadLength,
            });
        })
    }

    /// Whether a link to `peer` is up, or `peer` is this node with several roles.
    pub fn is_up(&self, peer: &NodeName) -> bool {
        self.shared.is_own(peer) || self.shared.peer(peer).is_some_and(|peer| peer.link().is_some())
    }

    /// All peers, by name.
    pub fn peers(&self) -> Vec<PeerStatus> {
        let members = self.shared.members();
        let peers = self.shared.all_peers();
        peers.iter().map(|peer| peer.status(members.source(&peer.name).unwrap_or(Source::Learned))).collect()
    }

    /// Whether nodes that this node has not heard of may become members ([`Join::Certified`]).
    pub fn is_open(&self) -> bool {
        self.shared.is_open
    }

    /// Whether a peer listens at this address, or its link comes from there. Unidentified connections from such
    /// addresses have a limit of their own.
    pub fn is_address_of_member(&self, address: IpAddr) -> bool {
        self.shared.is_address_of_member(address)
    }

    /// The evicted nodes, as far as this node has received the verdicts, by name.
    pub fn evicted(&self) -> Vec<NodeName> {
        self.shared.members().evicted().cloned().collect()
    }

    /// The leg listeners of agents that are members, including this node ([`Join::Certified`]).
    pub fn legs(&self) -> watch::Receiver<BTreeMap<NodeName, SocketAddr>> {
        self.shared.legs.subscribe()
    }

    /// Replaces the configured peers. Links to nodes that are no members any more end, and new links are dialed or
    /// accepted. Returns when these links have ended, so that a peer that is added again later starts with a new link.
    /// A link that is up stays, even if its peer's address changes.
    ///
    /// Links also end if the future is dropped.
    pub async fn set_peers(&self, peers: Vec<Peer>) {
        let ending = self.shared.configure(peers);
        until_ended(ending).await;
    }

    /// Evicts `node`: this node and, through its links, all other nodes refuse it from now on. Its link ends, and no
    /// later message gets to it. Returns when its link here has ended. [`Event::Evicted`] follows at each node.
    ///
    /// The eviction lasts as long as any node stores it.
    pub async fn evict(&self, node: &NodeName) -> Result<(), OrderError> {
        let ending = self.shared.evict(node)?;
        until_ended(ending).await;
        Ok(())
    }

    /// Lets `node` be a member again, here and at all other nodes.
    pub fn admit(&self, node: &NodeName) -> Result<(), OrderError> {
        self.shared.admit(node)
    }

    /// Waits until all tasks have ended after shutdown. Messages queued before it were then sent, or could not be.
    pub async fn stopped(&self) {
        self.shared.tasks.wait().await;
    }
}

/// How a message enters the queue of a link.
type Push = fn(&Outbox, &Message) -> Result<(), SendError>;

async fn until_ended(ending: Ending) {
    let ended = async {
        for peer in ending {
            peer.ended().await;
        }
    };
    // The peers have to take the last bytes, and may fail to.
    let _ = timeout(REMOVAL_MAX, ended).await;
}

/// The most time that a link takes to end in good order.
const REMOVAL_MAX: Duration = Duration::from_secs(3);

/// The state that all tasks of a mesh share.
struct MeshShared {
    identity: Identity,
    roles: BTreeSet<Role>,
    hello: Hello,
    /// Determines the peers. A task that locks both locks this first.
    members: Mutex<Members>,
    legs: watch::Sender<BTreeMap<NodeName, SocketAddr>>,
    /// Whether unknown nodes may become members.
    is_open: bool,
    peers: RwLock<BTreeMap<NodeName, Arc<PeerEntry>>>,
    /// The addresses on which peers listen, and those from which their links come.
    addresses: RwLock<HashSet<IpAddr>>,
    limits: Limits,
    metrics: Metrics,
    events: mpsc::Sender<Event>,
    shutdown: CancellationToken,
    tasks: TaskTracker,
}

impl MeshShared {
    /// Whether this node dials `peer`. Otherwise `peer` dials this node.
    fn dials(&self, peer: &NodeName) -> bool {
        self.hello.node < *peer
    }

    fn peer(&self, name: &NodeName) -> Option<Arc<PeerEntry>> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// All peers, by name.
    fn all_peers(&self) -> Vec<Arc<PeerEntry>> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn is_address_of_member(&self, address: IpAddr) -> bool {
        self.addresses.read().unwrap_or_else(PoisonError::into_inner).contains(&address.to_canonical())
    }

    /// Updates the addresses of all peers, after a change of a peer or its link.
    fn note_addresses(&self) {
        let peers = self.all_peers();
        let all = peers.iter().flat_map(|peer| {
            let remote = peer.link().and_then(|link| link.remote);
            [Some(peer.address().ip()), remote].into_iter().flatten().map(|address| address.to_canonical())
        });
        *self.addresses.write().unwrap_or_else(PoisonError::into_inner) = all.collect();
    }

    /// Adds a peer, or changes its address.
    fn add(self: &Arc<Self>, peer: Peer) {
        if let Some(known) = self.peer(&peer.name) {
            return known.set_address(peer.address);
        }
        let entry = Arc::new(PeerEntry::new(peer, &self.shutdown));
        self.peers.write().unwrap_or_else(PoisonError::into_inner).insert(entry.name.clone(), Arc::clone(&entry));
        if self.dials(&entry.name) {
            self.tasks.spawn(dial::run(Arc::clone(self), entry));
        } else if self.is_open {
            self.tasks.spawn(introduce::run(Arc::clone(self), entry));
        }
    }

    fn remove(&self, name: &NodeName) -> Option<Arc<PeerEntry>> {
        self.peers.write().unwrap_or_else(PoisonError::into_inner).remove(name)
    }

    fn send(&self, peer: &NodeName, message: &Message, push: Push) -> Result<(), SendError> {
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

    /// Whether `peer` is this node, and it has several roles.
    fn is_own(&self, peer: &NodeName) -> bool {
        *peer == self.hello.node && self.roles.len() > 1
    }

    fn send_to_self(&self, message: &Message) -> Result<(), SendError> {
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
    async fn report(&self, event: Event) {
        tokio::select! {
            _ = self.events.send(event) => {}
            () = self.shutdown.cancelled() => {}
        }
    }
}

fn random_u64() -> Result<u64, StartError> {
    let mut bytes = [0; 8];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| StartError::NoRandomness)?;
    Ok(u64::from_be_bytes(bytes))
}
