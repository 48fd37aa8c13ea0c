//! Events of links, and messages that were not sent.

use std::collections::BTreeSet;

use watari_values::{NodeName, Role};
use watari_wire::{BadLength, Message};

use crate::error::LinkError;

/// Events of the links, in the order in which they happened on each.
#[derive(Debug)]
pub enum Event {
    /// A link is up.
    Up {
        peer: NodeName,
        /// The roles of the peer's process.
        roles: BTreeSet<Role>,
        /// A random number, drawn when the peer's process started.
        incarnation: u64,
    },
    /// A link is down. The messages sent on it may or may not have arrived.
    Down {
        peer: NodeName,
        /// An order of this node (shutdown, removal, eviction) takes precedence over the error that it caused.
        reason: LinkError,
    },
    /// A node was evicted, and its link has ended. No message goes to it any more.
    Evicted {
        peer: NodeName,
        /// The Unix time of the order in seconds, by the clock of the node that received it.
        at: u64,
        /// The agent that has to make new ticket keys, which the evicted node does not get.
        keys_by: Option<NodeName>,
    },
    /// A peer has sent a message that its role allows.
    Message {
        /// The authenticated sender.
        peer: NodeName,
        message: Message,
    },
}

/// A message was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// There is no link to the node, or it is no peer.
    #[error("there is no link to the peer")]
    NoLink,
    /// Too many messages wait. The peer or the network is too slow.
    #[error("the queue to the peer is full")]
    QueueFull,
    /// The roles of the two nodes do not allow the message. The caller is at fault.
    #[error("the roles of the nodes do not allow a message of kind `{0}` to the peer")]
    NotAllowed(&'static str),
    /// A field of the message is too long. The caller is at fault.
    #[error(transparent)]
    BadLength(#[from] BadLength),
}
