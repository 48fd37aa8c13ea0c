//! Messages between nodes.

use std::fmt;

use bytes::Bytes;
use watari_connection::Resume;
use watari_wire::{AgentToDispatcher, DispatcherToAgent, Rest, Ship};

/// What nodes send each other: messages of the mesh, and what a move within a response adds to them.
#[derive(Clone)]
pub(crate) enum Message {
    ToDispatcher(AgentToDispatcher),
    ToAgent(DispatcherToAgent),
    Ship(Box<Shipped>),
    Rest(Rest),
}

/// A shipped connection.
#[derive(Clone)]
pub(crate) struct Shipped {
    pub(crate) ship: Ship,
    /// The state of HTTP (`watari_http1::Server::export`). `None`: the connection is between two requests.
    pub(crate) http: Option<Vec<u8>>,
    /// Bytes of a response that are framed and not sealed.
    pub(crate) unwritten: Vec<u8>,
    pub(crate) rest: ResponseRest,
    /// For the check of nonces: how often the agents have changed their key.
    pub(crate) key: u64,
}

/// The rest of a response in progress.
#[derive(Clone)]
pub(crate) enum ResponseRest {
    None,
    Bytes(Bytes),
    /// The target has to provide it.
    Part(Resume),
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ToDispatcher(message) => write!(f, "{message:?}"),
            Self::ToAgent(message) => write!(f, "{message:?}"),
            Self::Ship(shipped) => {
                let Ship { connection, epoch, rx_offset, tail, tail_offset, .. } = &shipped.ship;
                let rest = match &shipped.rest {
                    ResponseRest::None => "no rest".to_owned(),
                    ResponseRest::Bytes(bytes) => format!("{} bytes", bytes.len()),
                    ResponseRest::Part(resume) => format!("from {}", resume.part.first),
                };
                write!(f, "Ship {connection} {epoch} rx {rx_offset} tail {}+{tail_offset}, {rest}", tail.len())
            }
            Self::Rest(rest) => write!(f, "Rest {} {} {}", rest.connection, rest.epoch, rest.bytes.len()),
        }
    }
}
