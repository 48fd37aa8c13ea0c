//! Messages between nodes.

use std::fmt;

use bytes::Bytes;
use watari_connection::leaving::PreparedRest;
use watari_session::{Answer, Request, TicketSeed};
use watari_values::{ConnectionId, TicketSeedId};
use watari_wire::{
    AgentToDispatcher, AnchoredContent, AnchoredMessage, AnchoredState, DispatcherToAgent, Held, Propose, Rest, Ship,
};

use crate::network::NodeId;

/// What nodes send each other: messages of the mesh, and what a move within a response adds to them.
#[derive(Clone)]
pub(crate) enum Message {
    ToDispatcher(AgentToDispatcher),
    ToAgent(DispatcherToAgent),
    /// Whether the receiver can continue a response. The number is that of the question.
    Prepare {
        connection: ConnectionId,
        number: u32,
        rest: PreparedRest,
        /// The agent that has the connection to the origin, if the bytes come from there.
        anchor: NodeId,
    },
    Prepared {
        connection: ConnectionId,
        number: u32,
        is_refused: bool,
    },
    Ship(Box<Shipped>),
    Rest(Rest),
    TicketSeeds(Vec<TicketSeed>),
    /// The sender needs a seed that a ticket names.
    TicketSeedWanted(TicketSeedId),
    Session(watari_session::Message),
    /// Between the owner of a connection and the anchor of its stream.
    Anchored(AnchoredMessage),
}

/// A shipped connection.
#[derive(Clone)]
pub(crate) struct Shipped {
    pub(crate) ship: Ship,
    /// The state of HTTP (`watari_http1::Server::export`). `None`: the connection is between two requests.
    pub(crate) http: Option<Vec<u8>>,
    /// Bytes of a response that are framed and not sealed.
    pub(crate) unwritten: Vec<u8>,
    /// The number of the preparation, if a response is in progress.
    pub(crate) number: u32,
    pub(crate) rest: ResponseRest,
    /// For the check of nonces: how often the agents have changed their key.
    pub(crate) key: u64,
}

/// The rest of a response in progress.
#[derive(Clone)]
pub(crate) enum ResponseRest {
    None,
    Bytes(Bytes),
    /// The target has prepared it, and skips these bytes of it.
    Prepared {
        skip: u64,
    },
    /// These bytes, and then those of the anchor.
    Anchored {
        state: AnchoredState,
        pending: Bytes,
    },
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ToDispatcher(message) => write!(f, "{:?}", without_digest(message.clone())),
            Self::ToAgent(message) => write!(f, "{message:?}"),
            Self::Prepare { connection, number, rest, .. } => {
                let first = match rest {
                    PreparedRest::Part(resume) => resume.part.first.to_string(),
                    PreparedRest::Bytes | PreparedRest::Anchored => "nothing".to_owned(),
                };
                write!(f, "Prepare {connection} {number}: from {first}")
            }
            Self::Prepared { connection, number, is_refused } => {
                write!(f, "Prepared {connection} {number}, refused {is_refused}")
            }
            Self::Ship(shipped) => {
                let Ship { connection, epoch, rx_offset, tail, tail_offset, .. } = &shipped.ship;
                let rest = match &shipped.rest {
                    ResponseRest::None => "no rest".to_owned(),
                    ResponseRest::Bytes(bytes) => format!("{} bytes", bytes.len()),
                    ResponseRest::Prepared { skip } => format!("prepared, skips {skip}"),
                    ResponseRest::Anchored { state, pending } => {
                        format!("{} bytes, then from {} from {} on", pending.len(), state.anchor, state.received)
                    }
                };
                write!(f, "Ship {connection} {epoch} rx {rx_offset} tail {}+{tail_offset}, {rest}", tail.len())
            }
            Self::TicketSeeds(seeds) => write!(f, "{} ticket seeds", seeds.len()),
            Self::TicketSeedWanted(seed) => write!(f, "wants seed {seed:?}"),
            Self::Session(message) => write_session(f, message),
            Self::Anchored(AnchoredMessage { to, content, .. }) => match content {
                AnchoredContent::Data { offset, bytes, is_last } => {
                    write!(f, "{to:?}: {} bytes from {offset} on, last {is_last}", bytes.as_slice().len())
                }
                content => write!(f, "{to:?}: {content:?}"),
            },
            Self::Rest(rest) => write!(f, "Rest {} {} {}", rest.connection, rest.epoch, rest.bytes.len()),
        }
    }
}

fn write_session(f: &mut fmt::Formatter<'_>, message: &watari_session::Message) -> fmt::Result {
    match message {
        watari_session::Message::Request(number, Request::Put(sessions)) => {
            write!(f, "Put {number}: {} sessions", sessions.len())
        }
        watari_session::Message::Answer(number, Answer::Found(sessions)) => {
            write!(f, "Found {number}: {} sessions", sessions.len())
        }
        message => write!(f, "{message:?}"),
    }
}

/// Secrets differ from run to run, and so do the digests of states.
fn without_digest(mut message: AgentToDispatcher) -> AgentToDispatcher {
    match &mut message {
        AgentToDispatcher::Propose(Propose { digest, .. }) | AgentToDispatcher::Held(Held { digest, .. }) => {
            *digest = [0; 32];
        }
        _ => {}
    }
    message
}
