//! An upgrade in place: a new process of this node takes over from the running one.
//!
//! [`predecessor`] is the side of the running process, [`successor`] that of the new one. This file has the messages.
//!
//! ```text
//!   running process (predecessor)                 new process (successor)
//!     |--- starts it, with a stream as its input --->|  reads the configuration
//!     |<-- Hello -----------------------------------|
//!     |--- Listeners, Start, with the sockets ------>|  starts all but links, voter and listeners for clients
//!     |<-- Prepared --------------------------------|
//!     | accepts no more clients; an agent: once it has passed most connections
//!     |--- Connections, with their sockets --------->|  \
//!     |<-- Taken ------------------------------------|   } until all have passed
//!     |                                              |  /  goes on with them
//!     |--- AgentState: keys, sessions -------------->|
//!     |<-- Taken ------------------------------------|
//!     | ends its links, has no more leases           |
//!     |--- Finish, with leases and votes ----------->|  links with the peers, accepts clients
//!     |<-- Serving ---------------------------------|
//!     |                                              |
//!     |--- Connections, Messages ------------------->|  \  as long as an agent's connections are left
//!     |<-- Taken, Messages -------------------------|   } that could not pass
//!     | ends                                         |  /
//! ```
//!
//! `Messages` are those between the two agents, before `Finish` as well (`watari_agent::PassingOn`). With its answers, the
//! successor forwards legs that continue connections of the predecessor.
//!
//! Until `Connections`, a failure changes nothing. The predecessor kills the successor then. After it, each connection
//! belongs to one process: to the successor from its `Taken` on. If the successor fails, its connections end with it,
//! and the predecessor goes on with the others. If the predecessor fails, the successor does as after `Finish`. After
//! `Serving`, a failure ends the stream between both, and each goes on with what it has.

mod predecessor;
mod successor;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use watari_addresses::{FixedMultipath, FixedSettings, MultipathSettings, PassedAddresses, PassedMultipath, Settings};
use watari_values::{NodeName, SecretBytes};
use zeroize::Zeroizing;

use crate::config::Config;

pub(super) use predecessor::{Parts, Predecessor};
pub(super) use successor::PredecessorStream;

/// The form of the messages and states. A process takes over only from one with the same.
const FORM: u32 = 8;

#[derive(Debug, Serialize, Deserialize)]
enum FromSuccessor {
    /// The first message in every form.
    Hello { form: u32, version: String },
    Prepared {
        /// Whether the successor has the administration socket. Its configuration may name another.
        has_admin: bool,
    },
    /// The successor has the state or the connections of the last message, except those at these positions, which it
    /// cannot continue.
    Taken { refused: Vec<usize> },
    /// The answer to messages of the agent, with sockets.
    Messages(SecretBytes),
    /// The successor accepts clients.
    Serving,
}

#[derive(Debug, Serialize, Deserialize)]
enum FromPredecessor {
    /// The addresses of TCP listeners. There may be several such messages.
    Listeners(Vec<SocketAddr>),
    /// The last listener, which is the administration socket.
    Start { admin: PathBuf, fixed: Fixed },
    /// Connections, each with the number of its sockets.
    Connections(Part, Vec<(SecretBytes, usize)>),
    /// What passes of an agent besides its connections.
    AgentState(SecretBytes),
    /// Messages of the agent.
    Messages(SecretBytes),
    Finish {
        /// The agents that an operator drains.
        drained: Vec<NodeName>,
        addresses: PassedAddresses,
        multipath: Option<PassedMultipath>,
    },
}

/// The settings of addresses that cannot change in an upgrade.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fixed {
    takeover: Option<FixedSettings>,
    multipath: Option<FixedMultipath>,
}

impl Fixed {
    pub(super) fn of(config: &Config) -> Self {
        Self {
            takeover: config.takeover().map(Settings::fixed),
            multipath: config.multipath().map(MultipathSettings::fixed),
        }
    }
}

/// A part of a node that has connections.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Part {
    Dispatcher,
    Agent,
}

/// The memory is allocated once: growing would leave copies of secrets behind.
fn encoded(message: &impl Serialize) -> io::Result<Zeroizing<Vec<u8>>> {
    let len = postcard::serialize_with_flavor(message, postcard::ser_flavors::Size::default());
    let encoded = len.and_then(|len| postcard::to_extend(message, Vec::with_capacity(len)));
    encoded.map(Zeroizing::new).map_err(io::Error::other)
}

fn decoded<T: for<'a> Deserialize<'a>>(message: &[u8]) -> io::Result<T> {
    postcard::from_bytes(message).map_err(|_| io::ErrorKind::InvalidData.into())
}
