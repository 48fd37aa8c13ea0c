//! Mutual-TLS links between the nodes of a cluster.
//!
//! Between every two nodes that know of each other there is one link: a TLS 1.3 connection on which both show
//! certificates of the cluster's authority. The node whose name sorts first dials, again and again with growing pauses
//! (`dial`); the other accepts (`accept`). Both say hello, and then [messages](watari_wire::Message) go both ways in
//! frames, as many at once as have gathered (`link`, `outbox`). A link on which nothing comes for a while is given up, and
//! one on which its dialer comes anew is replaced.
//!
//! Who the others are says the configuration; or whoever has a certificate is a member, and nodes tell each other whom
//! they know (`members`, `membership`, `introduce`). Either way an operator may evict one, whatever its certificate
//! says.
//!
//! What a node may say to another follows from the roles of both (`rules`), which their certificates bound. What is not
//! allowed is neither sent nor delivered.
//!
//! A node that plays several roles talks to itself in the same way, without a link.
//!
//! Delivery is at most once, in order within one link, and not retried: after [`Event::Down`] nobody knows how much of
//! what was sent arrived. Nothing here decides anything about connections.

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
use watari_wire::{BadLength, Hello, Message, NodeName, Role};

pub use config::{Config, Join, Limits, Peer, StartError};
pub use error::LinkError;
pub use members::{OrderError, Source};
pub use peer::PeerStatus;

use members::{Members, Now};
use membership::Ending;
use metrics::{DropReason, Metrics};
use outbox::Outbox;
use peer::PeerEntry;

/// This node's end of all its links. Clones are handles to the same.
#[derive(Clone)]
pub struct Mesh {
    shared: Arc<Shared>,
}

/// What happens on the links, in the order in which it happened on each.
#[derive(Debug)]
pub enum Event {
    /// There is a link.
    Up {
        /// To whom.
        peer: NodeName,
        /// What that node does.
        roles: BTreeSet<Role>,
        /// Drawn at random when its process started.
        incarnation: u64,
    },
    /// The link is gone. What was sent on it may or may not have arrived.
    Down {
        /// To whom it was.
        peer: NodeName,
        /// Why it ended.
        reason: LinkError,
    },
    /// A node is evicted, and its link has ended: it gets nothing any more.
    Evicted {
        /// Who.
        peer: NodeName,
        /// When that was ordered, in seconds of Unix time, by the clock of the node that was given the order.
        at: u64,
        /// The agent that is to make new keys for tickets, which that node does not know.
        keys_by: Option<NodeName>,
    },
    /// The peer says something that its role allows.
    Message {
        /// Who.
        peer: NodeName,
        /// What.
        message: Message,
    },
}

