//! What a governor is shown, and what it orders.

use std::net::IpAddr;
use std::time::{Duration, Instant};

/// An origin, by a number that its pool gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OriginId(pub u32);

/// A running transfer, by a number that nobody else has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId(pub u64);

/// What is transferred: a digest of host, path and query, say. Two resources with one number are only taken for refused
/// where one of them is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(pub u64);

/// Whether an origin is there for transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Availability {
    /// It may be given some.
    Up,
    /// It keeps what it has only until that is moved.
    Draining,
    /// It does not answer.
    Down,
}

/// An origin as it is now.
#[derive(Debug, Clone)]
pub struct OriginView {
    /// Which.
    pub id: OriginId,
    /// Whether it may be given transfers.
    pub availability: Availability,
    /// How much it shall get in relation to others, at least 1.
    pub weight: u32,
    /// Requests in progress there, also of what cannot move. A transfer that is going on elsewhere counts at both.
    pub connections: usize,
    /// How soon it answers, on average.
    pub response: Duration,
    /// What it sends, in bytes per second.
    pub rate: u64,
}

/// A transfer that could move, as it is now.
#[derive(Debug, Clone)]
pub struct TransferView {
    /// Which.
    pub id: TransferId,
    /// Where its bytes come from.
    pub origin: OriginId,
    /// Whose it is.
    pub client: IpAddr,
    /// What it transfers.
    pub resource: ResourceId,
    /// The origin that is asked for the rest, while one is.
    pub moving_to: Option<OriginId>,
    /// Bytes that the client was given.
    pub delivered: u64,
    /// Bytes that are left.
    pub remaining: u64,
    /// Since when its origin has sent nothing although the client would take something. `None`: it is the client that
    /// is waited for.
    pub waiting_since: Option<Instant>,
    /// How long it has waited for its origin in all, without that.
    pub waited: Duration,
}

impl TransferView {
    /// How long it has waited for its origin in all, until `now`.
    pub(crate) fn waited_until(&self, now: Instant) -> Duration {
        let still = self.waiting_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.waited.saturating_add(still)
    }
}

/// A transfer shall go on elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// Which.
    pub transfer: TransferId,
    /// Where it is.
    pub from: OriginId,
    /// Where it shall go on.
    pub to: OriginId,
    /// Why.
    pub cause: Cause,
}

/// Why a transfer moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Its origin failed, or cut it short.
    Failed,
    /// Its origin sends nothing any more.
    Stalled,
    /// Its origin is slow, and others are not.
    Slow,
    /// Its origin is being drained.
    Draining,
    /// Its origin has more to do than others.
    Unequal,
    /// The operator said so.
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

/// Why a transfer that asked may not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// There is no other origin, or each has refused.
    #[error("no origin is left")]
    Nowhere,
    /// It has failed too often in a row.
    #[error("it has failed too often")]
    TooOften,
    /// It is being moved already.
    #[error("it is being moved")]
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
