//! The messages of the mesh.
//!
//! Offsets are byte counts of the connection's two streams, as the dispatcher relays them: *rx* from the client, *tx*
//! to the client. See docs/internals/handoff.md for moves.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use watari_values::{
    AbortReason, ConnectionId, Epoch, NodeName, SecretBytes, SessionKey, StayReason, TicketSeedId, TlsInfo,
};

/// All messages between nodes about connections.
///
/// D is the dispatcher, A the source and B the target of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// D to the owner: the connection is to leave.
    Leave(Leave),
    /// The owner to D: the reason that a connection which was asked to leave stays for now.
    Stays(Stays),
    /// The owner to D: the connection is a tunnel and stays until the tunnel ends ([`StayReason::Tunnel`]). It is a
    /// separate message, because builds that do not support it skip it.
    Tunnel(ConnectionId),
    /// An agent to D: the agent is about to end. D drains it.
    Draining,
    /// An agent to D: the key that authenticates prefaces of legs from D to this agent.
    LegKey(LegKey),
    /// A to D: the TLS handshake is done.
    Established(Established),
    /// A to D: A has fenced the connection and shipped it to B. A asks D to decide.
    Propose(Propose),
    /// D to A: D has relayed the client's stream up to `rx_offset` and relays no more. A ships the missing bytes.
    Freeze(Freeze),
    /// A to B: the connection.
    Ship(Box<Ship>),
    /// A to B: more unopened bytes from the client, after a [`Freeze`].
    Rest(Rest),
    /// B to D: B holds the connection, and does not seal yet.
    Held(Held),
    /// B to D: B does not hold the connection.
    Refused(Refused),
    /// A to D: A cannot ship the bytes that D requested.
    Cancel(Cancel),
    /// D to A: B owns the connection. A destroys its copy. (B is notified by the preface of its leg.)
    Committed(Decided),
    /// D to A: D keeps the leg for another connection. After a move: B owns the connection, and A destroys its copy.
    /// After the end that A has announced by `Final`: D has read the whole stream.
    LegKept(LegKept),
    /// D to A and B: the attempt is aborted. A thaws, and B drops the held connection.
    Aborted(Aborted),
    /// D to A or B: D has no such connection, or no longer. The receiver destroys its copy.
    Gone(ConnectionId),
    /// The owner to D: the stream to the client ends cleanly at `tx_offset`.
    Final(Final),
    /// Agent to agent: seeds, from which ticket keys are derived.
    TicketSeeds(Vec<TicketSeed>),
    /// Agent to agent: the sender needs a seed that a ticket names.
    TicketSeedWanted(TicketSeedId),
    /// Agent to agent: sessions to store.
    SessionPut(SessionPut),
    /// Agent to agent: the sessions of a [`SessionPut`] are stored.
    SessionStored(SessionStored),
    /// Agent to agent: a request for sessions.
    SessionGet(SessionGet),
    /// Agent to agent: the answer to a [`SessionGet`].
    SessionFound(SessionFound),
    /// Agent to agent: a request for the approval to use a session once. The receiver established the session.
    SessionSpend(SessionSpend),
    /// Agent to agent: the answer to a [`SessionSpend`].
    SessionSpent(SessionSpent),
}

/// A seed of ticket keys, as nodes exchange it. See `watari_session::Ring`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketSeed {
    pub id: TicketSeedId,
    /// The Unix time in seconds when it was made, by its maker's clock. The newest seed is used.
    pub made: u64,
    /// The state from which the keys of its epoch and of all later ones are derived. `None`: a newer seed has replaced
    /// it.
    pub state: Option<EpochSecret>,
    /// The keys of earlier epochs whose tickets are still valid.
    pub keys: Vec<EpochSecret>,
}

/// A secret of one epoch of ticket keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochSecret {
    pub epoch: u32,
    /// 32 bytes.
    pub secret: SecretBytes,
}

/// See [`Message::SessionPut`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPut {
    /// A number of the sender, which the answer repeats.
    pub request: u64,
    /// At most [`SESSIONS_MAX`](crate::SESSIONS_MAX).
    pub sessions: Vec<KeptSession>,
}

/// See [`Message::SessionStored`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStored {
    /// The number of the [`SessionPut`].
    pub request: u64,
}

/// See [`Message::SessionGet`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionGet {
    /// A number of the sender, which the answer repeats.
    pub request: u64,
    /// At most [`SESSIONS_MAX`](crate::SESSIONS_MAX).
    pub keys: Vec<SessionKey>,
}

/// See [`Message::SessionFound`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionFound {
    /// The number of the [`SessionGet`].
    pub request: u64,
    /// The requested sessions that the sender has stored. It has none of the others.
    pub sessions: Vec<KeptSession>,
}

