//! Limits between the states of servers. They depend on the site.

use std::time::Duration;

use crate::judge::verdict::{Evidence, Reason, ServerState};
use crate::window::Tally;

/// Limits between the states of servers. Shares are 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Profile {
    /// The time that the shares cover. (The paper: 20 minutes.)
    pub span: Duration,
    /// Saturated above this share of client aborts.
    pub aborts: Option<f64>,
    /// Saturated above this share of timeouts.
    pub timeouts: Option<f64>,
    /// Saturated above this share of both together.
    pub aborts_and_timeouts: Option<f64>,
    /// Saturated above this share of failures in all that ended. (The paper's site was below 0.001.)
    pub failures: Option<f64>,
    /// Stopped above this share of SYNs and requests without an answer.
    pub unanswered: f64,
    /// The time that `unanswered` covers.
    pub stopped_span: Duration,
    /// How far below an exceeded limit a share has to fall.
    pub margin: f64,
    /// How long a change has to last.
    pub hold: Duration,
    /// The least number of connections that have to end before their shares count.
    pub ended_min: u32,
    /// The least number of unanswered SYNs and requests that count.
    pub unanswered_min: u32,
}

impl Profile {
    /// The paper's lab: normal up to 25 % of aborts and timeouts together.
    pub const fn lab() -> Self {
        Self {
            span: Duration::from_mins(1),
            aborts: None,
            timeouts: None,
            aborts_and_timeouts: Some(0.25),
            failures: Some(0.1),
            unanswered: 0.5,
            stopped_span: Duration::from_secs(10),
            margin: 0.05,
            hold: Duration::from_secs(2),
            ended_min: 10,
            unanswered_min: 3,
        }
    }

    /// The paper's site: normal up to 40 % of aborts and 10 % of timeouts, over 20 minutes.
    pub const fn site() -> Self {
        Self {
            span: Duration::from_mins(20),
            aborts: Some(0.4),
            timeouts: Some(0.1),
            aborts_and_timeouts: None,
            stopped_span: Duration::from_secs(30),
            hold: Duration::from_secs(5),
            ..Self::lab()
        }
    }

    /// The state that follows `state` by these counts. `None` if too little happened.
    pub(crate) fn judge(&self, state: ServerState, long: &Tally, short: &Tally) -> Option<(ServerState, Evidence)> {
        if let Some(evidence) = self.finds_stopped(state, short) {
            return Some((ServerState::Stopped, evidence));
        }
        let is_quiet = |tally: &Tally| {
            [tally.opened, tally.ended(), tally.failed, tally.answered, tally.unanswered]
                .iter()
                .all(|count| *count == 0)
        };
        // Connections that ended before the server was stopped or idle are no evidence of its state now.
        let is_new = matches!(state, ServerState::Idle | ServerState::Stopped);
        let (tally, span) = if is_new { (short, self.stopped_span) } else { (long, self.span) };
        if is_quiet(tally) {
            return Some((ServerState::Idle, evidence(Reason::NoClients, 0.0, 0.0, span, tally)));
        }
        if tally.ended().saturating_add(tally.failed) < self.ended_min {
            let is_news = is_new && tally.answered > tally.failed;
            return is_news.then(|| (ServerState::Normal, evidence(Reason::WithinLimits, 0.0, 0.0, span, tally)));
        }
        Some(match self.finds_saturated(state, tally, span) {
            Some(evidence) => (ServerState::Saturated, evidence),
            None => (ServerState::Normal, evidence(Reason::WithinLimits, 0.0, 0.0, span, tally)),
        })
    }

    fn finds_stopped(&self, state: ServerState, short: &Tally) -> Option<Evidence> {
        let is_stopped = state == ServerState::Stopped;
        let limit = if is_stopped { self.unanswered - self.margin } else { self.unanswered };
        let least = if is_stopped { 1 } else { self.unanswered_min };
        let value = short.unanswered_share().filter(|share| *share > limit && short.unanswered >= least)?;
        Some(evidence(Reason::Unanswered, value, limit, self.stopped_span, short))
    }

    fn finds_saturated(&self, state: ServerState, tally: &Tally, span: Duration) -> Option<Evidence> {
        let shares = tally.shares().unwrap_or_default();
        let failures = f64::from(tally.failed) / f64::from(tally.ended().saturating_add(tally.failed).max(1));
        let together = shares.client_abort + shares.timeout;
        let margin = if state == ServerState::Saturated { self.margin } else { 0.0 };
        let limits = [
            (Reason::Timeouts, shares.timeout, self.timeouts),
            (Reason::Aborts, shares.client_abort, self.aborts),
            (Reason::AbortsAndTimeouts, together, self.aborts_and_timeouts),
            (Reason::Failures, failures, self.failures),
        ];
        let over = |(reason, value, limit): (Reason, f64, Option<f64>)| {
            let limit = limit? - margin;
            (value > limit).then(|| evidence(reason, value, limit, span, tally))
        };
        limits.into_iter().find_map(over)
    }
}

fn evidence(reason: Reason, value: f64, limit: f64, span: Duration, tally: &Tally) -> Evidence {
    Evidence { reason, value, limit, span, shares: tally.shares(), tally: *tally }
}

/// Learns limits from a time in which a server was normal, block by block.
///
/// The limit of a share is the mean of the blocks plus three standard deviations, and at least 5 points above the mean:
/// one abort does not saturate a server whose shares never vary. Blocks with fewer than [`Profile::ended_min`]
/// connections are left out. Three blocks are needed.
#[derive(Debug, Default)]
pub struct Learner {
    aborts: Moments,
    timeouts: Moments,
    failures: Moments,
}

/// Count, sum and sum of squares.
#[derive(Debug, Default)]
struct Moments(f64, f64, f64);

const BLOCKS_MIN: f64 = 3.0;
/// The least distance of a limit from the mean.
const ABOVE_MIN: f64 = 0.05;
/// The highest limit that is set. Above it no server would ever be saturated.
const LIMIT_MAX: f64 = 0.95;

impl Learner {
    /// Adds the counts of a block of time. A block of a minute works well.
    pub fn add(&mut self, block: &Tally, ended_min: u32) {
        if block.ended().saturating_add(block.failed) < ended_min.max(1) {
            return;
        }
        let shares = block.shares().unwrap_or_default();
        self.aborts.add(shares.client_abort);
        self.timeouts.add(shares.timeout);
        self.failures.add(f64::from(block.failed) / f64::from(block.ended().saturating_add(block.failed)));
    }

    /// `base` with the learned limits. `None` if there were too few blocks.
    pub fn profile(&self, base: Profile) -> Option<Profile> {
        Some(Profile {
            aborts: Some(self.aborts.limit()?),
            timeouts: Some(self.timeouts.limit()?),
            aborts_and_timeouts: None,
            failures: Some(self.failures.limit()?),
            ..base
        })
    }
}

impl Moments {
    fn add(&mut self, share: f64) {
        self.0 += 1.0;
        self.1 += share;
        self.2 += share * share;
    }

    fn limit(&self) -> Option<f64> {
        let Self(count, sum, squares) = *self;
        if count < BLOCKS_MIN {
            return None;
        }
        let mean = sum / count;
        let deviation = (squares / count - mean * mean).max(0.0).sqrt();
        Some((mean + (3.0 * deviation).max(ABOVE_MIN)).min(LIMIT_MAX))
    }
}
