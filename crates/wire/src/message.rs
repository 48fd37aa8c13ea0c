//! The messages of the mesh.
//!
//! Offsets are byte counts of the connection's two streams as the dispatcher relays them: *rx* flows from the client,
//! *tx* to the client. See docs/internals/handoff.md for the move they belong to.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

use crate::{ConnectionId, Epoch, NodeName, SessionKey};

/// Bytes that hold secrets: zeroized when dropped, never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretBytes(Zeroizing<Vec<u8>>);

impl SecretBytes {
    /// Takes `bytes` over.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes themselves.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} secret bytes]", self.0.len())
    }
}

impl Serialize for SecretBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for SecretBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde_bytes::deserialize(deserializer).map(Self::new)
    }
}

/// Everything nodes say to each other about connections.
///
/// D is the dispatcher, A the source and B the target of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// D to the agent that owns a connection: it shall leave.
    Leave(Leave),
    /// The owner to D: why a connection that shall leave has not left yet.
    Stays(Stays),
    /// The owner to D: the connection is a tunnel, and stays until that ends ([`StayReason::Tunnel`], in a message of its own:
    /// builds that do not know it skip it).
    Tunnel(ConnectionId),
    /// Agent to D: the agent is about to end, and shall get rid of its connections.
    Draining,
    /// Agent to D: the key that authenticates prefaces of legs from D to this agent.
    LegKey(LegKey),
    /// A to D: the TLS handshake is done.
    Established(Established),
    /// A to D: A has fenced the connection and shipped it to B; may it change hands?
    Propose(Propose),
    /// D to A: the client is read up to `rx_offset` and no further; ship what lies between.
    Freeze(Freeze),
    /// A to B: the connection.
    Ship(Box<Ship>),
    /// A to B: more unopened bytes from the client, after a [`Freeze`].
    Rest(Rest),
    /// B to D: B holds the connection, and may not seal yet.
    Held(Held),
    /// B to D: B does not hold the connection.
    Refused(Refused),
    /// A to D: A cannot ship what D asked for.
    Cancel(Cancel),
    /// D to A: the connection is B's; destroy the copy. (B learns it by the preface of its leg.)
    Committed(Decided),
    /// D to A: D keeps the leg for another connection. After a move: the connection is B's, destroy the copy. After the
    /// end that A has announced by `Final`: D has read the whole stream.
    LegKept(LegKept),
    /// D to A and B: the attempt is off. A thaws, B drops what it holds.
    Aborted(Aborted),
    /// D to A or B: D does not know this connection (any more); destroy what is held of it.
    Gone(ConnectionId),
    /// The agent that owns the connection to D: the stream to the client ends, cleanly, at `tx_offset`.
    Final(Final),
    /// Agent to agent: what the keys of tickets follow from.
    TicketSeeds(Vec<TicketSeed>),
    /// Agent to agent: a ticket names a seed that the sender does not know.
    TicketSeedWanted(TicketSeedId),
    /// Agent to agent: sessions to keep.
    SessionPut(SessionPut),
    /// Agent to agent: the sessions of a [`SessionPut`] are kept.
    SessionStored(SessionStored),
    /// Agent to agent: sessions that are sought.
    SessionGet(SessionGet),
    /// Agent to agent: the answer to a [`SessionGet`].
    SessionFound(SessionFound),
    /// Agent to agent: may a session be used that is good for one use? The receiver established it.
    SessionSpend(SessionSpend),
    /// Agent to agent: the answer to a [`SessionSpend`].
    SessionSpent(SessionSpent),
}

/// Names a seed, from which keys of tickets follow.
pub type TicketSeedId = [u8; 8];

/// A seed of ticket keys, as nodes tell each other of it. See `watari_session::Ring`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketSeed {
    /// Its name.
    pub id: TicketSeedId,
    /// When it was made, in seconds of Unix time, by its maker's clock: the newest is used.
    pub made: u64,
    /// The state from which the keys of an epoch and of all later ones follow. `None`: a newer seed has taken its place.
    pub state: Option<EpochSecret>,
    /// The keys of earlier epochs whose tickets are still good.
    pub keys: Vec<EpochSecret>,
}

/// A secret of one epoch of ticket keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochSecret {
    /// Which epoch.
    pub epoch: u32,
    /// 32 bytes.
    pub secret: SecretBytes,
}

/// See [`Message::SessionPut`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPut {
    /// What the answer will name; the sender's own numbers.
    pub request: u64,
    /// At most [`SESSIONS_MAX`](crate::SESSIONS_MAX).
    pub sessions: Vec<KeptSession>,
}

/// See [`Message::SessionStored`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStored {
    /// That of the [`SessionPut`].
    pub request: u64,
}

