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
//! A node sends messages to itself in the same way, without a link.
//!
//! Beside the links, agents connect to each other for HTTP, over the same port (`http`, `http_setup`, `http_stream`).
//! TLS selects the protocol. The mesh identifies the peers of these connections and ends them. It does not read them.
//!
//! `shared` holds the peers and the members, and imports no task. The tasks import it: `accept`, `dial`, `hello`,
//! `http`, `introduce`, `link`, `membership`.
//!
//! Delivery is at most once and in order within one link. There are no retries: after [`Event::Down`] it is unknown how
//! many of the sent messages arrived. This crate decides nothing about connections.

mod accept;
mod backoff;
mod config;
mod dial;
mod error;
mod event;
mod hello;
mod http;
mod http_setup;
mod http_stream;
mod inbox;
mod introduce;
mod link;
mod members;
mod membership;
mod metrics;
mod outbox;
mod peer;
mod rules;
mod shared;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, RwLock};

use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use watari_values::NodeName;
use watari_wire::{Hello, Message};

pub use config::{Config, Join, Limits, Peer, StartError};
pub use error::LinkError;
pub use event::{Event, SendError};
pub use http_stream::{HttpConnection, HttpStream};
pub use members::{OrderError, Source};
pub use peer::PeerStatus;

use http_setup::HttpSetup;
use members::{Members, Now};
use membership::{Ending, REMOVAL_MAX};
use metrics::{DropReason, Metrics};
use outbox::Outbox;
use shared::{MeshShared, Push};

/// This node's end of all its links. Clones share it.
#[derive(Clone)]
pub struct Mesh {
    shared: Arc<MeshShared>,
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
        let (mesh, events, links) = Self::prepare(config, registry, shutdown)?;
        links.begin();
        Ok((mesh, events))
    }

    /// Like [`Mesh::start`], but has no links until [`Links::begin`]: another process of this node may have them.
    pub fn prepare(
        config: Config,
        registry: &mut Registry,
        shutdown: CancellationToken,
    ) -> Result<(Self, mpsc::Receiver<Event>, Links), StartError> {
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
            http: HttpSetup::new(&config.identity),
            identity: config.identity,
            roles: config.roles,
            limits: config.limits,
            metrics: Metrics::register(registry),
            events,
            shutdown,
            tasks: TaskTracker::new(),
        });
        let links = Links { shared: Arc::clone(&shared), listener: config.listener, peers: config.peers };
        Ok((Self { shared }, receiver, links))
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

    /// Sends a message that may be lost. It leaves half of the queue to others.
    pub fn send_bulk(&self, peer: &NodeName, message: &Message) -> Result<(), SendError> {
        self.send_by(peer, message, Outbox::push_bulk)
    }

    /// Whether little waits on the link to `peer`. A sender of many bytes that heeds this does not delay other messages.
    pub fn is_queue_short(&self, peer: &NodeName) -> bool {
        self.shared.peer(peer).and_then(|peer| peer.link()).is_none_or(|link| link.outbox.is_short())
    }

    /// Waits until [`Mesh::is_queue_short`]. If the link ends meanwhile, it may wait forever.
    pub async fn until_queue_short(&self, peer: &NodeName) {
        if let Some(link) = self.shared.peer(peer).and_then(|peer| peer.link()) {
            link.outbox.until_short().await;
        }
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

    /// Connects to another agent for HTTP. The agent closes the connection if no process of it handles HTTP, or if it
    /// has too many connections. If so, this node notices it at its first read.
    pub async fn dial_http(&self, node: &NodeName) -> Result<HttpStream, LinkError> {
        http::dial(&self.shared, node).await
    }

    /// The connections for HTTP that other agents make to this one from now on, instead of the previous receiver. At
    /// most `waiting_max` wait in the receiver. Without a receiver, and while it is full, this node closes new
    /// connections.
    pub fn http_connections(&self, waiting_max: usize) -> mpsc::Receiver<HttpConnection> {
        self.shared.http.handle(waiting_max)
    }

    /// Whether a link to `peer` is up, or `peer` is this node with several roles.
    pub fn is_up(&self, peer: &NodeName) -> bool {
        self.shared.is_own(peer) || self.shared.peer(peer).is_some_and(|peer| peer.link().is_some())
    }

    /// The incarnation of this process: a number that was drawn at random at its start.
    pub fn incarnation(&self) -> u64 {
        self.shared.hello.incarnation
    }

    /// All peers, by name.
    pub fn peers(&self) -> Vec<PeerStatus> {
        let members = self.shared.members();
        let peers = self.shared.all_peers();
        peers.iter().map(|peer| peer.status(members.source(&peer.name).unwrap_or(Source::Learned))).collect()
    }

    /// Whether nodes that this node does not know yet may become members ([`Join::Certified`]).
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

/// The links of a mesh that have not begun.
pub struct Links {
    shared: Arc<MeshShared>,
    listener: TcpListener,
    peers: Vec<Peer>,
}

impl Links {
    /// Starts dialing and accepting.
    pub fn begin(self) {
        let Self { shared, listener, peers } = self;
        shared.configure(peers);
        shared.tasks.spawn(membership::keep(Arc::clone(&shared)));
        shared.tasks.spawn(accept::run(Arc::clone(&shared), listener));
        shared.tasks.close();
    }

    /// Like [`Links::begin`], for a new process of a node whose peers are losing their links to the previous one. Has
    /// those that dial this node dial at once, and not after a pause.
    pub fn begin_again(self) {
        let shared = Arc::clone(&self.shared);
        self.begin();
        for peer in shared.all_peers().into_iter().filter(|peer| !shared.dials(&peer.name)) {
            tokio::spawn(introduce::once(Arc::clone(&shared), peer));
        }
    }
}

async fn until_ended(ending: Ending) {
    let ended = async {
        for peer in ending {
            peer.ended().await;
        }
    };
    // The peers have to take the last bytes, and may fail to.
    let _ = timeout(REMOVAL_MAX, ended).await;
}

fn random_u64() -> Result<u64, StartError> {
    let mut bytes = [0; 8];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| StartError::NoRandomness)?;
    Ok(u64::from_be_bytes(bytes))
}
