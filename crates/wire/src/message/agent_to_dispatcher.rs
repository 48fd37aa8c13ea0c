//! What agents send to dispatchers.

use serde::{Deserialize, Serialize};
use watari_values::{AbortReason, ConnectionId, DispatcherChange, Epoch, NodeName, SecretBytes, StayReason, TlsInfo};

/// A message of an agent to a dispatcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentToDispatcher {
    /// The key that authenticates prefaces of legs from D to this agent.
    LegKey(LegKey),
    /// A to D: the TLS handshake is done.
    Established(Established),
    /// A to D: A has fenced the connection and shipped it to B. A asks D to decide.
    Propose(Propose),
    /// B to D: B holds the connection, and does not seal yet.
    Held(Held),
    /// B to D: B does not hold the connection.
    Refused(Refused),
    /// A to D: A cannot ship the bytes that D requested.
    Cancel(Cancel),
    /// The owner to D: the stream to the client ends cleanly at `tx_offset`.
    Final(Final),
    /// The owner to D: the reason that a connection which was asked to leave stays for now.
    Stays(Stays),
    /// The owner to D: the connection is a tunnel and stays until the tunnel ends ([`StayReason::Tunnel`]). It is a
    /// separate message, because builds that do not support it skip it.
    Tunnel(ConnectionId),
    /// The agent is about to end. D drains it.
    Draining,
    /// The owner to D1: it writes no more on its leg ([`DetachLeg`](crate::DetachLeg)).
    LegDetached(LegDetached),
    /// The owner to D1: it writes on the leg of D1 again ([`AttachLeg`](crate::DispatcherToAgent::AttachLeg)).
    LegAttached(DispatcherChange),
}

/// See [`AgentToDispatcher::LegDetached`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegDetached {
    pub change: DispatcherChange,
    /// The end of the stream to the client that the owner has written to its kernel.
    pub tx_offset: u64,
}

/// See [`AgentToDispatcher::LegKey`]. It is valid until the agent replaces it or the link is lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegKey {
    /// The number of the key in prefaces. It counts up.
    pub id: u32,
    /// 32 random bytes.
    pub key: SecretBytes,
    /// Whether the agent does handshakes. An agent without certificates only takes connections over.
    pub handshakes: bool,
}

/// See [`AgentToDispatcher::Established`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Established {
    pub connection: ConnectionId,
    pub tls: TlsInfo,
}

/// See [`AgentToDispatcher::Propose`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Propose {
    pub connection: ConnectionId,
    /// The epoch of the attempt: the last one plus one.
    pub epoch: Epoch,
    /// B.
    pub target: NodeName,
    /// The end of the client's stream that A has read. A has shipped the unopened part of it.
    pub rx_offset: u64,
    /// The end of the stream to the client that A has written to its kernel. A writes no more.
    pub tail_offset: u64,
    /// [`Ship::digest`](crate::Ship::digest) of the message that A shipped.
    pub digest: [u8; 32],
}

/// See [`AgentToDispatcher::Held`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub connection: ConnectionId,
    pub epoch: Epoch,
    /// The end of the client's stream that B holds.
    pub rx_offset: u64,
    /// The offset at which B continues the stream to the client.
    pub tail_offset: u64,
    /// [`Ship::digest`](crate::Ship::digest) of the message that B received.
    pub digest: [u8; 32],
}

/// See [`AgentToDispatcher::Refused`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub connection: ConnectionId,
    pub epoch: Epoch,
    pub reason: AbortReason,
}

/// See [`AgentToDispatcher::Cancel`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancel {
    pub connection: ConnectionId,
    pub epoch: Epoch,
    pub reason: AbortReason,
}

/// See [`AgentToDispatcher::Final`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Final {
    pub connection: ConnectionId,
    /// The tenure of the sender (0: it did the handshake).
    pub epoch: Epoch,
    /// The length of the stream to the client.
    pub tx_offset: u64,
}

/// See [`AgentToDispatcher::Stays`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stays {
    pub connection: ConnectionId,
    pub reason: StayReason,
}