/// See [`Message::SessionGet`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionGet {
    /// What the answer will name; the sender's own numbers.
    pub request: u64,
    /// At most [`SESSIONS_MAX`](crate::SESSIONS_MAX).
    pub keys: Vec<SessionKey>,
}

/// See [`Message::SessionFound`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionFound {
    /// That of the [`SessionGet`].
    pub request: u64,
    /// Those that the sender keeps. It knows none of the other keys that were asked for.
    pub sessions: Vec<KeptSession>,
}

/// A TLS session, as nodes tell each other of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSession {
    /// By what it is found.
    pub key: SessionKey,
    /// What it is: at most [`SESSION_LEN_MAX`](crate::SESSION_LEN_MAX) bytes.
    pub session: SecretBytes,
    /// How long it can still be resumed, in seconds: clocks of nodes may differ.
    pub expires_in_s: u32,
    /// Who established it.
    pub issuer: NodeName,
}

/// See [`Message::SessionSpend`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSpend {
    /// What the answer will name; the sender's own numbers.
    pub request: u64,
    /// Which session.
    pub key: SessionKey,
}

/// See [`Message::SessionSpent`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSpent {
    /// That of the [`SessionSpend`].
    pub request: u64,
    /// Whether it was approved, which is done once.
    pub granted: bool,
}

/// See [`Message::LegKey`]. Good for as long as the link and the agent say so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegKey {
    /// Names the key in prefaces; counts up.
    pub id: u32,
    /// 32 random bytes.
    pub key: SecretBytes,
    /// Whether the agent does handshakes. One without certificates only takes connections over.
    pub handshakes: bool,
}

/// What is known of a TLS connection once its handshake is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsInfo {
    /// TLS version on the wire: 0x0303 or 0x0304.
    pub version: u16,
    /// Cipher suite (IANA).
    pub suite: u16,
    /// ALPN protocol (`h2`, `http/1.1`), empty where none was negotiated. At most 255 bytes.
    #[serde(with = "serde_bytes")]
    pub alpn: Vec<u8>,
    /// SNI host name, where the client sent one. At most 255 bytes.
    pub server_name: Option<String>,
    /// Whether the handshake resumed a session.
    pub resumed: bool,
}

/// What a node knows of a connection, for people and instruments; it crosses no link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionStatus {
    /// The connection.
    pub id: ConnectionId,
    /// The client's address.
    pub client: SocketAddr,
    /// What the handshake agreed on, once it is done.
    pub tls: Option<TlsInfo>,
    /// Where the handshake was done.
    pub handshake_node: NodeName,
    /// Where the connection is.
    pub node: NodeName,
    /// How many times it has changed hands.
    pub moves: u32,
    /// Why it is still where it is, though it shall leave.
    pub stays: Option<StayReason>,
}

/// See [`Message::Established`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Established {
    /// The connection.
    pub connection: ConnectionId,
    /// What its handshake agreed on.
    pub tls: TlsInfo,
}

/// See [`Message::Propose`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Propose {
    /// The connection.
    pub connection: ConnectionId,
    /// The attempt: one more than the last.
    pub epoch: Epoch,
    /// B.
    pub target: NodeName,
    /// What A has read of the client's stream, and shipped unless opened.
    pub rx_offset: u64,
    /// What A has handed to its kernel of the stream to the client; A hands over no more.
    pub tail_offset: u64,
    /// [`Ship::digest`] of what A shipped.
    pub digest: [u8; 32],
}

/// See [`Message::Freeze`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freeze {
    /// The connection.
    pub connection: ConnectionId,
    /// The attempt.
    pub epoch: Epoch,
    /// What D has relayed, and will have relayed, of the client's stream to A.
    pub rx_offset: u64,
}

/// See [`Message::Ship`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ship {
    /// The connection.
    pub connection: ConnectionId,
    /// The attempt.
    pub epoch: Epoch,
    /// The dispatcher of the connection.
    pub dispatcher: NodeName,
    /// The exported state of the record layer (`watari_record::Fenced::state`).
    pub state: SecretBytes,
    /// What the handshake agreed on.
    pub tls: TlsInfo,
    /// The client certificate (DER), where the client presented one.
    #[serde(with = "serde_bytes")]
    pub client_certificate: Option<Vec<u8>>,
    /// The client's address and the address it connected to.
    pub client: SocketAddr,
    /// See `client`.
    pub server: SocketAddr,
    /// Where the handshake was done.
    pub handshake_node: NodeName,
    /// How many times the connection has changed hands before this attempt.
    pub moves: u32,
    /// Plaintext that A has opened and its application has not taken.
    pub opened: SecretBytes,
    /// Bytes of the client's stream A has read, `rest` included.
    pub rx_offset: u64,
    /// The end of those bytes: what A has not opened.
    pub rest: SecretBytes,
    /// Sealed bytes A has not handed to its kernel.
    #[serde(with = "serde_bytes")]
    pub tail: Vec<u8>,
    /// Where `tail` begins in the stream to the client.
    pub tail_offset: u64,
}

