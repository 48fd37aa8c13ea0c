//! States of servers, and the evidence for them.

use std::time::Duration;

use watari_packets::Timestamp;

use crate::window::{Shares, Tally};

/// The state of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerState {
    /// No client sends a request.
    Idle,
    /// The shares are within their limits.
    Normal,
    /// Aborts, timeouts or failures are over a limit.
    Saturated,
    /// Most SYNs and requests get no answer.
    Stopped,
}

impl ServerState {
    pub const ALL: [Self; 4] = [Self::Idle, Self::Normal, Self::Saturated, Self::Stopped];

    /// The name in logs and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Normal => "normal",
            Self::Saturated => "saturated",
            Self::Stopped => "stopped",
        }
    }
}

/// The limit that decided a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// No client sent a request.
    NoClients,
    WithinLimits,
    /// Clients cut off too many answers.
    Aborts,
    /// Too many requests timed out.
    Timeouts,
    /// Aborts and timeouts together are over their limit.
    AbortsAndTimeouts,
    /// The server cut off too many connections.
    Failures,
    /// Too many SYNs and requests got no answer.
    Unanswered,
}

impl Reason {
    /// The name in logs and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoClients => "no_clients",
            Self::WithinLimits => "within_limits",
            Self::Aborts => "aborts",
            Self::Timeouts => "timeouts",
            Self::AbortsAndTimeouts => "aborts_and_timeouts",
            Self::Failures => "failures",
            Self::Unanswered => "unanswered",
        }
    }
}

/// A state of a server with its evidence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    pub state: ServerState,
    /// The begin of the state.
    pub since: Timestamp,
    /// When the state was decided: at least [`Profile::hold`](super::Profile::hold) after `since`.
    pub at: Timestamp,
    pub evidence: Evidence,
}

/// The measurement that decided a state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evidence {
    pub reason: Reason,
    /// The measured share, 0 to 1.
    pub value: f64,
    /// The limit of `value`, 0 to 1.
    pub limit: f64,
    /// The time that `value` covers.
    pub span: Duration,
    /// X, Y and Z in that time; of a stopped server, since it stopped.
    pub shares: Option<Shares>,
    /// All counts of that time.
    pub tally: Tally,
}
