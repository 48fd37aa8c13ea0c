//! What nodes tell each other about who belongs to the cluster.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::{BadLength, NodeName};

/// What the sender knows of the members, or news of some. The receiver adds it to what it knows: in whichever order and
/// however often such messages come, the same is known in the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    /// Who is out, or in again; at most [`Members::MAX`].
    pub verdicts: Vec<Verdict>,
    /// Who is there; at most [`Members::MAX`].
    pub members: Vec<Member>,
}

/// What a node says of itself, and others pass on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The node.
    pub name: NodeName,
    /// Of two statements about a node, the one with the greater number counts. The node itself chooses it: seconds of
    /// Unix time when it began.
    pub since: u64,
    /// Where it listens for links.
    pub mesh: SocketAddr,
    /// Where it takes legs, if it is an agent that dispatchers may find by this.
    pub legs: Option<SocketAddr>,
    /// How long nobody has had a link to it, in seconds, as far as the sender knows.
    pub heard_s: u32,
}

/// An operator's order about a node, which no statement of the node itself overrides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The node.
    pub name: NodeName,
    /// When the order was given, in seconds of Unix time. Of two, the later counts.
    pub at: u64,
    /// Whether the node is no member any more, whatever its certificate says; or is one again. Of two orders of the
    /// same second, eviction counts.
    pub evicted: bool,
    /// The agent that makes new keys for tickets thereafter, which the node does not get.
    pub keys_by: Option<NodeName>,
}

impl Members {
    /// As many members and as many verdicts are in one message.
    pub const MAX: usize = 1024;

    /// Whether there is nothing in it.
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
