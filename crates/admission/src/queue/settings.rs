//! Settings of a queue.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use crate::Pattern;

/// Limits on the requests of a rule, or on all. Without `waiting_max` and `wait_max`, any number of requests waits for
/// any time: then another part has to limit the number of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Requests in progress at the origin.
    pub in_progress_max: Option<NonZeroUsize>,
    /// Requests that wait for a slot.
    pub waiting_max: Option<usize>,
    /// How long one request waits.
    pub wait_max: Option<Duration>,
}

/// Limits and priority of the requests that match a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub pattern: Pattern,
    pub limits: Limits,
    /// Requests of a higher priority begin first.
    pub priority: u8,
}

/// Settings of a [`Queue`](crate::Queue).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSettings {
    /// The first rule that matches a request applies to it.
    pub rules: Vec<Rule>,
    /// The limits for all requests together, in addition to those of the rules.
    pub all: Limits,
    /// The priority of requests that match no rule.
    pub priority: u8,
    /// A lower priority is passed over at most `one_in - 1` times, and once more for each other priority that has been
    /// passed over as often. With 1, all priorities are equal.
    pub one_in: NonZeroU32,
}
