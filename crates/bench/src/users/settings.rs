//! What users do, and how many there are.

use std::time::Duration;

use crate::shares::Shares;

/// What users do, and how many there are; checked when it is made.
#[derive(Clone, Debug)]
pub struct Settings {
    rate: f64,
    count: Count,
    duration: Duration,
    requests: u32,
    waits: Shares,
}

/// What the rate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// All requests, as in the paper: new users begin only for what returning users leave of the rate.
    Requests,
    /// New users.
    Users,
}

/// The settings cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// No rate.
    #[error("a rate is above 0 and at most {RATE_MAX} a second")]
    Rate,
    /// Too few requests, or too many.
    #[error("a user makes 1 to {REQUESTS_MAX} requests")]
    Requests,
    /// New users for no time, or for too long.
    #[error("new users begin for more than 0 and at most {DURATION_S_MAX} s")]
    Duration,
}

impl Settings {
    /// New users for `duration`, `rate` a second of what `count` says; each makes `requests` requests and waits one of `waits` in between.
    pub fn new(
        rate: f64,
        count: Count,
        duration: Duration,
        requests: u32,
        waits: Shares,
    ) -> Result<Self, SettingsError> {
        if !(rate > 0.0 && rate <= RATE_MAX) {
            return Err(SettingsError::Rate);
        }
        if !(1..=REQUESTS_MAX).contains(&requests) {
            return Err(SettingsError::Requests);
        }
        if duration.is_zero() || duration > Duration::from_secs(DURATION_S_MAX) {
            return Err(SettingsError::Duration);
        }
        Ok(Self { rate, count, duration, requests, waits })
    }

    /// How many of what [`Settings::count`] says begin each second.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// What the rate counts.
    pub fn count(&self) -> Count {
        self.count
    }

    /// For how long new users begin.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// How many requests each user makes.
    pub fn requests(&self) -> u32 {
        self.requests
    }

    /// The wait of each user.
    pub fn waits(&self) -> &Shares {
        &self.waits
    }
}

const RATE_MAX: f64 = 1e6;
const REQUESTS_MAX: u32 = 10_000;
/// 1000 hours, as for all lengths of time that are given.
const DURATION_S_MAX: u64 = 3_600_000;
