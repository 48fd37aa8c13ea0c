//! The retry budget of a pool.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use crate::window::{Counts, Window};

/// The limits on retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryLimits {
    /// The time for which requests and retries count.
    pub window: Duration,
    /// Retries per 100 requests in the window.
    pub percent: u32,
    /// Additional retries per second, so that a proxy with few requests can retry.
    pub per_s: u32,
}

impl Default for RetryLimits {
    fn default() -> Self {
        Self { window: Duration::from_secs(10), percent: 20, per_s: 10 }
    }
}

/// Limits retries, so that they do not multiply the load when all origins fail. The limit is a percentage of the
/// requests in a sliding window, plus a constant rate.
#[derive(Debug)]
pub struct RetryBudget {
    limits: RetryLimits,
    /// `all` counts requests, `marked` counts retries.
    window: Window,
}

impl RetryBudget {
    /// A budget without requests and retries.
    pub fn new(limits: RetryLimits, now: Instant) -> Self {
        Self { limits, window: Window::new(limits.window, now) }
    }

    /// Counts a request. Its retries must not be counted here.
    pub fn request(&mut self, now: Instant) {
        self.window.count(Counts { all: 1, marked: 0 }, now);
    }

    /// Whether a request may be retried now. If so, counts the retry.
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
