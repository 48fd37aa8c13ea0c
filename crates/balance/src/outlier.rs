//! Origins that fail requests are passed over for a while.

mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::Candidate;
use crate::window::Counts;
use record::{Record, Standing};

/// When an origin is ejected, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutlierLimits {
    /// Failures in a row that eject an origin; 0: none do.
    pub in_a_row: u32,
    /// How far back requests count for the share of failures.
    pub window: Duration,
    /// An origin is ejected when of 100 requests in the window it fails so many more than all others together; 100 and
    /// above: never.
    pub excess_percent: u32,
    /// Requests in the window without which nothing is said of a share, neither of an origin nor of all others.
    pub requests_min: u32,
    /// How long the first ejection takes; each that follows takes as much longer.
    pub ejection: Duration,
    /// No ejection takes longer.
    pub ejection_max: Duration,
    /// For each so long a time that an origin has done well it is forgiven one ejection.
    pub forgive_after: Duration,
    /// Of 100 origins so many may be ejected at the same time, and one of however few.
    pub ejected_percent_max: u32,
}

impl Default for OutlierLimits {
    fn default() -> Self {
        Self {
            in_a_row: 5,
            window: Duration::from_secs(30),
            excess_percent: 50,
            requests_min: 20,
            ejection: Duration::from_secs(5),
            ejection_max: Duration::from_mins(5),
            forgive_after: Duration::from_mins(1),
            ejected_percent_max: 50,
        }
    }
}

/// How a request to an origin ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered with this status code.
    Answered(u16),
    /// No connection could be had.
    Unreachable,
    /// The origin took too long.
    TimedOut,
    /// The connection broke before the response was whole, or what came was none.
    Broken,
    /// Nobody waited for its end: it says nothing of the origin.
    Abandoned,
}

/// Why an origin is ejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It failed so many requests one after the other.
    InARow,
    /// It fails far more of its requests than the others.
    Share,
    /// It failed the request that it was tried with after an ejection.
    Trial,
}

/// What has changed about an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It gets no requests until then.
    Ejected {
        /// When it is tried again.
        until: Instant,
        /// Why it is ejected.
        cause: Cause,
    },
    /// It gets requests again; the caller starts it slowly.
    Readmitted,
}

/// Watches what becomes of requests to the origins of a pool, which are called `N`.
///
/// ```text
///              too many failures
///   admitted --------------------> ejected
///      ^                              | longer each time
///      |   the request succeeds       v
///      +--------------------------- on trial: gets one request
///                                     |      ^
///                 the request fails   v      | longer still
///                                   ejected -+
/// ```
///
/// A request that began before an origin's standing changed says nothing new. Where all are ejected, all get requests
/// nevertheless, and one that succeeds readmits its origin.
#[derive(Debug)]
pub struct Outliers<N> {
    limits: OutlierLimits,
    origins: BTreeMap<N, Record>,
    /// Origins that are not admitted.
    out: usize,
}

impl Outcome {
    /// Whether the origin failed; `None` if that cannot be said. Of answers only 502, 503 and 504 count as failures: they
    /// say that the origin cannot serve, where a 500 says that this request cannot be served.
    pub fn failed(self) -> Option<bool> {
        match self {
            Self::Answered(status) => Some((502..=504).contains(&status)),
            Self::Unreachable | Self::TimedOut | Self::Broken => Some(true),
            Self::Abandoned => None,
        }
    }
}

impl Cause {
    /// The cause as a metric label, and as an administrator sees it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InARow => "in_a_row",
            Self::Share => "share",
            Self::Trial => "trial",
        }
    }
}

impl<N: Ord> Outliers<N> {
    /// Nothing is known of any origin yet.
    pub fn new(limits: OutlierLimits) -> Self {
        Self { limits, origins: BTreeMap::new(), out: 0 }
    }

