//! A connection that an agent owns, in any state.

use std::net::SocketAddr;
use std::task::Context;
use std::time::Duration;

use watari_values::{ConnectionId, Epoch, TlsInfo};

use super::ending::Ending;
use super::handshaking::Handshaking;
use super::serving::Serving;
use super::source::Departure;
use crate::socket::Socket;

/// The properties of a connection, apart from its bytes.
#[derive(Clone)]
pub(crate) struct About {
    pub(crate) id: ConnectionId,
    /// The address of the client, which has its number.
    pub(crate) client: SocketAddr,
    /// The epoch whose commit made this agent the owner.
    pub(crate) tenure: Epoch,
    /// The last epoch used.
    pub(crate) last: Epoch,
    /// How often this end has changed its key.
    pub(crate) key: u64,
    pub(crate) tls: TlsInfo,
}

/// A connection that this agent owns.
pub(super) enum Owned {
    Handshaking(Box<Handshaking>),
    Serving(Box<Serving>),
    Fenced(Box<Departure>),
    Ending(Box<Ending>),
}

/// The result of a step of a connection.
pub(super) enum Step {
    /// Another step may be possible at once.
    GoesOn(Owned),
    Waits(Owned),
    /// The connection is not here any more.
    Gone,
    /// The same. The leg is free for another connection.
    LegFree(Socket),
}

impl Owned {
    /// The connection, and the last epoch used for it.
    pub(super) fn identity(&self) -> (ConnectionId, Epoch) {
        let about = match self {
            Self::Handshaking(handshaking) => return (handshaking.id, Epoch(0)),
            Self::Serving(serving) => &serving.about,
            Self::Fenced(departure) => &departure.about,
            Self::Ending(ending) => &ending.about,
        };
        (about.id, about.last)
    }

    pub(super) fn deadline(&self) -> Duration {
        match self {
            Self::Handshaking(handshaking) => handshaking.deadline(),
            Self::Serving(serving) => serving.deadline(),
            Self::Fenced(departure) => departure.deadline(),
            Self::Ending(ending) => ending.deadline(),
        }
    }

    /// Continues as far as possible. Returns the connection, if it is still here, or its leg, if that is free.
    pub(super) fn step(mut self, cx: &mut Context<'_>) -> (Option<Self>, Option<Socket>) {
        loop {
            let step = match self {
                Self::Handshaking(handshaking) => handshaking.step(),
                Self::Serving(serving) => serving.step(cx),
                Self::Fenced(departure) => departure.step(),
                Self::Ending(ending) => ending.step(),
            };
            self = match step {
                Step::GoesOn(owned) => owned,
                Step::Waits(owned) => return (Some(owned), None),
                Step::Gone => return (None, None),
                Step::LegFree(leg) => return (None, Some(leg)),
            };
        }
    }
}
