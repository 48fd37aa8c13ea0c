//! One limit, with the load and the average duration of the requests under it.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::settings::Limits;

/// The longest `Retry-After` that a client gets.
const TURN_IN_MAX: Duration = Duration::from_mins(5);

/// The number of requests, by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Requests at the origin.
    pub in_progress: usize,
    /// Requests that wait for a slot.
    pub waiting: usize,
}

#[derive(Debug)]
pub(super) struct Gate {
    limits: Limits,
    pub(super) load: Load,
    /// How long a request is in progress, on average. `None` until one has ended.
    took: Option<Duration>,
}

impl Gate {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, load: Load::default(), took: None }
    }

    /// Takes the average duration from the gate that this one replaces.
    pub(super) fn goes_on_from(&mut self, old: &Self) {
        self.took = self.took.or(old.took);
    }

    pub(super) fn has_room(&self) -> bool {
        self.limits.in_progress_max.map_or(usize::MAX, NonZeroUsize::get) > self.load.in_progress
    }

    pub(super) fn may_wait(&self) -> bool {
        self.limits.waiting_max.unwrap_or(usize::MAX) > self.load.waiting
    }

    pub(super) fn wait_max(&self) -> Option<Duration> {
        self.limits.wait_max
    }

    /// Counts a request that has ended after `took`, with weight 1/8 in the moving average.
    pub(super) fn leaves(&mut self, took: Duration) {
        self.load.in_progress -= 1;
        self.took = Some(self.took.map_or(took, |average| average.mul_f64(0.875) + took.mul_f64(0.125)));
    }

    /// The time until a request that is queued now would begin, if requests keep their average duration (Little's law).
    /// Zero if this gate has no limit, or no request has ended yet.
    pub(super) fn turn_in(&self) -> Duration {
        let (Some(max), Some(took)) = (self.limits.in_progress_max, self.took) else { return Duration::ZERO };
        let turn_in_ns = took.as_nanos().saturating_mul(self.load.waiting as u128 + 1) / max.get() as u128;
        Duration::from_nanos(u64::try_from(turn_in_ns).unwrap_or(u64::MAX)).min(TURN_IN_MAX)
    }
}
