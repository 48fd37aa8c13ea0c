//! How many requests may be tried again.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use crate::window::{Counts, Window};

/// What bounds retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryLimits {
    /// How far back requests and retries count.
    pub window: Duration,
    /// Retries for each 100 requests in the window.
    pub percent: u32,
    /// Retries per second that are allowed besides, so that a proxy with few requests retries, too.
    pub per_s: u32,
}

impl Default for RetryLimits {
    fn default() -> Self {
        Self { window: Duration::from_secs(10), percent: 20, per_s: 10 }
    }
}

/// Keeps retries from multiplying the load where all origins fail: they are allowed as a share of the requests in a
/// sliding window, and some more.
#[derive(Debug)]
pub struct RetryBudget {
    limits: RetryLimits,
    /// Requests, and as the marked ones, retries.
    window: Window,
}

impl RetryBudget {
    /// A budget that nothing was taken of.
    pub fn new(limits: RetryLimits, now: Instant) -> Self {
        Self { limits, window: Window::new(limits.window, now) }
    }

    /// Takes note of a request; its retries are not further requests.
    pub fn request(&mut self, now: Instant) {
        self.window.count(Counts { all: 1, marked: 0 }, now);
    }

    /// Whether a request may be tried again now. If so, it is taken as done.
    pub fn retry(&mut self, now: Instant) -> bool {
        let Counts { all: requests, marked: retries } = self.window.sum(now);
        let besides = u128::from(self.limits.per_s) * self.limits.window.as_millis() / 1000;
        let allowed = u128::from(requests) * u128::from(self.limits.percent) / 100 + besides;
        let may = u128::from(retries) < allowed;
        if may {
            self.window.count(Counts { all: 0, marked: 1 }, now);
        }
        may
    }
}
