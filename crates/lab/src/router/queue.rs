//! One direction of the router: whether a packet passes, and when it is due.
//!
//! ```text
//! offered --> lost? --> waits until the link is free --> is sent at the rate --> delay and jitter --> due
//! ```
//!
//! No clock and no socket: the caller says what time it is.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::Settings;

/// The longest time that a packet waits until a link with a rate is free.
pub const BACKLOG_MAX: Duration = Duration::from_millis(100);

/// The packets of one direction.
#[derive(Debug)]
pub(super) struct Queue {
    delay: Duration,
    jitter: Duration,
    loss: f64,
    /// Bits per second.
    rate: Option<f64>,
    random: StdRng,
    /// When the last packet has been sent at the rate.
    free: Option<Instant>,
    /// When the last packet is due.
    last_due: Option<Instant>,
}

impl Queue {
    /// The settings have been checked.
    pub(super) fn new(settings: &Settings, seed: u64) -> Self {
        let Settings { round_trip, jitter, loss, rate, .. } = *settings;
        let random = StdRng::seed_from_u64(seed);
        Self { delay: round_trip / 2, jitter, loss, rate, random, free: None, last_due: None }
    }

    /// When a packet of `len` octets that came at `now` is due. None: it is lost, or the backlog is too long. Times must
    /// not decrease from call to call.
    pub(super) fn offer(&mut self, now: Instant, len: usize) -> Option<Instant> {
        let is_lost = self.random.random_bool(self.loss);
        let jitter = self.jitter.mul_f64(self.random.random());
        if is_lost {
            return None;
        }
        let due = self.send(now, len)? + self.delay + jitter;
        let in_order = self.last_due.map_or(due, |last| last.max(due));
        self.last_due = Some(in_order);
        Some(in_order)
    }

    /// When the last bit has left at the rate.
    fn send(&mut self, now: Instant, len: usize) -> Option<Instant> {
        let Some(rate) = self.rate else { return Some(now) };
        let start = self.free.map_or(now, |free| free.max(now));
        if start - now > BACKLOG_MAX {
            return None;
        }
        let octets = u32::try_from(len).unwrap_or(u32::MAX);
        let sent = start + Duration::from_secs_f64(f64::from(octets) * 8.0 / rate);
        self.free = Some(sent);
        Some(sent)
    }
}

#[cfg(test)]
#[allow(clippy::cast_precision_loss, reason = "counts and lengths of tests are small")]
mod tests;
