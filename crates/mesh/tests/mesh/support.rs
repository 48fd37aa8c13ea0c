//! Clusters, nodes, and raw peers that send any message.

use std::collections::BTreeSet;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use rustls::pki_types::ServerName;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{interval, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;
use watari_mesh::{Config, Event, Join, Limits, LinkError, Mesh, Peer};
use watari_pki::{Authority, Identity};
use watari_values::{ConnectionId, Epoch, NodeName, Role, SecretBytes, TlsInfo};
use watari_wire::frame::{self, Frame};
use watari_wire::{AgentToAgent, DispatcherToAgent, Freeze, Hello, LinkMessage, Message, Ship};

/// Long enough for the slowest machine. Only a failing test waits this long.
const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future).await.expect("nothing happened in time")
}

/// Waits until `condition` is true.
pub(crate) async fn until(mut condition: impl FnMut() -> bool) {
    let mut tick = interval(Duration::from_millis(2));
    soon(async {
        while !condition() {
            tick.tick().await;
        }
    })
    .await;
}

/// A directory with an authority and the certificates that it has issued.
pub(crate) struct Cluster(TempDir);

impl Cluster {
    /// Nodes with these names. Names that begin with `d` are dispatchers, those with `x` have both roles, and all
    /// others are agents.
    pub(crate) fn new(names: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path(), "test").unwrap();
        for node in names {
            let roles: Vec<Role> = roles(node).into_iter().collect();
            authority.issue(&name(node), &roles, 1).unwrap();
        }
        Self(dir)
    }

    pub(crate) fn dir(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn identity(&self, node: &str) -> Identity {
        Identity::load(self.dir(), &name(node)).unwrap()
    }

    /// A node with these configured peers.
    pub(crate) async fn node(&self, node: &str, peers: &[(&str, SocketAddr)]) -> Node {
        Node::start(self.identity(node), listener().await, peers, limits())
    }

    /// A node with these configured peers, and open to every certified node.
    pub(crate) async fn open_node(&self, node: &str, peers: &[(&str, SocketAddr)], limits: Limits) -> Node {
        let listener = listener().await;
        let join = Join::Certified { mesh: listener.local_addr().unwrap(), legs: None };
        Node::start_with(self.identity(node), listener, peers, join, limits)
    }
}

pub(crate) fn roles(node: &str) -> BTreeSet<Role> {
    match node.as_bytes()[0] {
        b'd' => BTreeSet::from([Role::Dispatcher]),
        b'x' => BTreeSet::from(Role::ALL),
        _ => BTreeSet::from([Role::Agent]),
    }
}

pub(crate) fn limits() -> Limits {
    Limits { backoff_min: Duration::from_millis(5), backoff_max: Duration::from_millis(50), ..Limits::default() }
}

pub(crate) async fn listener() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap()
}

/// An address for a peer that is never dialed.
pub(crate) fn nowhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 1).into()
}

pub(crate) struct Node {
    pub(crate) mesh: Mesh,
    pub(crate) address: SocketAddr,
    pub(crate) shutdown: CancellationToken,
    events: mpsc::Receiver<Event>,
    registry: Registry,
}

impl Node {
    pub(crate) fn start(
        identity: Identity,
        listener: TcpListener,
        peers: &[(&str, SocketAddr)],
        limits: Limits,
    ) -> Self {
        Self::start_with(identity, listener, peers, Join::Configured, limits)
    }

    pub(crate) fn start_with(
        identity: Identity,
        listener: TcpListener,
        peers: &[(&str, SocketAddr)],
        join: Join,
        limits: Limits,
    ) -> Self {
        let roles = identity.roles().clone();
        Self::start_as(roles, identity, listener, peers, join, limits)
    }

    /// A node with some of the roles that its certificate allows.
    pub(crate) fn start_as(
        roles: BTreeSet<Role>,
        identity: Identity,
        listener: TcpListener,
        peers: &[(&str, SocketAddr)],
        join: Join,
        limits: Limits,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let peers = peers.iter().map(|(peer, address)| Peer { name: name(peer), address: *address }).collect();
        let (mut registry, shutdown) = (Registry::default(), CancellationToken::new());
        let config = Config { identity, roles, listener, peers, join, limits };
        let (mesh, events) = Mesh::start(config, &mut registry, shutdown.clone()).unwrap();
        Self { mesh, address, shutdown, events, registry }
    }

    pub(crate) async fn event(&mut self) -> Event {
        soon(self.events.recv()).await.expect("the mesh has ended")
    }

    /// Asserts that the next event is that this peer's link is up. Returns its incarnation.
    pub(crate) async fn up(&mut self, expected: &str) -> u64 {
        match self.event().await {
            Event::Up { peer, roles: found, incarnation } => {
                assert_eq!((peer.as_str(), found), (expected, roles(expected)));
                assert!(self.mesh.is_up(&peer));
                incarnation
            }
            other => panic!("instead of {expected} up: {other:?}"),
        }
    }

