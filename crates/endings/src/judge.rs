//! Whether a server is normal, saturated or stopped (ANMA paper, chapter 2).
//!
//! Each state may follow each other. The first line that is true says which:
//!
//! ```text
//!  of the last stopped_span, most got nothing ─────────────────────────────────────────────▶ Stopped
//!    │ no
//!    ▼
//!  nothing happened in span; if it is idle or stopped, in stopped_span ────────────────────▶ Idle
//!    │ no
//!    ▼
//!  less than ended_min ended ───── it is idle or stopped, and answers more than it cuts off ▶ Normal
//!    │ no                                                                         └── else ─▶ as it is
//!    ▼
//!  the shares of span are over a limit; if it is idle or stopped, those of stopped_span ───▶ Saturated
//!    │ no
//!    └─────────────────────────────────────────────────────────────────────────────────────▶ Normal
//! ```
//!
//! 1. A change is reported when its condition has lasted for [`Profile::hold`]; it is dated to when that began. Stopped, if nothing was
//!    answered since, is dated to the first request without an answer.
//! 2. Stopped: of the knocks and requests of the last [`Profile::stopped_span`] more than [`Profile::unanswered`] got
//!    nothing. The paper drew no point then; so what got nothing is counted by itself. Who leaves before it has waited for long is
//!    no evidence: where nobody waits, a server that answers nothing is saturated.
//! 3. Saturated: the shares of the last [`Profile::span`] are over a limit.
//! 4. A limit that was passed is passed back only [`Profile::margin`] below it.
//! 5. Without evidence nothing changes; without clients a server is idle, and not stopped.

mod profile;

use std::time::Duration;

use watari_packets::Timestamp;

use crate::states::Lately;
use crate::window::{Shares, Tally, Window};

pub use profile::{Learner, Profile};

/// What a server is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerState {
    /// Nobody asks it for anything.
    Idle,
    /// It delivers what it is asked for.
    Normal,
    /// Requests outrun it.
    Saturated,
    /// Most requests get nothing.
    Stopped,
}

impl ServerState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Idle, Self::Normal, Self::Saturated, Self::Stopped];

    /// As logs have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Normal => "normal",
            Self::Saturated => "saturated",
            Self::Stopped => "stopped",
        }
    }
}

/// Which limit decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Nothing was asked.
    NoClients,
    /// All shares are within their limits.
    WithinLimits,
    /// Clients cut off too much.
    Aborts,
    /// Too much is out of time.
    Timeouts,
    /// Both together are too much.
    AbortsAndTimeouts,
    /// The server cuts off too much.
    Failures,
    /// Too many get nothing.
    Unanswered,
}

impl Reason {
    /// As logs have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoClients => "no_clients",
            Self::WithinLimits => "within_limits",
            Self::Aborts => "aborts",
            Self::Timeouts => "timeouts",
            Self::AbortsAndTimeouts => "aborts_and_timeouts",
            Self::Failures => "failures",
            Self::Unanswered => "unanswered",
        }
    }
}

/// A state, and what it is concluded from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    /// What the server is in.
    pub state: ServerState,
    /// Since when.
    pub since: Timestamp,
    /// When that was known.
    pub at: Timestamp,
    /// Why.
    pub evidence: Evidence,
}

/// What a state is concluded from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evidence {
    /// Which limit decided.
    pub reason: Reason,
    /// What was measured against it, and the limit; shares, 0 to 1.
    pub value: f64,
    /// See `value`.
    pub limit: f64,
    /// How much time it covers.
    pub span: Duration,
    /// X, Y and Z in that time; of a stopped server, since it stopped.
    pub shares: Option<Shares>,
    /// All that happened in it.
    pub tally: Tally,
}

/// Judges one server. Ask it once a second.
#[derive(Debug, Default)]
pub(crate) struct ServerJudge {
    verdict: Option<Verdict>,
    /// The evidence of the current state.
    evidence: Option<Evidence>,
    /// What it seems to be in instead, and since when.
    candidate: Option<(ServerState, Timestamp)>,
}

impl ServerJudge {
    /// The last verdict, if there was one.
    pub(crate) const fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// The evidence of the current state: the latest measurement that still supports it.
    pub(crate) const fn evidence(&self) -> Option<&Evidence> {
        self.evidence.as_ref()
    }

    /// What the server is in.
    pub(crate) fn state(&self) -> ServerState {
        self.verdict.map_or(ServerState::Idle, |verdict| verdict.state)
    }

    /// What it seems to be in instead has not lasted for any time.
    pub(crate) const fn set_back(&mut self) {
        self.candidate = None;
    }

    /// Looks at what happened in the last [`Profile::span`] and in the last [`Profile::stopped_span`]. Says so if the state
    /// is another.
    pub(crate) fn look(&mut self, now: Timestamp, window: &Window, profile: &Profile) -> Option<Verdict> {
        let (long, short) = (window.total(Lately::Span as usize), window.total(Lately::StoppedSpan as usize));
        let Some((state, mut evidence)) = profile.judge(self.state(), &long, &short) else {
            self.candidate = None;
            return None;
        };
        if state == self.state() {
            self.candidate = None;
            if let Some(verdict) = self.verdict {
                evidence.shares = shares(&verdict, window, Lately::StoppedSpan, evidence.shares);
                self.evidence = Some(evidence);
            }
            return None;
        }
        let since = match self.candidate {
            Some((candidate, since)) if candidate == state => since,
            _ => now,
        };
        self.candidate = Some((state, since));
        if now.since(since) < profile.hold {
            return None;
        }
        self.candidate = None;
        let since = if state == ServerState::Stopped { self.stopped_since(since, window) } else { since };
        let mut verdict = Verdict { state, since, at: now, evidence };
        verdict.evidence.shares = shares(&verdict, window, Lately::StoppedSpan, evidence.shares);
        (self.verdict, self.evidence) = (Some(verdict), Some(verdict.evidence));
        Some(verdict)
    }

    /// When the server stopped. That is before `known`, because a request counts as unanswered only after
    /// [`crate::Settings::request_patience`].
    fn stopped_since(&self, known: Timestamp, window: &Window) -> Timestamp {
        let Some(asked_s) = window.unanswered_since(known.0 / 1_000_000_000) else { return known };
        let asked = Timestamp(asked_s.saturating_mul(1_000_000_000)).min(known);
        // Not before the previous state began.
        let before = self.verdict.map(|verdict| verdict.since).filter(|before| *before <= known);
        before.map_or(asked, |before| asked.max(before))
    }
}

/// X, Y and Z: `all` of what ended lately; if the server is stopped, only what ended since then. An earlier delivery does not count for
/// a stopped server, even if its connection ended later.
pub(crate) fn shares(verdict: &Verdict, window: &Window, lately: Lately, all: Option<Shares>) -> Option<Shares> {
    if verdict.state != ServerState::Stopped {
        return all;
    }
    let mut since = window.since(lately as usize, verdict.since.0 / 1_000_000_000);
    if since.answered == 0 {
        since.s_normal = 0;
    }
    since.shares()
}
