//! Messages between nodes.

use std::fmt;

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
    /// The state of HTTP (`watari_http1::Server::export`), and the rest of a response in progress.
    pub(crate) http: Vec<u8>,
    pub(crate) rest: Option<(Resume, u64)>,
    /// For the check of nonces: how often the agents have changed their key.
    pub(crate) key: u64,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ToDispatcher(message) => write!(f, "{message:?}"),
            Self::ToAgent(message) => write!(f, "{message:?}"),
            Self::Ship(shipped) => {
                let Ship { connection, epoch, rx_offset, tail, tail_offset, .. } = &shipped.ship;
                let within = shipped.rest.as_ref().map(|(_, position)| position);
                write!(f, "Ship {connection} {epoch} rx {rx_offset} tail {}+{tail_offset} in {within:?}", tail.len())
            }
            Self::Rest(rest) => write!(f, "Rest {} {} {}", rest.connection, rest.epoch, rest.bytes.len()),
        }
    }
}
