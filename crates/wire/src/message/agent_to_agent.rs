//! What agents send each other. A dispatcher never gets such a message, because it holds no secret of a client.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use watari_values::{ConnectionId, Epoch, NodeName, SecretBytes, SessionKey, TicketSeedId, TlsInfo};

/// A message of an agent to another agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentToAgent {
    /// A to B: the connection.
    Ship(Box<Ship>),
    /// A to B: A has a response in progress, and asks whether B can continue it. A goes on with it meanwhile.
    Prepare(Box<Prepare>),
    /// B to A: the answer to a [`Prepare`].
    Prepared(Prepared),
    /// A to B: the connection, within the response that B has prepared to continue.
    ShipInResponse(Box<ShipInResponse>),
    /// Between the owner of a connection and the agent that holds its origin's side.
    Anchored(AnchoredMessage),
    /// A to B: more unopened bytes from the client, after a [`Freeze`](crate::Freeze).
    Rest(Rest),
    /// Seeds, from which ticket keys are derived.
    TicketSeeds(Vec<TicketSeed>),
    /// The sender needs a seed that a ticket names.
    TicketSeedWanted(TicketSeedId),
    Session(SessionMessage),
    /// Purges of stored responses that the sender knows.
    Purges(PurgesMessage),
}

/// A message about stored sessions. An answer repeats the number of its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionMessage {
    /// Sessions to store.
    Put(SessionPut),
    /// The sessions of a [`SessionPut`] are stored.
    Stored(SessionStored),
    /// A request for sessions.
    Get(SessionGet),
    /// The answer to a [`SessionGet`].
    Found(SessionFound),
    /// A request for the approval to use a session once. The receiver established the session.
    Spend(SessionSpend),
    /// The answer to a [`SessionSpend`].
    Spent(SessionSpent),
}

/// See [`AgentToAgent::Ship`].
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

/// See [`AgentToAgent::Prepare`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepare {
    pub connection: ConnectionId,
    /// A number of the sender for this connection. The answer and the shipped connection repeat it.
    pub number: u32,
    pub client: SocketAddr,
    /// The address that the client connected to.
    pub server: SocketAddr,
    /// The client certificate (DER). `None`: the client presented none.
    #[serde(with = "serde_bytes")]
    pub client_certificate: Option<Vec<u8>>,
    pub rest: PrepareRest,
}

/// How B gets the rest of the response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PrepareRest {
    /// It is shipped as bytes.
    Bytes,
    /// B provides this part of a resource itself.
    Part(ResponsePart),
    /// B gets the bytes of the response, or of the tunnel, from this agent as they come.
    Anchored { anchor: NodeName },
}

/// A part of a resource, as it is requested again (RFC 9110, section 14.2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponsePart {
    /// The head of the client's request. It may contain credentials.
    pub request: SecretBytes,
    /// The strong validator of the response: the value of `ETag`.
    #[serde(with = "serde_bytes")]
    pub etag: Vec<u8>,
    /// The offset of the first byte in the resource.
    pub first: u64,
    /// The offset of the last byte.
    pub last: u64,
    /// The length of the resource, in bytes.
    pub complete_len: u64,
}

/// See [`AgentToAgent::Prepared`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    pub connection: ConnectionId,
    /// The number of the [`Prepare`].
    pub number: u32,
    /// Why B cannot continue the response. `None`: it can.
    pub refused: Option<PrepareRefusal>,
}

/// Why an agent cannot continue a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PrepareRefusal {
    /// The agent is at its limit of requests, or of prepared responses.
    Full,
    /// The request cannot be repeated, or the agent answers it in another way.
    Response,
    /// The agent has another version of the resource.
    Validator,
    /// The agent has no link to the anchor.
    NoLink,
}

/// See [`AgentToAgent::ShipInResponse`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShipInResponse {
    pub ship: Ship,
    /// The number of the [`Prepare`].
    pub number: u32,
    /// The exported state of the HTTP connection (`watari_http1::Server::export`).
    #[serde(with = "serde_bytes")]
    pub http: Vec<u8>,
    /// Plaintext of the response that A has framed and not sealed.
    pub unwritten: SecretBytes,
    /// Content that follows and is not framed. Of a tunnel, bytes for the client.
    pub pending: SecretBytes,
    pub rest: ResponseRest,
}

