//! Limits the request rate of each client.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::{Duration, Instant};

use crate::RetryAfter;

/// The limit for each client: a token bucket that holds `burst` tokens. Each request takes one token. In each `per`,
/// `requests` tokens are added, evenly spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Requests that a client may make in each [`RateLimit::per`], averaged over a long time.
    pub requests: NonZeroU32,
    /// The period for `requests`.
    pub per: Duration,
    /// Requests that a client may make at once after a pause.
    pub burst: NonZeroU32,
}

/// The buckets of all clients.
///
/// For each bucket, only the time when it will be full is stored ("generic cell rate algorithm", ITU-T I.371). A
/// request moves this time forward by the interval between two tokens. A request that would move it beyond the time in
/// which an empty bucket fills is refused. A full bucket needs no entry, so its entry is removed. If the table has
/// `entries_max` entries, the entry whose bucket will be full first is removed for a new one, because that client has
/// made the fewest requests.
#[derive(Debug)]
pub struct Rates {
    /// The interval between two tokens.
    token: Duration,
    /// The time in which an empty bucket fills.
    bucket: Duration,
    entries_max: NonZeroUsize,
    /// When each client's bucket will be full.
    full_at: BTreeMap<IpAddr, Instant>,
    /// The same, ordered by time.
    by_time: BTreeSet<(Instant, IpAddr)>,
}

impl Rates {
    /// All buckets are full. The table has at most `entries_max` entries of about 150 bytes each.
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

    /// Takes a token for a request of `client`. If the bucket is empty, takes none and returns when the next token
    /// comes.
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

    /// Removes up to two full buckets. Each call adds at most one entry, so no call removes many, and all full buckets
    /// are removed in time.
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
