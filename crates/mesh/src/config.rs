//! What a mesh is started with.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use watari_pki::Identity;
use watari_wire::frame::FRAME_LEN_MAX;
use watari_wire::{NodeName, Role};

/// What a mesh is started with.
pub struct Config {
    /// Who this node is.
    pub identity: Identity,
    /// What this process does; its certificate must allow each of them.
    pub roles: BTreeSet<Role>,
    /// Where peers whose names sort before this node's connect to.
    pub listener: TcpListener,
    /// The other nodes. This node itself may be among them and is passed over, so that all nodes can have one list.
    pub peers: Vec<Peer>,
    /// Who else may be a member.
    pub join: Join,
    /// How long and how much.
    pub limits: Limits,
}

/// Another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its name; its certificate has to say so.
    pub name: NodeName,
    /// Where it listens for links.
    pub address: SocketAddr,
}

/// Who may be a member besides the configured peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    /// Nobody.
    Configured,
    /// Every dispatcher and agent with a certificate of the cluster's authority. Nodes tell each other whom they know.
    Certified {
        /// Where others connect to for links with this node.
        mesh: SocketAddr,
        /// Where dispatchers that look for agents find this one's legs.
        legs: Option<SocketAddr>,
    },
}

/// How long a mesh waits, and how much it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// A link that is silent this long is pinged, each time anew.
    pub ping_after: Duration,
    /// A link that is silent, or takes nothing, for this long is given up.
    pub dead_after: Duration,
    /// From connecting or accepting to the end of the hellos.
    pub handshake_max: Duration,
    /// The pause before the first attempt to connect again; it doubles with each.
    pub backoff_min: Duration,
    /// The longest pause before an attempt.
    pub backoff_max: Duration,
    /// Messages that may wait in the queue to one peer.
    pub queue_messages_max: usize,
    /// Bytes that may wait in the queue to one peer; at least one frame of the greatest length.
    pub queue_bytes_max: usize,
    /// Events that may wait for whoever reads them, of all peers together.
    pub events_max: usize,
    /// Accepted connections from unknown addresses whose peers have not identified themselves; as many more from addresses of
    /// members, and from those that a peer has connected from lately. For a newer one, the oldest of the most crowded address is
    /// closed.
    pub unidentified_max: usize,
    /// The same from one unknown address. For a newer one, the oldest is closed.
    pub unidentified_per_address_max: usize,
    /// How often one of the peers, in turn, is told again who is a member.
    pub members_told_every: Duration,
    /// A member that was learned of is forgotten when nobody has had a link to it for so long.
    pub members_forgotten_after: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ping_after: Duration::from_secs(1),
            dead_after: Duration::from_secs(5),
            handshake_max: Duration::from_secs(5),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(5),
            queue_messages_max: 16 << 10,
            queue_bytes_max: 8 << 20,
            events_max: 256,
            unidentified_max: 256,
            unidentified_per_address_max: 64,
            members_told_every: Duration::from_mins(1),
            // A machine may take that long to start anew, and who is dialed in vain for longer costs more than it is
            // worth.
            members_forgotten_after: Duration::from_hours(1),
        }
    }
}

/// A mesh cannot start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The process is configured for what its certificate does not allow.
    #[error("the certificate of {node} does not allow the role {role}")]
    Role {
        /// The node.
        node: NodeName,
        /// The role.
        role: Role,
    },
    /// Two peers have one name.
    #[error("the peer {0} is configured twice")]
    PeerTwice(NodeName),
    /// A limit under which nothing works.
    #[error("the limit {0} is too small")]
    Limit(&'static str),
    /// The system gives no random bytes.
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
            ("events_max", self.events_max == 0),
            ("unidentified_max", self.unidentified_max == 0),
            ("unidentified_per_address_max", self.unidentified_per_address_max == 0),
            ("members_told_every", self.members_told_every.is_zero()),
            ("members_forgotten_after", self.members_forgotten_after.is_zero()),
        ];
        match too_small.into_iter().find(|(_, too_small)| *too_small) {
            Some((name, _)) => Err(StartError::Limit(name)),
            None => Ok(()),
        }
    }
}
