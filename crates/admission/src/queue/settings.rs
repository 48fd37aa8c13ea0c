//! What a queue goes by.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use crate::Pattern;

/// What bounds requests of a kind. Without any bound on waiting, all wait: then something else has to bound how many
/// requests there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Requests in progress at the origin.
    pub in_progress_max: Option<NonZeroUsize>,
    /// Requests that wait for their place there.
    pub waiting_max: Option<usize>,
    /// How long one waits.
    pub wait_max: Option<Duration>,
}

/// What holds for requests that ask for something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What they ask for.
    pub pattern: Pattern,
    /// What bounds them.
    pub limits: Limits,
    /// Those of a higher priority begin first.
    pub priority: u8,
}

/// What a [`Queue`](crate::Queue) goes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSettings {
    /// The first that matches a request holds for it.
    pub rules: Vec<Rule>,
    /// What holds for all requests together, beside their rules.
    pub all: Limits,
    /// The priority of requests that no rule is about.
    pub priority: u8,
    /// Who waits at a lower priority is passed over so many times less one, at most, and once more for each other
    /// priority whose requests have been passed over as often. 1 gives all priorities the same.
    pub one_in: NonZeroU32,
}