    /// These are the origins from now on. What is known of those that stay is kept.
    pub fn configure(&mut self, names: impl IntoIterator<Item = N>, now: Instant) {
        let mut known = std::mem::take(&mut self.origins);
        let record = |name| {
            let record = known.remove(&name).unwrap_or_else(|| Record::new(self.limits.window, now));
            (name, record)
        };
        self.origins = names.into_iter().map(record).collect();
        self.out = self.origins.values().filter(|record| record.is_out()).count();
    }

    /// Leaves those of `candidates` that may be given a request now; all of them, if none may.
    pub fn keep_admitted(&self, candidates: &mut Vec<Candidate<N>>, now: Instant) {
        if self.out > 0 && candidates.iter().any(|candidate| self.may_have_request(&candidate.name, now)) {
            candidates.retain(|candidate| self.may_have_request(&candidate.name, now));
        }
    }

    /// Whether `name` is neither ejected nor busy with the request it is tried with.
    pub fn may_have_request(&self, name: &N, now: Instant) -> bool {
        self.origins.get(name).is_none_or(|record| record.may_have_request(now, self.limits.ejection))
    }

    /// A request to `name` begins. Each has to end in [`Outliers::ended`]; the trial of an origin that does not is
    /// repeated after as long as a first ejection takes.
    pub fn began(&mut self, name: &N, now: Instant) {
        if let Some(record) = self.origins.get_mut(name) {
            record.began(now);
        }
    }

    /// A request to `name` that began at `began` has ended.
    pub fn ended(&mut self, name: &N, began: Instant, outcome: Outcome, now: Instant) -> Option<Verdict> {
        let record = self.origins.get_mut(name)?;
        let Some(failed) = outcome.failed() else {
            record.abandoned(began);
            return None;
        };
        match record.standing {
            Standing::Admitted { since } if since.is_none_or(|since| since <= began) => {
                record.count(failed, now);
                if failed { self.judge(name, now) } else { None }
            }
            Standing::Out { since, until, .. } if since <= began => match failed {
                true if until <= began => Some(record.eject(&self.limits, Cause::Trial, now)),
                true => None,
                false => Some(self.readmit(name, now)),
            },
            Standing::Admitted { .. } | Standing::Out { .. } => None,
        }
    }

    /// Ejects `name`, which has just failed, if that is one failure too many and not too many are out already.
    fn judge(&mut self, name: &N, now: Instant) -> Option<Verdict> {
        let cause = self.cause(name, now)?;
        let allowed = self.origins.len() * self.limits.ejected_percent_max as usize / 100;
        if self.out > 0 && self.out >= allowed {
            return None;
        }
        self.out += 1;
        Some(self.origins.get_mut(name)?.eject(&self.limits, cause, now))
    }

    fn cause(&mut self, name: &N, now: Instant) -> Option<Cause> {
        let in_a_row = self.origins.get(name)?.in_a_row;
        if self.limits.in_a_row > 0 && in_a_row >= self.limits.in_a_row {
            return Some(Cause::InARow);
        }
        self.fails_more_than_others(name, now).then_some(Cause::Share)
    }

    fn fails_more_than_others(&mut self, name: &N, now: Instant) -> bool {
        let (mut own, mut others) = (Counts::default(), Counts::default());
        for (other, record) in &mut self.origins {
            let counted = if other == name { &mut own } else { &mut others };
            *counted += record.window.sum(now);
        }
        let enough = |counts: Counts| counts.all >= u64::from(self.limits.requests_min).max(1);
        enough(own) && enough(others) && percent(own) > percent(others) + u64::from(self.limits.excess_percent)
    }

    fn readmit(&mut self, name: &N, now: Instant) -> Verdict {
        if let Some(record) = self.origins.get_mut(name) {
            record.readmit(self.limits.window, now);
            self.out -= 1;
        }
        Verdict::Readmitted
    }
}

fn percent(counts: Counts) -> u64 {
    counts.marked * 100 / counts.all.max(1)
}
