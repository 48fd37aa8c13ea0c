//! When transfers move, and how often. The defaults suit downloads of minutes to hours.

use std::time::Duration;

/// The causes of moves, and the limits on them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Transfers leave an origin that sends nothing for this long. `None`: they do not.
    pub stalled: Option<Duration>,
    /// In bytes per second. If an origin sends less on average over `stalled`, transfers leave it as if it sent
    /// nothing. Only the time spent waiting for the origin counts.
    pub rate_min: u32,
    /// Transfers leave an origin that is slower than others. `None`: they do not.
    pub slow: Option<Slow>,
    /// Transfers move so that origins have equal loads. `None`: they do not.
    pub unequal: Option<Unequal>,
    /// Limits on moves.
    pub damping: Damping,
}

/// When a transfer is slow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slow {
    /// The time over which rates are measured. A transfer must be slow twice in a row.
    pub window: Duration,
    /// A transfer is slow if its rate is below this share of the rate expected elsewhere. That is the median of the
    /// same client's transfers there, or else of all transfers there.
    pub share: f64,
    /// The minimum share of the time in which the transfer waits for its origin. Below it, the client is the
    /// bottleneck.
    pub waiting_min: f64,
}

/// When the loads of origins are unequal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unequal {
    /// The measure of load. The right one depends on the site.
    pub metric: Metric,
    /// Transfers begin to move when the highest load is more than this many times the lowest.
    pub high: f64,
    /// They continue to move until the highest load is at most this many times the lowest.
    pub low: f64,
    /// The time over which loads are also averaged, so that shorter changes move nothing. For metrics other than
    /// connections, it is also the pause after a move until the metric shows its effect; nothing else moves in the
    /// pause.
    pub settle: Duration,
}

/// The load of an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Requests in progress, divided by the weight.
    Connections,
    /// The time until the origin responds.
    Response,
    /// Bytes per second, divided by the weight. It suits origins that are far from their limits: at its limit, an
    /// origin sends less the more requests it has.
    Rate,
}

/// Limits on moves. Moves for [`Cause::Slow`](crate::governor::Cause::Slow) and
/// [`Cause::Unequal`](crate::governor::Cause::Unequal) are optional.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Damping {
    /// The minimum time at an origin before an optional move. Also the minimum time before a transfer returns to an
    /// origin that it has left, unless no other is left.
    pub stay_min: Duration,
    /// The minimum gain of an optional move, as a factor.
    pub gain_min: f64,
    /// A transfer with fewer bytes left makes no optional move.
    pub remaining_min: u64,
    /// The maximum number of optional moves of one transfer.
    pub moves_max: u32,
    /// The maximum number of times in a row that one transfer continues after it failed or stalled. The count restarts
    /// when a transfer stays at an origin for `stay_min`.
    pub failures_max: u32,
    /// The maximum number of transfers that move to or from one origin in a second. Those that failed do not count.
    pub origin_moves_per_s: u32,
    /// The maximum number of transfers that move in a second. Those that failed do not count.
    pub moves_per_s: u32,
    /// How long an origin is not asked again for a resource that it refused to continue.
    pub refusal_memory: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            stalled: Some(Duration::from_secs(10)),
            rate_min: 240,
            slow: Some(Slow::default()),
            unequal: Some(Unequal::default()),
            damping: Damping::default(),
        }
    }
}

impl Default for Slow {
    fn default() -> Self {
        Self { window: Duration::from_secs(10), share: 0.3, waiting_min: 0.5 }
    }
}

impl Default for Unequal {
    /// High is 1.4: loads of four and six transfers cause moves, loads of three and four do not.
    fn default() -> Self {
        Self { metric: Metric::Connections, high: 1.4, low: 1.2, settle: Duration::from_secs(30) }
    }
}

impl Default for Damping {
    fn default() -> Self {
        Self {
            stay_min: Duration::from_secs(30),
            gain_min: 1.1,
            remaining_min: 16 * 1024 * 1024,
            moves_max: 8,
            failures_max: 8,
            origin_moves_per_s: 5,
            moves_per_s: 20,
            refusal_memory: Duration::from_mins(5),
        }
    }
}
