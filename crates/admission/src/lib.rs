//! Decides which requests and connections are served now, which wait, and which are refused.
//!
//! * [`Rates`]: how many requests a client may make in a period.
//! * [`Concurrency`]: how many requests of a client may be in progress.
//! * [`Queue`]: how many requests may be in progress at an origin, by host and path. It keeps the order of the requests
//!   that wait.
//! * [`Unidentified`]: which connections may wait until their peers have identified themselves.
//!
//! The crate has no I/O and no clock: time is an argument, and the caller notifies the requests that wait. A client is
//! an address. Where all addresses of a network count as one client, the caller passes the address that stands for the
//! network.

mod concurrency;
mod pattern;
mod queue;
mod rates;
mod unidentified;

use std::time::Duration;

pub use concurrency::{Concurrency, InProgress};
pub use pattern::{InvalidPattern, Pattern};
pub use queue::{AdmissionId, Entered, Expired, Limits, Load, Queue, QueueSettings, Request, Rule};
pub use rates::{RateLimit, Rates};
pub use unidentified::{Newcomer, Unidentified, UnidentifiedLimits};

/// How long a refused client should wait before it asks again (RFC 9110, section 10.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RetryAfter(Duration);

impl RetryAfter {
    /// Whole seconds, as in a `Retry-After` field: rounded up, at least 1.
    pub fn seconds(self) -> u64 {
        (self.0.as_secs() + u64::from(self.0.subsec_nanos() > 0)).max(1)
    }

    /// The time, not rounded.
    pub fn duration(self) -> Duration {
        self.0
    }
}
