//! What callers of the exchange pass and get.

use watari_values::{NodeName, SessionKey};

use super::message::Message;
use crate::store::Session;

/// The nodes that get a new session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// All members.
    Push,
    /// The session's two owners.
    Owner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of a monotonic clock.
    pub ms: u64,
    /// Seconds of Unix time.
    pub unix_s: u64,
}

/// Identifies a call of [`Exchange::put`](super::Exchange::put).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PutId(pub(super) u64);

/// Identifies a call of [`Exchange::get`](super::Exchange::get).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GetId(pub(super) u64);

/// Identifies a call of [`Exchange::spend`](super::Exchange::spend).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpendId(pub(super) u64);

/// A task for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send this message to this member.
    Send(NodeName, Message),
    /// Send a message that no handshake waits for. The caller may send it together with the next one to this member, or
    /// some milliseconds later.
    SendSoon(NodeName, Message),
    /// The flight that announces these sessions to the client may be sent. Each session is stored at an owner, or all
    /// tries have failed.
    Stored(PutId),
    /// The search has ended, with the sessions that were found.
    Found(GetId, Vec<FoundSession>, Outcome),
    /// The answer to a call of [`Exchange::spend`](super::Exchange::spend).
    Spent(SpendId, Verdict),
}

/// A session that a search has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSession {
    pub key: SessionKey,
    pub session: Session,
    /// The place where it was found.
    pub source: Source,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// This node stores it, and established it.
    Own,
    /// This node stores it, and another established it.
    Here,
    /// Another node stored it. Now this node stores it, too.
    Pulled,
}

/// The reason why a search has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All sessions were found.
    Complete,
    /// None of the nodes that were asked has the missing sessions.
    Unknown,
    /// Some nodes did not respond in time, or [`PENDING_MAX`] searches were running and no node was asked.
    Unreachable,
}

/// The answer of the node that established a session, about one use of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The session may be used, this once.
    Granted,
    /// The session was used before, or the node does not store it (any more).
    Denied,
    /// The node does not respond, or has no link.
    Unreachable,
}

/// The maximum number of puts that wait at once, and of gets, and of spends. One beyond the limit ends at once.
pub const PENDING_MAX: usize = 4096;

/// The number of nodes that store a session for all others.
pub(super) const OWNERS: usize = 2;