/// See [`Message::Rest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rest {
    /// The connection.
    pub connection: ConnectionId,
    /// The attempt.
    pub epoch: Epoch,
    /// Where `bytes` begin in the client's stream: the `rx_offset` of the [`Ship`].
    pub from_offset: u64,
    /// What A read of the client's stream from there on.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// See [`Message::Held`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The connection.
    pub connection: ConnectionId,
    /// The attempt.
    pub epoch: Epoch,
    /// B holds the client's stream up to here.
    pub rx_offset: u64,
    /// B's stream to the client begins here.
    pub tail_offset: u64,
    /// [`Ship::digest`] of what B received.
    pub digest: [u8; 32],
}

/// See [`Message::Refused`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The connection.
    pub connection: ConnectionId,
    /// The attempt.
    pub epoch: Epoch,
    /// Why.
    pub reason: AbortReason,
}

/// See [`Message::Cancel`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancel {
    /// The connection.
    pub connection: ConnectionId,
    /// The attempt.
    pub epoch: Epoch,
    /// Why.
    pub reason: AbortReason,
}

/// See [`Message::Committed`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// The connection.
    pub connection: ConnectionId,
    /// The attempt.
    pub epoch: Epoch,
}

/// See [`Message::LegKept`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegKept {
    /// The connection.
    pub connection: ConnectionId,
    /// The epoch of the move; at the end of a connection, that of its owner.
    pub epoch: Epoch,
    /// What D has written of the client's stream on the leg. After a move, A keeps the leg only if it has read exactly
    /// as much. After an end, A reads and drops the rest up to this offset.
    pub rx_offset: u64,
}

/// See [`Message::Aborted`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aborted {
    /// The connection.
    pub connection: ConnectionId,
    /// The attempt.
    pub epoch: Epoch,
    /// Why.
    pub reason: AbortReason,
}

/// See [`Message::Final`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Final {
    /// The connection.
    pub connection: ConnectionId,
    /// The epoch whose commit made the sender the owner (0: it did the handshake).
    pub epoch: Epoch,
    /// The length of the stream to the client.
    pub tx_offset: u64,
}

/// See [`Message::Leave`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leave {
    /// The connection.
    pub connection: ConnectionId,
    /// Where it shall go; `None`: there is nowhere.
    pub target: Option<NodeName>,
    /// Whether it shall end, as soon as what is in progress is complete, where it cannot move.
    pub or_end: bool,
}

/// See [`Message::Stays`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stays {
    /// The connection.
    pub connection: ConnectionId,
    /// Why.
    pub reason: StayReason,
}

/// Why a connection that shall leave is still where it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum StayReason {
    /// A request is in progress; it moves when that is answered.
    InRequest,
    /// HTTP/2 cannot be moved: the streams' state is the library's own. It ends when its streams have, if that was asked.
    Http2,
    /// There is no link to the target.
    NoLink,
    /// More was read ahead of the client's stream, or waits to be sent, than may be shipped.
    TooMuchInHand,
    /// It is a tunnel to an origin, whose other end cannot be moved. On a link, [`Message::Tunnel`] says so.
    Tunnel,
}

impl StayReason {
    /// The reason as a metric label and log field.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InRequest => "in_request",
            Self::Http2 => "http2",
            Self::NoLink => "no_link",
            Self::TooMuchInHand => "too_much_in_hand",
            Self::Tunnel => "tunnel",
        }
    }
}

/// Why an attempt came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AbortReason {
    /// No leg to the target could be had.
    NoLeg,
    /// The target did not say in time that it holds the connection.
    Timeout,
    /// The target is at its limit of connections or of held states.
    Full,
    /// The target could not read the state.
    BadState,
    /// More unopened bytes than may be shipped.
    RestTooLong,
    /// What the target holds is not what the source shipped.
    Mismatch,
    /// The target waited longer for the decision than it waits.
    Expired,
    /// The source had no link to the target.
    NoLink,
}

impl AbortReason {
    /// The reason as a metric label and log field.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoLeg => "no_leg",
            Self::Timeout => "timeout",
            Self::Full => "full",
            Self::BadState => "bad_state",
            Self::RestTooLong => "rest_too_long",
            Self::Mismatch => "mismatch",
            Self::Expired => "expired",
            Self::NoLink => "no_link",
        }
    }
}