    /// Asserts that the next event is that this peer's link is down. Returns the reason.
    pub(crate) async fn down(&mut self, expected: &str) -> LinkError {
        match self.event().await {
            Event::Down { peer, reason } if peer.as_str() == expected => reason,
            other => panic!("instead of {expected} down: {other:?}"),
        }
    }

    /// Asserts that the next event is a message of this peer.
    pub(crate) async fn message(&mut self, expected: &str) -> Message {
        match self.event().await {
            Event::Message { peer, message } if peer.as_str() == expected => message,
            other => panic!("instead of a message of {expected}: {other:?}"),
        }
    }

    /// The value of a metric, without `watari_mesh_`. 0 if there is none yet.
    pub(crate) fn metric(&self, metric: &str) -> u64 {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("watari_mesh_")?.strip_prefix(metric));
        line.map_or(0, |value| value.trim().parse().unwrap())
    }

    /// Waits until the metric has this value.
    pub(crate) async fn counts(&self, metric: &str, value: u64) {
        until(|| self.metric(metric) == value).await;
    }

    /// Shuts the node down in good order.
    pub(crate) async fn stop(self) -> TcpListenerAddress {
        self.shutdown.cancel();
        soon(self.mesh.stopped()).await;
        TcpListenerAddress(self.address)
    }
}

/// The listener address of a node that has ended.
pub(crate) struct TcpListenerAddress(SocketAddr);

impl TcpListenerAddress {
    pub(crate) async fn listen_again(self) -> TcpListener {
        TcpListener::bind(self.0).await.unwrap()
    }
}

/// A peer with a certificate, whose messages the test builds.
pub(crate) struct RawPeer {
    stream: TlsStream<TcpStream>,
    received: Vec<u8>,
}

impl RawPeer {
    /// Connects with TLS, and sends nothing.
    pub(crate) async fn connect(identity: &Identity, to: &str, address: SocketAddr) -> Self {
        let tcp = soon(TcpStream::connect(address)).await.unwrap();
        let connector = TlsConnector::from(identity.client_config().clone());
        let to = ServerName::try_from(to.to_owned()).unwrap();
        Self { stream: soon(connector.connect(to, tcp)).await.unwrap(), received: Vec::new() }
    }

    /// Connects with TLS, and exchanges hellos.
    pub(crate) async fn link(identity: &Identity, to: &str, address: SocketAddr, incarnation: u64) -> Self {
        let mut peer = Self::connect(identity, to, address).await;
        let hello = Hello::new(identity.node().clone(), identity.roles(), incarnation);
        peer.send_link(&LinkMessage::Hello(hello)).await;
        assert!(
            matches!(peer.next_frame().await, Some(Frame::Link(LinkMessage::Hello(hello))) if hello.node == name(to))
        );
        peer
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        soon(self.stream.write_all(bytes)).await.unwrap();
        soon(self.stream.flush()).await.unwrap();
    }

    pub(crate) async fn send_link(&mut self, message: &LinkMessage) {
        let mut bytes = Vec::new();
        frame::encode_link(message, &mut bytes);
        self.write(&bytes).await;
    }

    pub(crate) async fn send(&mut self, message: &Message) {
        let mut bytes = Vec::new();
        frame::encode(message, &mut bytes).unwrap();
        self.write(&bytes).await;
    }

    /// The next frame. `None`: the link has ended.
    pub(crate) async fn next_frame(&mut self) -> Option<Frame> {
        loop {
            if let Some((frame, len)) = frame::decode(&self.received).unwrap() {
                self.received.drain(..len);
                return Some(frame);
            }
            match soon(self.stream.read_buf(&mut self.received)).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }
}

pub(crate) fn freeze(rx_offset: u64) -> Message {
    Message::from(DispatcherToAgent::Freeze(Freeze { connection: connection(), epoch: Epoch(1), rx_offset }))
}

pub(crate) fn ship() -> Message {
    Message::from(AgentToAgent::Ship(Box::new(Ship {
        connection: connection(),
        epoch: Epoch(1),
        dispatcher: name("d"),
        state: SecretBytes::new(vec![1; 180]),
        tls: TlsInfo { version: 0x0304, suite: 0x1301, alpn: vec![], server_name: None, resumed: false },
        client_certificate: None,
        client: "192.0.2.1:1000".parse().unwrap(),
        server: "192.0.2.2:443".parse().unwrap(),
        handshake_node: name("a"),
        moves: 0,
        opened: SecretBytes::new(vec![4; 1000]),
        rx_offset: 100_000,
        rest: SecretBytes::new(vec![2; 100_000]),
        tail: vec![3; 50_000],
        tail_offset: 5,
    })))
}

pub(crate) fn connection() -> ConnectionId {
    ConnectionId { boot: 1, number: 2 }
}
