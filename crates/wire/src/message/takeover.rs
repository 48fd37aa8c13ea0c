//! What candidates and voters send each other about the owners of service addresses (docs/internals/takeover.md).
//!
//! A candidate is a dispatcher that may own an address. A voter is a dispatcher or an agent.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use watari_values::NodeName;

/// A message about the owner of a service address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TakeoverMessage {
    /// Candidate to voter: asks for a lease, or for its renewal.
    LeaseWanted(LeaseWanted),
    /// Candidate to voter: the candidate no longer answers at the address, and gives its lease back.
    LeaseReturned(LeaseReturned),
    /// Voter to candidate: the voter grants no other candidate a lease until this one has ended.
    LeaseGranted(LeaseGranted),
    /// Voter to candidate: no lease, or the answer to an inquiry.
    LeaseRefused(LeaseRefused),
    /// Candidate to all dispatchers, repeatedly.
    Advert(Advert),
    /// Candidate to the owner: the owner is to leave the address to another candidate.
    SwitchWanted(SwitchWanted),
    /// Previous owner to its successor: the address is free.
    Yielded(Yielded),
}

/// The number of a request for a lease. Only its candidate compares it with others of the same incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseNumber {
    /// A random number, drawn when the candidate's process starts.
    pub incarnation: u64,
    /// Grows with each request of the incarnation for the address.
    pub round: u64,
}

/// See [`TakeoverMessage::LeaseWanted`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseWanted {
    pub address: IpAddr,
    pub lease: LeaseNumber,
    /// How long the lease lasts, in milliseconds.
    pub lease_ms: u32,
    /// The voter only answers what a request would meet, by a [`LeaseRefused`].
    pub inquiry: bool,
    /// The previous owner's lease, which it has given back to this candidate.
    pub after: Option<Predecessor>,
}

/// The lease of a previous owner, which does not answer at the address any more.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Predecessor {
    pub node: NodeName,
    /// The number of its last request, which no grant follows any more.
    pub lease: LeaseNumber,
}

/// See [`TakeoverMessage::LeaseReturned`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseReturned {
    pub address: IpAddr,
    /// The last request. The voter ends a lease that it has granted for this request or an earlier one.
    pub lease: LeaseNumber,
}

/// See [`TakeoverMessage::LeaseGranted`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseGranted {
    pub address: IpAddr,
    /// The request that is granted.
    pub lease: LeaseNumber,
}

/// See [`TakeoverMessage::LeaseRefused`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseRefused {
    pub address: IpAddr,
    /// The request that is refused.
    pub lease: LeaseNumber,
    /// The candidate that has the lease. `None`: none has it by this voter's information.
    pub holder: Option<NodeName>,
    /// The time until the voter can grant a lease, in milliseconds.
    pub remaining_ms: u32,
}

/// See [`TakeoverMessage::Advert`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Advert {
    pub address: IpAddr,
    /// Whether the sender has the address.
    pub is_owner: bool,
    /// 1 to 254. 0: the sender cannot serve clients at the address.
    pub priority: u8,
    /// Whether the sender is the owner by an operator's order. Then no candidate with a higher priority preempts it.
    pub by_order: bool,
    /// How long leases last, in milliseconds.
    pub lease_ms: u32,
    /// The voters, in order of their names. At most [`VOTERS_MAX`](crate::VOTERS_MAX).
    pub voters: Vec<NodeName>,
}

/// See [`TakeoverMessage::SwitchWanted`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SwitchWanted {
    pub address: IpAddr,
    /// The candidate that is to get the address.
    pub to: NodeName,
    /// The priority of that candidate.
    pub priority: u8,
    /// Whether an operator ordered the switch. Otherwise only a higher priority than the owner's counts.
    pub by_order: bool,
}

/// See [`TakeoverMessage::Yielded`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Yielded {
    pub address: IpAddr,
    /// The sender's last request.
    pub lease: LeaseNumber,
    /// Whether an operator ordered the switch.
    pub by_order: bool,
}

impl TakeoverMessage {
    /// The address that the message is about.
    pub fn address(&self) -> IpAddr {
        match self {
            Self::LeaseWanted(LeaseWanted { address, .. })
            | Self::LeaseReturned(LeaseReturned { address, .. })
            | Self::LeaseGranted(LeaseGranted { address, .. })
            | Self::LeaseRefused(LeaseRefused { address, .. })
            | Self::Advert(Advert { address, .. })
            | Self::SwitchWanted(SwitchWanted { address, .. })
            | Self::Yielded(Yielded { address, .. }) => *address,
        }
    }
}
