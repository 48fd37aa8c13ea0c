//! A node without a mesh, and connections with a leg and known secrets.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use watari_files::Files;
use watari_mesh::{PeerStatus, SendError};
use watari_record::{CipherSuite, Connection, Direction, DirectionSecret, Secrets, Side};
use watari_stream::Parts;
use watari_sys::tcp;
use watari_values::{ConnectionId, Epoch, NodeName, SecretBytes, TlsInfo};
use watari_wire::{AgentToAgent, AgentToDispatcher, Message, Ship};
use zeroize::Zeroizing;

use super::live::{About, Live};
use crate::leg::{CurrentDispatcher, Leg, LegTable};
use crate::node::metrics::Metrics;
use crate::node::peers::{Links, Peers};
use crate::settings::current::{CurrentSettings, Settings};
use crate::settings::limits::Limits;
use crate::settings::site::Site;

pub(crate) const ID: ConnectionId = ConnectionId { boot: 1, number: 7 };

/// Links that record what is sent.
#[derive(Clone, Default)]
pub(crate) struct RecordedLinks(Arc<Mutex<Recorded>>);

#[derive(Default)]
struct Recorded {
    sent: Vec<(NodeName, Message)>,
    down: BTreeSet<NodeName>,
}

impl RecordedLinks {
    pub(crate) fn set_down(&self, peer: &str) {
        self.0.lock().unwrap().down.insert(name(peer));
    }

    /// Removes and returns the messages sent so far.
    pub(crate) fn take(&self) -> Vec<(NodeName, Message)> {
        std::mem::take(&mut self.0.lock().unwrap().sent)
    }

    /// The messages to the dispatcher `d` since the last call. Messages to others are dropped.
    pub(crate) fn to_dispatcher(&self) -> Vec<AgentToDispatcher> {
        let to_d = |(to, message)| match message {
            Message::AgentToDispatcher(message) if to == name("d") => Some(message),
            _ => None,
        };
        self.take().into_iter().filter_map(to_d).collect()
    }

    /// The messages since the last call: to the agent `b`, and to the dispatcher `d`.
    pub(super) fn split(&self) -> (Vec<AgentToAgent>, Vec<AgentToDispatcher>) {
        let (mut to_agent, mut to_dispatcher) = (Vec::new(), Vec::new());
        for (to, message) in self.take() {
            match message {
                Message::AgentToAgent(message) if to == name("b") => to_agent.push(message),
                Message::AgentToDispatcher(message) if to == name("d") => to_dispatcher.push(message),
                other => panic!("unexpected message to {to}: {other:?}"),
            }
        }
        (to_agent, to_dispatcher)
    }
}

impl Links for RecordedLinks {
    fn send(&self, to: &NodeName, message: &Message) -> Result<(), SendError> {
        let mut recorded = self.0.lock().unwrap();
        if recorded.down.contains(to) {
            return Err(SendError::NoLink);
        }
        recorded.sent.push((to.clone(), message.clone()));
        Ok(())
    }

    fn send_bulk(&self, to: &NodeName, message: &Message) -> Result<(), SendError> {
        self.send(to, message)
    }

    fn send_soon(&self, to: &NodeName, message: &Message) -> Result<(), SendError> {
        self.send(to, message)
    }

    fn is_up(&self, peer: &NodeName) -> bool {
        !self.0.lock().unwrap().down.contains(peer)
    }

    fn statuses(&self) -> Vec<PeerStatus> {
        Vec::new()
    }

    fn is_open(&self) -> bool {
        false
    }

    fn is_address_of_member(&self, _: IpAddr) -> bool {
        false
    }
}

