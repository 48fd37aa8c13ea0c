//! Messages about the members of the cluster.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use watari_values::NodeName;

use crate::bounds::BadLength;

/// Statements and verdicts that the sender has, or news of them. The receiver merges them. The result does not depend
/// on the order or the number of such messages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    /// Evictions and admissions, at most [`Members::MAX`].
    pub verdicts: Vec<Verdict>,
    /// Statements of members, at most [`Members::MAX`].
    pub members: Vec<Member>,
}

/// A node's statement about itself, which other nodes pass on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub name: NodeName,
    /// The Unix time in seconds when the node started, chosen by the node. Of two statements about a node, the one with
    /// the greater number counts.
    pub since: u64,
    /// The node's mesh listener.
    pub mesh: SocketAddr,
    /// The node's leg listener, if it is an agent and dispatchers may find it by this statement.
    pub legs: Option<SocketAddr>,
    /// The time since the last link of any node to it, in seconds, by the sender's information.
    pub unlinked_s: u32,
}

/// An operator's order about a node. No statement of the node overrides it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub name: NodeName,
    /// The Unix time of the order, in seconds. Of two orders, the later counts.
    pub at: u64,
    /// `true`: the node is no member any more, even with a valid certificate. `false`: it is a member again. Of two
    /// orders of the same second, eviction counts.
    pub evicted: bool,
    /// The agent that makes new ticket keys after the eviction, which the node does not get.
    pub keys_by: Option<NodeName>,
}

impl Members {
    /// The most members, and the most verdicts, in one message.
    pub const MAX: usize = 1024;

    pub fn is_empty(&self) -> bool {
        self.verdicts.is_empty() && self.members.is_empty()
    }

    pub(crate) fn check_bounds(&self) -> Result<(), BadLength> {
        let bad = |field, len| Err(BadLength { field, len, min: 0, max: Self::MAX });
        match (self.verdicts.len(), self.members.len()) {
            (len, _) if len > Self::MAX => bad("verdicts", len),
            (_, len) if len > Self::MAX => bad("members", len),
            _ => Ok(()),
        }
    }
}
