//! Inputs and outputs of a governor.

use std::net::IpAddr;
use std::time::{Duration, Instant};

/// An origin, by a number that its pool assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OriginId(pub u32);

/// A running transfer, by a unique number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId(pub u64);

/// A resource, for example by a digest of host, path and query. If two resources have the same number, a refusal of one
/// counts for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(pub u64);

/// Whether an origin accepts transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Availability {
    /// It accepts transfers.
    Up,
    /// It keeps its transfers until they are moved, and accepts no others.
    Draining,
    /// It does not respond.
    Down,
}

/// The present state of an origin.
#[derive(Debug, Clone)]
pub struct OriginView {
    pub id: OriginId,
    pub availability: Availability,
    /// Its share of the load in relation to others, at least 1.
    pub weight: u32,
    /// Its requests in progress, also those that cannot move. A transfer that is being moved counts at both origins.
    pub connections: usize,
    /// The average time until it responds.
    pub response: Duration,
    /// The rate at which it sends, in bytes per second.
    pub rate: u64,
}

/// The present state of a transfer that could move.
#[derive(Debug, Clone)]
pub struct TransferView {
    pub id: TransferId,
    /// The origin that delivers it.
    pub origin: OriginId,
    /// The address of its client.
    pub client: IpAddr,
    pub resource: ResourceId,
    /// The origin that is being asked for the rest.
    pub moving_to: Option<OriginId>,
    /// Bytes that the client got.
    pub delivered: u64,
    /// Bytes that are left.
    pub remaining: u64,
    /// Since when its origin has sent nothing although the client would take bytes. `None`: the client takes none, or
    /// the origin sends.
    pub waiting_since: Option<Instant>,
    /// The total time that it waited for its origin, without the wait since `waiting_since`.
    pub waited: Duration,
}

impl TransferView {
    /// The total time that it waited for its origin, until `now`.
    pub(crate) fn waited_until(&self, now: Instant) -> Duration {
        let still = self.waiting_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.waited.saturating_add(still)
    }
}

/// An order to continue a transfer at another origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    pub transfer: TransferId,
    /// The origin that delivers the transfer.
    pub from: OriginId,
    /// The origin that shall continue it.
    pub to: OriginId,
    pub cause: Cause,
}

/// Why a transfer moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Its origin failed, or cut it short.
    Failed,
    /// Its origin sends nothing any more, or too little.
    Stalled,
    /// Its origin is slow, and others are not.
    Slow,
    /// Its origin is being drained.
    Draining,
    /// Its origin has more load than others.
    Unequal,
    /// The operator requested it.
    Manual,
}

impl Cause {
    /// The cause as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Stalled => "stalled",
            Self::Slow => "slow",
            Self::Draining => "draining",
            Self::Unequal => "unequal",
            Self::Manual => "manual",
        }
    }
}

/// Why a transfer that failed, or that the operator wants to move, may not continue elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// There is no other origin, or each has refused.
    #[error("no other origin is left")]
    Nowhere,
    /// It failed too often in a row.
    #[error("it has failed too often in a row")]
    TooOften,
    /// It is being moved already.
    #[error("it is moving already")]
    Moving,
}

impl Denied {
    /// The reason as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nowhere => "nowhere",
            Self::TooOften => "too_often",
            Self::Moving => "moving",
        }
    }
}
