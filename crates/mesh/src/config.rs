//! Configuration of a mesh.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio::net::TcpListener;
use watari_pki::Identity;
use watari_values::setting::{As, Within};
use watari_values::{NodeName, Role};
use watari_wire::frame::FRAME_LEN_MAX;

pub struct Config {
    /// The node's name, certificate and key.
    pub identity: Identity,
    /// The roles of this process. The certificate has to allow each.
    pub roles: BTreeSet<Role>,
    /// The listener for links from peers.
    pub listener: TcpListener,
    /// The other nodes. If this node is among them, the entry is ignored, so that all nodes can have the same list.
    pub peers: Vec<Peer>,
    /// The nodes that can be members besides `peers`.
    pub join: Join,
    pub limits: Limits,
}

/// Another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The name in its certificate.
    pub name: NodeName,
    /// Its listener for links.
    pub address: SocketAddr,
}

/// The nodes that can be members besides the configured peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    /// None.
    Configured,
    /// Every dispatcher and agent with a certificate of the cluster's authority. Nodes report members to each other.
    Certified {
        /// The address that other nodes connect to for links with this node.
        mesh: SocketAddr,
        /// The address of this agent's leg listener, for dispatchers that look for agents.
        legs: Option<SocketAddr>,
    },
}

/// Time limits and queue limits of a mesh.
// `[node.limits]` of a configuration file: the documentation of a field is that of its key.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Connections from unknown addresses that have not identified themselves by a certificate and a hello. The same
    /// number is allowed from addresses of members, and from those from which a peer has connected recently. For a newer
    /// connection, the oldest of the address with the most is closed.
    #[serde(with = "As::<Within<1, 65_536>>")]
    pub unidentified_max: usize,
    /// Unidentified connections from one unknown address (IPv6: a network of 64 bits). For a newer connection, the
    /// oldest is closed.
    #[serde(with = "As::<Within<1, 65_536>>")]
    pub unidentified_per_address_max: usize,

    // The rest is not configurable.
    /// The silence after which a link is pinged, repeatedly.
    #[serde(skip)]
    pub ping_after: Duration,
    /// The time without received bytes, or without progress in sending, after which a link is closed.
    #[serde(skip)]
    pub dead_after: Duration,
    /// The time from connect or accept to the end of the hellos.
    #[serde(skip)]
    pub handshake_max: Duration,
    /// The pause before the first attempt to connect again. It doubles with each attempt.
    #[serde(skip)]
    pub backoff_min: Duration,
    /// The longest pause before an attempt.
    #[serde(skip)]
    pub backoff_max: Duration,
    /// Messages that may wait in the queue to one peer.
    #[serde(skip)]
    pub queue_messages_max: usize,
    /// Bytes that may wait in the queue to one peer: at least the longest frame.
    #[serde(skip)]
    pub queue_bytes_max: usize,
    /// Connections for HTTP that one peer may have made to this node. The acceptor closes others.
    #[serde(skip)]
    pub http_per_peer_max: usize,
    /// Events of all peers that may wait for their reader.
    #[serde(skip)]
    pub events_max: usize,
    /// The interval at which one of the peers, in turn, is sent all members.
    #[serde(skip)]
    pub members_interval: Duration,
    /// A learned member is removed after this time without a link from any node.
    #[serde(skip)]
    pub members_forgotten_after: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            unidentified_max: 256,
            unidentified_per_address_max: 64,
            ping_after: Duration::from_secs(1),
            dead_after: Duration::from_secs(5),
            handshake_max: Duration::from_secs(5),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(5),
            queue_messages_max: 16 << 10,
            queue_bytes_max: 8 << 20,
            http_per_peer_max: 256,
            events_max: 256,
            members_interval: Duration::from_mins(1),
            // A host may take this long to restart. To dial it in vain for longer costs more than it gains.
            members_forgotten_after: Duration::from_hours(1),
        }
    }
}

/// A mesh cannot start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The process has a role that its certificate does not allow.
    #[error("the certificate of {node} does not allow the role {role}")]
    Role {
        node: NodeName,
        /// The configured role.
        role: Role,
    },
    /// Two peers have the same name.
    #[error("the peer {0} is configured twice")]
    PeerTwice(NodeName),
    /// A limit is too small to work with.
    #[error("the limit {0} is too small")]
    Limit(&'static str),
    /// The system provides no random bytes.
    #[error("the system gives no random bytes")]
    NoRandomness,
}

impl Config {
    pub(crate) fn check(&self) -> Result<(), StartError> {
        if let Some(role) = self.roles.difference(self.identity.roles()).next() {
            return Err(StartError::Role { node: self.identity.node().clone(), role: *role });
        }
        let mut names = BTreeSet::new();
        if let Some(peer) = self.peers.iter().find(|peer| !names.insert(&peer.name)) {
            return Err(StartError::PeerTwice(peer.name.clone()));
        }
        self.limits.check()
    }
}

impl Limits {
    fn check(&self) -> Result<(), StartError> {
        let too_small = [
            ("ping_after", self.ping_after.is_zero()),
            ("dead_after", self.dead_after <= self.ping_after),
            ("handshake_max", self.handshake_max.is_zero()),
            ("backoff_min", self.backoff_min.is_zero()),
            ("backoff_max", self.backoff_max < self.backoff_min),
            ("queue_messages_max", self.queue_messages_max == 0),
            ("queue_bytes_max", self.queue_bytes_max < FRAME_LEN_MAX),
            ("http_per_peer_max", self.http_per_peer_max == 0),
            ("events_max", self.events_max == 0),
            ("unidentified_max", self.unidentified_max == 0),
            ("unidentified_per_address_max", self.unidentified_per_address_max == 0),
            ("members_interval", self.members_interval.is_zero()),
            ("members_forgotten_after", self.members_forgotten_after.is_zero()),
        ];
        match too_small.into_iter().find(|(_, too_small)| *too_small) {
            Some((name, _)) => Err(StartError::Limit(name)),
            None => Ok(()),
        }
    }
}