/// The rest of a response, after [`ShipInResponse::pending`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResponseRest {
    /// Nothing follows.
    End,
    /// The part that B has prepared, without its first bytes: A has sent this many of them meanwhile.
    Prepared { skip: u64 },
    /// The bytes that the anchor sends. For a tunnel, also those that the client sends.
    Anchored(AnchoredState),
}

/// The owner's end of an anchored stream. The owner is the agent that has the client's connection, and the *anchor* is
/// the agent that has the connection to the origin. See `watari_anchor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnchoredState {
    pub anchor: NodeName,
    pub id: AnchoredId,
    /// The bytes of the anchor's direction that the owner has taken.
    pub received: u64,
    /// The bytes of the owner's direction that the anchor has acknowledged.
    pub acknowledged: u64,
    /// The bytes of the owner's direction that follow.
    pub unacknowledged: SecretBytes,
    /// Whether the owner's direction ends after them.
    pub is_ended: bool,
}

/// An anchored stream. The anchor draws the number at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AnchoredId(pub u64);

/// See [`AgentToAgent::Anchored`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnchoredMessage {
    pub id: AnchoredId,
    /// The end that the message is for. An agent may have both.
    pub to: AnchoredEnd,
    pub content: AnchoredContent,
}

/// An end of an anchored stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AnchoredEnd {
    Anchor,
    Owner,
}

/// What an [`AnchoredMessage`] tells. The end of a direction counts as one more byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AnchoredContent {
    /// The sender owns the client's connection since the commit of `epoch`, and has this many bytes. The anchor answers
    /// with [`AnchoredContent::Progress`].
    Attach { epoch: Epoch, received: u64 },
    /// Bytes from this offset on.
    Data { offset: u64, bytes: SecretBytes, is_last: bool },
    /// The sender has `received` this many bytes without a gap, and has no more use for the first `consumed` of them.
    Progress { received: u64, consumed: u64, is_question: bool, is_answer: bool },
    /// The sender does not have the stream any more.
    Reset,
}

/// See [`AgentToAgent::Rest`].
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

/// See [`SessionMessage::Put`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPut {
    /// A number of the sender, which the answer repeats.
    pub request: u64,
    /// At most [`SESSIONS_MAX`](crate::SESSIONS_MAX).
    pub sessions: Vec<KeptSession>,
}

/// See [`SessionMessage::Stored`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStored {
    /// The number of the [`SessionPut`].
    pub request: u64,
}

/// See [`SessionMessage::Get`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionGet {
    /// A number of the sender, which the answer repeats.
    pub request: u64,
    /// At most [`SESSIONS_MAX`](crate::SESSIONS_MAX).
    pub keys: Vec<SessionKey>,
}

/// See [`SessionMessage::Found`].
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

/// See [`SessionMessage::Spend`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSpend {
    /// A number of the sender, which the answer repeats.
    pub request: u64,
    /// The key of the session.
    pub key: SessionKey,
}

/// See [`SessionMessage::Spent`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSpent {
    /// The number of the [`SessionSpend`].
    pub request: u64,
    /// Whether the use was approved. Each session is approved once.
    pub granted: bool,
}

/// See [`AgentToAgent::Purges`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgesMessage {
    /// The sender's generation. It grows when the sender has started over.
    pub generation: u64,
    /// Of each process, the last purge of those that the sender knows and does not remember. They come before `purges`.
    /// At most [`FOLDED_PURGES_MAX`](crate::FOLDED_PURGES_MAX).
    pub folded: Vec<PurgeNumber>,
    /// At most [`PURGES_MAX`](crate::PURGES_MAX).
    pub purges: Vec<OrderedPurge>,
}

/// The id of a purge. See `watari_cache::PurgeId`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeNumber {
    /// The random number of the process that ordered it.
    pub incarnation: u64,
    /// The number of the order at this process, from 1 on.
    pub number: u64,
}

/// A purge. See `watari_cache::Purge`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderedPurge {
    pub id: PurgeNumber,
    pub scope: PurgeScope,
}

/// The stored responses that a purge is for. A text has at most [`PURGE_TEXT_LEN_MAX`](crate::PURGE_TEXT_LEN_MAX)
/// bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PurgeScope {
    Everything,
    /// `host/path?query`
    Url(String),
    /// The first part of `host/path?query`.
    Prefix(String),
    /// A group, of all hosts.
    Group(String),
    /// `host group`
    HostGroup(String),
}
