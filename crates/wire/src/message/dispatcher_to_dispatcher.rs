//! What dispatchers send each other when connections change their dispatcher (docs/internals/takeover.md).
//!
//! D1 is the dispatcher that has a connection, D2 the one that gets it. The service address is D1's until all
//! connections have changed.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use watari_values::{AbortReason, DispatcherChange};

/// A message about connections that change their dispatcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DispatcherToDispatcher {
    /// D1 to D2: connections of a service address are about to come.
    TakeWanted(TakeWanted),
    /// D2 to D1: D2 has the address silently, and expects the connections.
    TakeReady(TakeReady),
    /// D1 to D2: connections are about to be shipped. D2 holds their packets until it has them.
    TakeComing(TakeComing),
    /// D1 to D2: a part of the state of a connection. The parts of a state follow each other on one link.
    StatePart(StatePart),
    /// D2 to D1: D2 has restored the connection. Nothing of it leaves D2 yet.
    TakeHeld(DispatcherChange),
    /// D2 to D1: D2 cannot take the connection, and has nothing of it.
    TakeRefused(TakeRefused),
    /// D1 to D2: D1 has given the connection up. D2 has it now.
    Given(DispatcherChange),
    /// D2 to D1: D2 has received `Given`.
    Taken(DispatcherChange),
    /// Each dispatcher of shared addresses to all others, repeatedly (docs/internals/multipath.md).
    Steering(SteeringAdvert),
}

/// See [`DispatcherToDispatcher::TakeWanted`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeWanted {
    pub address: IpAddr,
    /// About how many connections will come.
    pub connections: u32,
}

/// See [`DispatcherToDispatcher::TakeReady`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeReady {
    pub address: IpAddr,
    /// The hardware address of the interface that has the service address. D1 forwards packets to it.
    pub mac: [u8; 6],
}

/// See [`DispatcherToDispatcher::TakeComing`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeComing {
    /// The address and port of the client, and those of the service. At most [`FLOWS_MAX`](crate::FLOWS_MAX).
    pub flows: Vec<(SocketAddr, SocketAddr)>,
}

/// See [`DispatcherToDispatcher::StatePart`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatePart {
    pub change: DispatcherChange,
    /// The position of `bytes` in the state.
    pub offset: u32,
    /// The length of the whole state, at most [`CHANGE_STATE_LEN_MAX`](crate::CHANGE_STATE_LEN_MAX).
    pub state_len: u32,
    /// At most [`STATE_PART_LEN_MAX`](crate::STATE_PART_LEN_MAX).
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// See [`DispatcherToDispatcher::TakeRefused`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeRefused {
    pub change: DispatcherChange,
    pub reason: AbortReason,
}

/// See [`DispatcherToDispatcher::Steering`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteeringAdvert {
    /// The link-layer address of the interface to which the others pass packets on.
    pub mac: [u8; 6],
    pub state: SteeringState,
    /// A number for the set of addresses, which is the same at all of them.
    pub addresses: u64,
    /// Whether the sender could serve a client at this moment.
    pub can_serve: bool,
    /// A number for the set of dispatchers that accept connections, as the sender knows it.
    pub view: u64,
    /// Whether the sender may have connections whose primary, by its view, is another dispatcher.
    pub has_strays: bool,
}

/// The state of a dispatcher of shared addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SteeringState {
    /// It accepts no connections yet.
    Joining,
    /// It accepts connections.
    Serving,
    /// It accepts no connections any more, and gives those that it has to others.
    Leaving,
    /// It has no connections, and only passes packets on.
    Left,
}

impl SteeringState {
    /// Its name in answers and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Serving => "serving",
            Self::Leaving => "leaving",
            Self::Left => "left",
        }
    }
}
