//! When transfers move, and how often at most. The defaults are made for downloads that take minutes to hours.

use std::time::Duration;

/// What a governor acts on, and how it is damped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// An origin that sends nothing for so long is left. `None`: it never is for that.
    pub stalled: Option<Duration>,
    /// An origin that sends fewer bytes per second than this, on average over `stalled`, is left as one that sends nothing.
    /// Only the time counts in which the origin was waited for.
    pub rate_min: u32,
    /// An origin that is slower than others is left. `None`: it never is for that.
    pub slow: Option<Slow>,
    /// Origins are made to have equally much to do. `None`: they are not.
    pub unequal: Option<Unequal>,
    /// What keeps transfers from moving too often.
    pub damping: Damping,
}

/// When a transfer is slow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slow {
    /// Rates are taken over so long; a transfer has to be slow twice in a row.
    pub window: Duration,
    /// It is slow if it has less than this share of the rate that it could expect elsewhere: what transfers of the same
    /// client get there, else what all get.
    pub share: f64,
    /// It has to have waited for its origin for this share of the time, or the client is what makes it slow.
    pub waiting_min: f64,
}

/// When origins are unequal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unequal {
    /// What is compared. Which is right depends on the site.
    pub metric: Metric,
    /// Transfers begin to move when the most loaded origin has more than so many times the load of the least loaded.
    pub high: f64,
    /// They go on to until it has no more than so many times that.
    pub low: f64,
    /// Loads are also averaged over about so long, so that what comes and goes sooner moves nothing. But for
    /// connections, so long passes until the metric shows what a move has brought, and nothing else moves meanwhile.
    pub settle: Duration,
}

/// What an origin's load is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Requests in progress, for its weight.
    Connections,
    /// How soon it answers.
    Response,
    /// Bytes per second, for its weight: for origins that are far from their limits, since one at its limit sends the
    /// less the more it has to do.
    Rate,
}

/// What keeps transfers from moving too often.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Damping {
    /// A transfer stays so long where it is before it moves because it is slow or origins are unequal, and does not
    /// come back for so long to an origin that it has left, unless that is the last.
    pub stay_min: Duration,
    /// A move for these causes has to promise so many times what there is.
    pub gain_min: f64,
    /// With fewer bytes left a transfer does not move for these causes.
    pub remaining_min: u64,
    /// How often one transfer moves for these causes.
    pub moves_max: u32,
    /// How often one transfer goes on in a row after it failed or stalled. One that stays anywhere for as long as above
    /// may fail as often again.
    pub failures_max: u32,
    /// How many transfers come to and leave one origin in a second, but for those that fail.
    pub origin_moves_per_s: u32,
    /// How many transfers move in a second, but for those that fail.
    pub moves_per_s: u32,
    /// How long an origin is not asked again for a resource that it refused to go on with.
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
    /// 1.4: four transfers and six are worth a move, three and four are not.
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
