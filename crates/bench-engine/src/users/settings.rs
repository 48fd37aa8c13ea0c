//! The behaviour of users, and their rate.

use std::time::Duration;

use crate::shares::Shares;

/// The behaviour of users, and their rate. The constructor validates them.
#[derive(Clone, Debug)]
pub struct Settings {
    rate: f64,
    count: Count,
    duration: Duration,
    requests: u32,
    waits: Shares,
}

/// The unit of the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// All requests, as in the paper: new users begin only for the part of the rate that returning users leave.
    Requests,
    /// New users.
    Users,
}

/// The settings are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("a rate is above 0 and at most {RATE_MAX} a second")]
    Rate,
    /// Too few requests per user, or too many.
    #[error("a user makes 1 to {REQUESTS_MAX} requests")]
    Requests,
    /// New users begin for no time, or for too long.
    #[error("new users begin for more than 0 and at most {DURATION_S_MAX} s")]
    Duration,
}

impl Settings {
    /// New users begin for `duration`, at `rate` per second of the unit `count`. Each sends `requests` requests, with
    /// one of `waits` between them.
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

    /// New users or requests per second, as [`Settings::count`] says.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    pub fn count(&self) -> Count {
        self.count
    }

    /// The time during which new users begin.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// Number of requests of each user.
    pub fn requests(&self) -> u32 {
        self.requests
    }

    pub fn waits(&self) -> &Shares {
        &self.waits
    }
}

const RATE_MAX: f64 = 1e6;
const REQUESTS_MAX: u32 = 10_000;
/// 1000 hours, as for all configured durations.
const DURATION_S_MAX: u64 = 3_600_000;