/// A TLS session, as nodes exchange it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSession {
    /// The key under which it is stored.
    pub key: SessionKey,
    /// The session: at most [`SESSION_LEN_MAX`](crate::SESSION_LEN_MAX) bytes.
    pub session: SecretBytes,
    /// The time in seconds for which it can still be resumed. It is relative, because clocks of nodes may differ.
    pub expires_in_s: u32,
    /// The agent that established it.
    pub issuer: NodeName,
}

/// See [`Message::SessionSpend`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSpend {
    /// A number of the sender, which the answer repeats.
    pub request: u64,
    /// The key of the session.
    pub key: SessionKey,
}

/// See [`Message::SessionSpent`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSpent {
    /// The number of the [`SessionSpend`].
    pub request: u64,
    /// Whether the use was approved. Each session is approved once.
    pub granted: bool,
}

/// See [`Message::LegKey`]. It is valid until the agent replaces it or the link is lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegKey {
    /// The number of the key in prefaces. It counts up.
    pub id: u32,
    /// 32 random bytes.
    pub key: SecretBytes,
    /// Whether the agent does handshakes. An agent without certificates only takes connections over.
    pub handshakes: bool,
}

/// See [`Message::Established`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Established {
    pub connection: ConnectionId,
    pub tls: TlsInfo,
}

/// See [`Message::Propose`].
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
    /// [`Ship::digest`] of the message that A shipped.
    pub digest: [u8; 32],
}

/// See [`Message::Freeze`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freeze {
    pub connection: ConnectionId,
    pub epoch: Epoch,
    /// The end of the client's stream that D has relayed to A. D relays no more.
    pub rx_offset: u64,
}

/// See [`Message::Ship`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ship {
    pub connection: ConnectionId,
    pub epoch: Epoch,
    pub dispatcher: NodeName,
    /// The exported state of the record layer (`watari_record::Fenced::state`).
    pub state: SecretBytes,
    pub tls: TlsInfo,
    /// The client certificate (DER). `None`: the client presented none.
    #[serde(with = "serde_bytes")]
    pub client_certificate: Option<Vec<u8>>,
    pub client: SocketAddr,
    /// The address that the client connected to.
    pub server: SocketAddr,
    /// The agent that did the handshake.
    pub handshake_node: NodeName,
    /// The number of moves before this attempt.
    pub moves: u32,
    /// Plaintext that A has opened and its application has not taken.
    pub opened: SecretBytes,
    /// The end of the client's stream that A has read, including `rest`.
    pub rx_offset: u64,
    /// The last bytes up to `rx_offset`, which A has not opened.
    pub rest: SecretBytes,
    /// Sealed bytes that A has not written to its kernel.
    #[serde(with = "serde_bytes")]
    pub tail: Vec<u8>,
    /// The offset of `tail` in the stream to the client.
    pub tail_offset: u64,
}

/// See [`Message::Rest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rest {
    pub connection: ConnectionId,
    pub epoch: Epoch,
    /// The offset of `bytes` in the client's stream: the `rx_offset` of the [`Ship`].
    pub from_offset: u64,
    /// The bytes of the client's stream that A has read from this offset on.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// See [`Message::Held`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub connection: ConnectionId,
    pub epoch: Epoch,
    /// The end of the client's stream that B holds.
    pub rx_offset: u64,
    /// The offset at which B continues the stream to the client.
    pub tail_offset: u64,
    /// [`Ship::digest`] of the message that B received.
    pub digest: [u8; 32],
}

/// See [`Message::Refused`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub connection: ConnectionId,
    pub epoch: Epoch,
    pub reason: AbortReason,
}

/// See [`Message::Cancel`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancel {
    pub connection: ConnectionId,
    pub epoch: Epoch,
    pub reason: AbortReason,
}

/// See [`Message::Committed`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    pub connection: ConnectionId,
    pub epoch: Epoch,
}

/// See [`Message::LegKept`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegKept {
    pub connection: ConnectionId,
    /// The epoch of the move. At the end of a connection: the tenure of its owner.
    pub epoch: Epoch,
    /// The end of the client's stream that D has written on the leg. After a move, A keeps the leg only if it has read
    /// exactly up to here. After an end, A reads and drops the rest up to here.
    pub rx_offset: u64,
}

/// See [`Message::Aborted`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aborted {
    pub connection: ConnectionId,
    pub epoch: Epoch,
    pub reason: AbortReason,
}

/// See [`Message::Final`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Final {
    pub connection: ConnectionId,
    /// The tenure of the sender (0: it did the handshake).
    pub epoch: Epoch,
    /// The length of the stream to the client.
    pub tx_offset: u64,
}

/// See [`Message::Leave`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leave {
    pub connection: ConnectionId,
    /// The agent to move to. `None`: there is none.
    pub target: Option<NodeName>,
    /// Whether the connection is to end, once responses in progress are complete, if it cannot move.
    pub or_end: bool,
}

/// See [`Message::Stays`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stays {
    pub connection: ConnectionId,
    pub reason: StayReason,
}
