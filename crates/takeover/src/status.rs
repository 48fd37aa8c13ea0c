//! What operators see of a candidate.

use std::fmt;

use serde::{Deserialize, Serialize};
use watari_values::NodeName;

use crate::terms::Time;

/// A candidate's relation to the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OwnershipRole {
    /// The candidate does not have the address.
    Standby,
    /// The candidate asks voters for the lease, checks that no other machine has the address, or adds it to its
    /// interface.
    Asking,
    /// The candidate has the address, and its node answers there.
    Active,
    /// The candidate had the address, and removes it.
    Leaving,
}

impl OwnershipRole {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Standby, Self::Asking, Self::Active, Self::Leaving];

    /// The role as a metric label and log field.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standby => "standby",
            Self::Asking => "asking",
            Self::Active => "active",
            Self::Leaving => "leaving",
        }
    }
}

/// Why a candidate has its role.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// The node has just started.
    Started,
    /// No candidate announced that it has the address.
    NoOwner,
    /// The previous owner left the address to this candidate: this one has a higher priority, or the owner's node
    /// ended.
    LeftBy(NodeName),
    /// The previous owner left the address to this candidate by an operator's order.
    OrderedFrom(NodeName),
    /// This candidate left the address to another with a higher priority.
    PreemptedBy(NodeName),
    /// This candidate left the address to another by an operator's order.
    OrderedTo(NodeName),
    /// No majority of voters renewed the lease in time.
    LeaseLost,
    /// Another candidate has the lease, as a voter says.
    HeldBy(NodeName),
    /// No majority of voters granted a lease.
    NoMajority,
    /// Another machine answers at the address.
    AddressInUse {
        /// Its link-layer address.
        by: [u8; 6],
    },
    /// The system refused the address, or an order for its gate. The log has the error.
    SystemRefused,
    /// This candidate left the address to another because its node ends.
    Ending,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started => f.write_str("the node has started"),
            Self::NoOwner => f.write_str("no other candidate had the address"),
            Self::LeftBy(node) => write!(f, "{node} has left it to this node"),
            Self::OrderedFrom(node) => write!(f, "ordered switch from {node}"),
            Self::PreemptedBy(node) => write!(f, "{node} has a higher priority"),
            Self::OrderedTo(node) => write!(f, "ordered switch to {node}"),
            Self::LeaseLost => f.write_str("no majority of voters renewed the lease in time"),
            Self::HeldBy(node) => write!(f, "{node} has the lease"),
            Self::NoMajority => f.write_str("no majority of voters granted a lease"),
            Self::AddressInUse { by } => {
                write!(f, "in use at {}", by.map(|octet| format!("{octet:02x}")).join(":"))
            }
            Self::SystemRefused => f.write_str("the system refused it: see the log"),
            Self::Ending => f.write_str("the node ends"),
        }
    }
}

/// The state of a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub role: OwnershipRole,
    /// Why the candidate has this role.
    pub reason: Reason,
    /// Since when.
    pub since: Time,
    /// The owner, as far as this candidate has heard.
    pub owner: Option<NodeName>,
    /// The end of this candidate's lease.
    pub lease_end: Option<Time>,
    /// Whether it can serve clients at the address.
    pub ready: bool,
    /// A candidate with other voters or another lease. While there is one, this candidate asks for no lease.
    pub other_terms: Option<NodeName>,
}

/// Why an ordered switch cannot be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SwitchRefused {
    /// This candidate has not heard of an owner.
    #[error("no candidate has the address")]
    NoOwner,
    #[error("{0} has the address already")]
    AlreadyThere(NodeName),
    /// No advert of the candidate came of late.
    #[error("{0} is no candidate for the address, or has no link to its owner")]
    UnknownCandidate(NodeName),
    /// The candidate cannot serve clients.
    #[error("{0} cannot serve clients at the address: its interface is down, or it has no available agent")]
    NotReady(NodeName),
    /// No other candidate can get the address.
    #[error("no other candidate can serve clients at the address")]
    NoCandidate,
    /// The candidate is about to get or to leave the address.
    #[error("the address is about to change its owner")]
    Changing,
}
