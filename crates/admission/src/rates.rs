//! How many requests a client may make in a time.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::{Duration, Instant};

use crate::RetryAfter;

/// What each client may do: a bucket of `burst` tokens, of which each request takes one, and into which `requests` tokens
/// fall in each `per`, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Requests that a client may make in [`RateLimit::per`] for good.
    pub requests: NonZeroU32,
    /// The time for that.
    pub per: Duration,
    /// Requests that it may make at once after it made none for a while.
    pub burst: NonZeroU32,
}

/// The buckets of all clients.
///
/// Of a bucket only the time is kept at which it will be full ("generic cell rate algorithm", ITU-T I.371): a request
/// puts it off by the time that a token takes to come, and may not put it off further than a whole bucket's time. One that
/// is full says no more than none at all, and is forgotten. Where there are more clients than can be remembered, the
/// one whose bucket will be full first is forgotten before its time: it has asked for least.
#[derive(Debug)]
pub struct Rates {
    /// How long a token takes to come.
    token: Duration,
    /// How long a bucket takes to fill.
    bucket: Duration,
    entries_max: NonZeroUsize,
    /// When a client's bucket will be full.
    full_at: BTreeMap<IpAddr, Instant>,
    /// The same in the order of time.
    by_time: BTreeSet<(Instant, IpAddr)>,
}

impl Rates {
    /// All buckets are full. At most `entries_max` clients are remembered, in some 150 bytes each.
    pub fn new(limit: RateLimit, entries_max: NonZeroUsize) -> Self {
        let token = (limit.per / limit.requests.get()).max(Duration::from_nanos(1));
        Self {
            token,
            bucket: token.saturating_mul(limit.burst.get()),
            entries_max,
            full_at: BTreeMap::new(),
            by_time: BTreeSet::new(),
        }
    }

    /// Takes a token for a request of `client`; says when there will be one if there is none. A refused request takes
    /// none.
    pub fn check(&mut self, client: IpAddr, now: Instant) -> Result<(), RetryAfter> {
        self.forget_full(now);
        let before = self.full_at.get(&client).copied();
        let missing = before.map_or(Duration::ZERO, |full_at| full_at.saturating_duration_since(now)) + self.token;
        if let Some(wait) = missing.checked_sub(self.bucket).filter(|wait| !wait.is_zero()) {
            return Err(RetryAfter(wait));
        }
        if let Some(before) = before {
            self.by_time.remove(&(before, client));
        } else if self.full_at.len() >= self.entries_max.get() {
            self.forget_first();
        }
        self.full_at.insert(client, now + missing);
        self.by_time.insert((now + missing, client));
        Ok(())
    }

    /// Two for each that may come: no call has to forget many, and all who are full are forgotten in the end.
    fn forget_full(&mut self, now: Instant) {
        for _ in 0..2 {
            if self.by_time.first().is_some_and(|(full_at, _)| *full_at <= now) {
                self.forget_first();
            }
        }
    }

    fn forget_first(&mut self) {
        if let Some((_, client)) = self.by_time.pop_first() {
            self.full_at.remove(&client);
        }
    }
}