/// The capabilities of the agent `a`.
pub(crate) struct Node {
    pub(crate) links: RecordedLinks,
    pub(crate) peers: Peers,
    pub(crate) settings: Arc<CurrentSettings>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Node {
    pub(crate) fn new(limits: Limits) -> Self {
        Self::serving(Path::new("/"), limits)
    }

    /// The site is the directory `root`.
    pub(crate) fn serving(root: &Path, limits: Limits) -> Self {
        let links = RecordedLinks::default();
        let site = Arc::new(Site::Files(Files::open(root, watari_files::Metrics::default()).unwrap()));
        Self {
            peers: Peers::new(name("a"), links.clone()),
            links,
            settings: Arc::new(CurrentSettings::new(Settings { tls: None, site, limits })),
            metrics: Arc::default(),
        }
    }
}

pub(crate) fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

/// The record layer of one end, at its first record.
pub(crate) fn record_layer(side: Side) -> Connection {
    let secret = |seed| DirectionSecret::Tls13(Zeroizing::new(vec![seed; 32]));
    let (tx, rx) = if side == Side::Server { (1, 2) } else { (2, 1) };
    let direction = |seed| Direction { sequence: 0, secret: secret(seed) };
    let suite = CipherSuite::TLS_AES_128_GCM_SHA256;
    Connection::new(Secrets { side, suite, tx: direction(tx), rx: direction(rx) }).unwrap()
}

pub(crate) fn about() -> About {
    let tls = TlsInfo { version: 0x0304, suite: 0x1301, alpn: b"http/1.1".to_vec(), server_name: None, resumed: false };
    About {
        id: ID,
        tenure: Epoch(0),
        last: Epoch(0),
        dispatcher: CurrentDispatcher::new(name("d")),
        client: "192.0.2.1:5000".parse().unwrap(),
        server: "192.0.2.2:443".parse().unwrap(),
        tls,
        client_certificate: None,
        handshake_node: name("a"),
        moves: 0,
    }
}

/// The connection [`ID`] as the agent `b` ships it: 10 bytes received, of which the last 4 are not opened, and 20 written.
pub(crate) fn shipped() -> Ship {
    let about = about();
    Ship {
        connection: ID,
        epoch: Epoch(1),
        dispatcher: about.dispatcher.get(),
        state: SecretBytes::new(record_layer(Side::Server).fence().state().to_vec()),
        tls: about.tls,
        client_certificate: None,
        client: about.client,
        server: about.server,
        handshake_node: name("b"),
        moves: 0,
        opened: SecretBytes::new(b"opened".to_vec()),
        rx_offset: 10,
        rest: SecretBytes::new(b"rest".to_vec()),
        tail: b"tail".to_vec(),
        tail_offset: 20,
    }
}

/// A connection that has received 10 bytes, of which the last 4 are not opened, and has written 20 bytes.
pub(crate) fn live(leg: Leg) -> Box<Live> {
    let mut parts = Parts::new(leg, record_layer(Side::Server));
    parts.opened = b"opened".to_vec();
    parts.unopened = b"rest".to_vec();
    parts.unsent = b"tail".to_vec();
    parts.received = 10;
    parts.sent = 20;
    let dispatcher = parts.io.dispatcher();
    Box::new(Live { about: About { dispatcher, ..about() }, parts })
}

/// The leg of [`live`] in a table of its own, and the dispatcher's end of it.
pub(super) async fn leg() -> (Leg, TcpStream) {
    leg_in(&Arc::default()).await
}

/// The leg of [`live`], and the dispatcher's end of it.
pub(crate) async fn leg_in(table: &Arc<LegTable>) -> (Leg, TcpStream) {
    let (leg, end) = streams().await;
    (Leg::new(leg, about().carried(0, 10, 20), table), end)
}

/// The two ends of a TCP connection.
pub(crate) async fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (end, accepted) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    let streams = (accepted.unwrap().0, end.unwrap());
    for stream in [&streams.0, &streams.1] {
        tcp::prepare(stream).unwrap();
    }
    streams
}

/// Whether the dispatcher's end of a leg ends by a reset, without a byte.
pub(crate) async fn is_reset(mut end: TcpStream) -> bool {
    end.read(&mut [0; 16]).await.is_err()
}
