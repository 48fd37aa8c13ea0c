//! The current time.

use std::time::Instant;

/// A moment, by the monotonic clock and by the wall clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) instant: Instant,
    /// Unix time in seconds.
    pub(crate) unix_s: u64,
}

/// How far the clock of a statement's or order's author may be ahead of ours, in seconds. Without a limit, a single
/// wrong statement could never be overridden.
pub(super) const AHEAD_MAX_S: u64 = 3600;
