//! One limit, and what is known of the requests under it.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::{Limits, Load};

/// Nobody is told to come again later than after this.
const TURN_IN_MAX: Duration = Duration::from_mins(5);

#[derive(Debug)]
pub(super) struct Gate {
    limits: Limits,
    pub(super) load: Load,
    /// How long a request is in progress, on average.
    took: Option<Duration>,
}

impl Gate {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, load: Load::default(), took: None }
    }

    /// Requests take as long as they did under the limit that this one replaces.
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

    /// A request is over that `took` so long. The last dozen or so make the average.
    pub(super) fn leaves(&mut self, took: Duration) {
        self.load.in_progress -= 1;
        self.took = Some(self.took.map_or(took, |average| average.mul_f64(0.875) + took.mul_f64(0.125)));
    }

    /// When everybody who waits will have begun, if requests take as long as they did (Little's law). Zero where nobody
    /// waits for this limit, or that is not known.
    pub(super) fn turn_in(&self) -> Duration {
        let (Some(max), Some(took)) = (self.limits.in_progress_max, self.took) else { return Duration::ZERO };
        let turn_in_ns = took.as_nanos().saturating_mul(self.load.waiting as u128 + 1) / max.get() as u128;
        Duration::from_nanos(u64::try_from(turn_in_ns).unwrap_or(u64::MAX)).min(TURN_IN_MAX)
    }
}
