//! Ejection of origins that fail requests.

mod limits;
mod record;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::BTreeMap;
use std::time::Instant;

use crate::Candidate;
use crate::window::Counts;
pub use limits::OutlierLimits;
use record::{OutlierState, Record};
pub use verdict::{Cause, Verdict};

/// The end of a request to an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The origin answered with this status code.
    Answered(u16),
    /// No connection could be made.
    Unreachable,
    /// The origin did not answer in time.
    TimedOut,
    /// The connection failed before the response was complete, or the response was malformed.
    Broken,
    /// The request was abandoned, so its end says nothing about the origin.
    Abandoned,
}

/// Records the outcomes of requests to the origins of a pool, which have names of type `N`.
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
/// The outcome of a request that began before the last change of an origin's state does not count. If all origins
/// are ejected, all get requests nevertheless, and a success readmits its origin.
#[derive(Debug)]
pub struct Outliers<N> {
    limits: OutlierLimits,
    origins: BTreeMap<N, Record>,
    /// The number of origins that are not admitted.
    out: usize,
}

impl Outcome {
    /// Whether the origin failed. `None`: unknown. Only the status codes 502, 503 and 504 count as failures: they say
    /// that the origin cannot serve, while a 500 says that it cannot serve this request.
    pub fn failed(self) -> Option<bool> {
        match self {
            Self::Answered(status) => Some((502..=504).contains(&status)),
            Self::Unreachable | Self::TimedOut | Self::Broken => Some(true),
            Self::Abandoned => None,
        }
    }
}

impl<N: Ord> Outliers<N> {
    /// A state without any outcome.
    pub fn new(limits: OutlierLimits) -> Self {
        Self { limits, origins: BTreeMap::new(), out: 0 }
    }

    /// Sets the origins. Those that stay keep their state.
    pub fn configure(&mut self, names: impl IntoIterator<Item = N>, now: Instant) {
        let mut known = std::mem::take(&mut self.origins);
        let record = |name| {
            let record = known.remove(&name).unwrap_or_else(|| Record::new(self.limits.window, now));
            (name, record)
        };
        self.origins = names.into_iter().map(record).collect();
        self.out = self.origins.values().filter(|record| record.is_out()).count();
    }

    /// Removes from `candidates` the origins that may not get a request now. If none may, all stay.
    pub fn keep_admitted(&self, candidates: &mut Vec<Candidate<N>>, now: Instant) {
        if self.out > 0 && candidates.iter().any(|candidate| self.may_have_request(&candidate.name, now)) {
            candidates.retain(|candidate| self.may_have_request(&candidate.name, now));
        }
    }

    /// Whether `name` is neither ejected nor busy with its trial request.
    pub fn may_have_request(&self, name: &N, now: Instant) -> bool {
        self.origins.get(name).is_none_or(|record| record.may_have_request(now, self.limits.ejection))
    }

    /// Records the start of a request to `name`. The caller has to report its end to [`Outliers::ended`]. A trial whose
    /// end is not reported is repeated after the duration of a first ejection.
    pub fn began(&mut self, name: &N, now: Instant) {
        if let Some(record) = self.origins.get_mut(name) {
            record.began(now);
        }
    }

    /// Records the end of a request to `name` that began at `began`.
    pub fn ended(&mut self, name: &N, began: Instant, outcome: Outcome, now: Instant) -> Option<Verdict> {
        let record = self.origins.get_mut(name)?;
        let Some(failed) = outcome.failed() else {
            record.abandoned(began);
            return None;
        };
        match record.state {
            OutlierState::Admitted { since } if since.is_none_or(|since| since <= began) => {
                record.count(failed, now);
                if failed { self.judge(name, now) } else { None }
            }
            OutlierState::Out { since, until, .. } if since <= began => match failed {
                true if until <= began => Some(record.eject(&self.limits, Cause::Trial, now)),
                true => None,
                false => Some(self.readmit(name, now)),
            },
            OutlierState::Admitted { .. } | OutlierState::Out { .. } => None,
        }
    }

    /// Ejects `name`, which has just failed, if it is over a limit and not too many origins are ejected already.
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
