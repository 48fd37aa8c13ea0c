//! Decides whether a server is idle, normal, saturated or stopped (ANMA paper, chapter 2).
//!
//! Each state may follow each other state. The first line that is true decides:
//!
//! ```text
//!  of the last stopped_span, most got no answer ───────────────────────────────────────────▶ Stopped
//!    │ no
//!    ▼
//!  nothing happened in span; if it is idle or stopped, in stopped_span ────────────────────▶ Idle
//!    │ no
//!    ▼
//!  less than ended_min ended ───── it is idle or stopped, and answers more than it cuts off ▶ Normal
//!    │ no                                                                  └── else ─▶ unchanged
//!    ▼
//!  the shares of span are over a limit; if it is idle or stopped, those of stopped_span ───▶ Saturated
//!    │ no
//!    └─────────────────────────────────────────────────────────────────────────────────────▶ Normal
//! ```
//!
//! 1. A change is reported when its condition has lasted for [`Profile::hold`]. It is dated to the begin of the
//!    condition. *Stopped* is dated to the first request without an answer, if the server has answered nothing since.
//! 2. Stopped: of the SYNs and requests of the last [`Profile::stopped_span`], more than the share
//!    [`Profile::unanswered`] got no answer. The paper has no data point for a server that answers nothing, so
//!    unanswered ones are counted separately. A client that leaves before its request is overdue is no evidence: if all
//!    clients do, a server that answers nothing is saturated.
//! 3. Saturated: the shares of the last [`Profile::span`] are over a limit.
//! 4. After a share exceeded a limit, it has to fall [`Profile::margin`] below it.
//! 5. Without evidence nothing changes. Without clients a server is idle, not stopped.

mod profile;
mod verdict;

use watari_packets::Timestamp;

use crate::window::{Lately, Shares, Window};

pub use profile::{Learner, Profile};
pub use verdict::{Evidence, Reason, ServerState, Verdict};

/// Judges one server. Call [`ServerJudge::look`] once a second.
#[derive(Debug, Default)]
pub(crate) struct ServerJudge {
    verdict: Option<Verdict>,
    /// The evidence of the current state.
    evidence: Option<Evidence>,
    /// The state that the latest measurements show instead, and since when.
    candidate: Option<(ServerState, Timestamp)>,
}

impl ServerJudge {
    pub(crate) const fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// The latest measurement that supports the current state.
    pub(crate) const fn evidence(&self) -> Option<&Evidence> {
        self.evidence.as_ref()
    }

    /// The current state; idle before the first verdict.
    pub(crate) fn state(&self) -> ServerState {
        self.verdict.map_or(ServerState::Idle, |verdict| verdict.state)
    }

    /// Restarts the hold time of a pending change.
    pub(crate) const fn set_back(&mut self) {
        self.candidate = None;
    }

    /// Judges the last [`Profile::span`] and the last [`Profile::stopped_span`]. Returns a verdict if the state
    /// changes.
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
    /// [`crate::Settings::request_overdue`].
    fn stopped_since(&self, known: Timestamp, window: &Window) -> Timestamp {
        let Some(asked_s) = window.unanswered_since(known.0 / 1_000_000_000) else { return known };
        let asked = Timestamp(asked_s.saturating_mul(1_000_000_000)).min(known);
        // Not before the previous state began.
        let before = self.verdict.map(|verdict| verdict.since).filter(|before| *before <= known);
        before.map_or(asked, |before| asked.max(before))
    }
}

/// X, Y and Z: `all` of what ended lately. If the server is stopped, only what ended since then. An earlier delivery
/// does not count for a stopped server, even if its connection ended later.
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