/// A message was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// There is no link to that node, or it is none of the peers.
    #[error("there is no link to the peer")]
    NoLink,
    /// More waits to be sent than may; the peer or the network is too slow.
    #[error("the queue to the peer is full")]
    QueueFull,
    /// The roles of the two nodes do not allow it. A fault of the caller.
    #[error("a message of kind `{0}` may not go from this node to the peer")]
    NotAllowed(&'static str),
    /// A field of the message is longer than allowed. A fault of the caller.
    #[error(transparent)]
    BadLength(#[from] BadLength),
}

impl Mesh {
    /// Starts dialing and accepting, until `shutdown` is cancelled. Must be called in a tokio runtime.
    ///
    /// The receiver bounds what has come and was not looked at; where it is full, links are not read. Metrics are registered
    /// as `watari_mesh_*`.
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
        let shared = Arc::new(Shared {
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

    /// The same for a message that nobody waits for: it may be sent a few milliseconds later, in one packet with others.
    /// It keeps its place among them.
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

    /// Whether there is a link to `peer`, or it is this node itself in another role.
    pub fn is_up(&self, peer: &NodeName) -> bool {
        self.shared.is_own(peer) || self.shared.peer(peer).is_some_and(|peer| peer.link().is_some())
    }

    /// All peers, by name.
    pub fn peers(&self) -> Vec<PeerStatus> {
        let members = self.shared.members();
        let peers = self.shared.all_peers();
        peers.iter().map(|peer| peer.status(members.source(&peer.name).unwrap_or(Source::Learned))).collect()
    }

    /// Whether nodes may come that this one has not heard of ([`Join::Certified`]).
    pub fn is_open(&self) -> bool {
        self.shared.is_open
    }

    /// Whether a peer listens at this address, or has its link from there. Connections from such addresses have a pool
    /// of their own.
    pub fn is_address_of_member(&self, address: IpAddr) -> bool {
        self.shared.is_address_of_member(address)
    }

    /// Who is evicted, as far as this node has heard, by name.
    pub fn evicted(&self) -> Vec<NodeName> {
        self.shared.members().evicted().cloned().collect()
    }

    /// Where agents that are members say that they take legs, this node included ([`Join::Certified`]).
    pub fn legs(&self) -> watch::Receiver<BTreeMap<NodeName, SocketAddr>> {
        self.shared.legs.subscribe()
    }

    /// Makes these the configured peers: links to others end, unless these are members by themselves, and new ones are
    /// dialed or accepted. Returns when what had to end has, so that a peer that comes back later begins anew. A link
    /// that is up stays, though its peer's address be another.
    ///
    /// Dropping the future ends links all the same.
    pub async fn set_peers(&self, peers: Vec<Peer>) {
        let ending = self.shared.configure(peers);
        until_ended(ending).await;
    }

    /// Refuses `node` from now on, and has all other nodes do so, by way of those that there are links to: its link
    /// ends, and nothing that is said later gets to it. Returns when its link here has ended. [`Event::Evicted`]
    /// follows at each node.
    ///
    /// It is out as long as any node remembers.
    pub async fn evict(&self, node: &NodeName) -> Result<(), OrderError> {
        let ending = self.shared.evict(node)?;
        until_ended(ending).await;
        Ok(())
    }

    /// Lets `node` be a member again, here and at all other nodes.
    pub fn admit(&self, node: &NodeName) -> Result<(), OrderError> {
        self.shared.admit(node)
    }

    /// Waits until everything has ended after shutdown; what was queued before it has then been sent, or could not be.
    pub async fn stopped(&self) {
        self.shared.tasks.wait().await;
    }
}

/// How a message gets into the queue of a link.
type Push = fn(&Outbox, &Message) -> Result<(), SendError>;

async fn until_ended(ending: Ending) {
    let ended = async {
        for peer in ending {
            peer.ended().await;
        }
    };
    // The peers have to take the last bytes, and may not.
    let _ = timeout(REMOVAL_MAX, ended).await;
}

/// Longer than a link takes to end that ends in good order.
const REMOVAL_MAX: Duration = Duration::from_secs(3);

/// What all tasks of a mesh share.
struct Shared {
    identity: Identity,
    roles: BTreeSet<Role>,
    hello: Hello,
    /// Decides who the peers are. Where both are locked, this is first.
    members: Mutex<Members>,
    legs: watch::Sender<BTreeMap<NodeName, SocketAddr>>,
    /// Whether nodes may come that are not known.
    is_open: bool,
    peers: RwLock<BTreeMap<NodeName, Arc<PeerEntry>>>,
    /// Of all peers: where they listen, and where their links come from.
    addresses: RwLock<HashSet<IpAddr>>,
    limits: Limits,
    metrics: Metrics,
    events: mpsc::Sender<Event>,
    shutdown: CancellationToken,
    tasks: TaskTracker,
}

impl Shared {
    /// Whether this node dials `peer`, rather than the other way round.
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

    /// Keeps the addresses of all peers, after one of them or its link has changed.
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
        if !rules::allowed(kind, &self.roles, &link.roles) {
            return Err(SendError::NotAllowed(kind.as_str()));
        }
        push(&link.outbox, message)?;
        self.metrics.sent(kind);
        peer.counters.sent();
        Ok(())
    }

    /// Whether `peer` is this node, and it has somebody to talk to here.
    fn is_own(&self, peer: &NodeName) -> bool {
        *peer == self.hello.node && self.roles.len() > 1
    }

    fn send_to_self(&self, message: &Message) -> Result<(), SendError> {
        let kind = message.kind();
        if !rules::allowed(kind, &self.roles, &self.roles) {
            return Err(SendError::NotAllowed(kind.as_str()));
        }
        message.check_bounds()?;
        let event = Event::Message { peer: self.hello.node.clone(), message: message.clone() };
        self.events.try_send(event).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SendError::QueueFull,
            mpsc::error::TrySendError::Closed(_) => SendError::NoLink,
        })
    }

    /// Reports what happened on a link. In a shutdown nobody may be listening any more.
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
