//! Who may be served now, who has to wait, and who is told to come again later.
//!
//! * [`Rates`]: how many requests a client may make in a time.
//! * [`Concurrency`]: how many requests of a client may be in progress.
//! * [`Queue`]: how many requests may be in progress at an origin, by what they ask for; who waits for a place there,
//!   and whose turn it is.
//! * [`Unidentified`]: which connections may wait until their peers have identified themselves.
//!
//! Pure: time is an argument, and whoever waits is told by the caller. A client is the address that stands for its
//! network, where all addresses of a network shall count as one client.

mod concurrency;
mod pattern;
mod queue;
mod rates;
mod unidentified;

use std::time::Duration;

pub use concurrency::{Concurrency, InProgress};
pub use pattern::{InvalidPattern, Pattern};
pub use queue::{Entered, Expired, Limits, Load, Queue, QueueSettings, Request, Rule, Ticket};
pub use rates::{RateLimit, Rates};
pub use unidentified::{Newcomer, Unidentified, UnidentifiedLimits};

/// How long a client that is refused should wait before it asks again (RFC 9110, section 10.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RetryAfter(Duration);

impl RetryAfter {
    /// In whole seconds, as a field says it: rounded up, and never 0.
    pub fn seconds(self) -> u64 {
        (self.0.as_secs() + u64::from(self.0.subsec_nanos() > 0)).max(1)
    }

    /// As exactly as it is known.
    pub fn duration(self) -> Duration {
        self.0
    }
}
