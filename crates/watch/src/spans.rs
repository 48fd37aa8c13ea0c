//! What servers were in, from when to when.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Serialize;
use watari_endings::{Change, Ending, Evidence, Reason, ServerState, Shares, States, Tally};
use watari_packets::Timestamp;

use crate::rows::seconds;

/// Collects spans of time. Give it all that [`States`] gets, and what that says.
#[derive(Debug, Default)]
pub struct Spans {
    current: BTreeMap<SocketAddr, Current>,
}

/// The span that a server is in.
#[derive(Debug)]
struct Current {
    from: Timestamp,
    state: ServerState,
    evidence: Option<Evidence>,
    total: Tally,
}

/// A span of time in which a server was in one state.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Which server.
    pub server: SocketAddr,
    /// When it began.
    pub from: Timestamp,
    /// When it ended.
    pub to: Timestamp,
    /// What it was in.
    pub state: ServerState,
    /// Why; `None` where too little happened to say.
    pub evidence: Option<Evidence>,
    /// What happened in it.
    pub total: Tally,
}

impl Spans {
    /// Something happened at a server.
    pub fn add(&mut self, server: SocketAddr, at: Timestamp, tally: &Tally) {
        let current = self.current.entry(server).or_insert_with(|| Current::new(at));
        // What is said late of a time before does not make a later span longer.
        if current.evidence.is_none() {
            current.from = current.from.min(at);
        }
        current.total += *tally;
    }

    /// A server is in another state; `states` says what happened since. Returns the span that this ends.
    pub fn change(&mut self, change: &Change, states: &States) -> Option<Span> {
        let (server, verdict) = (change.server, &change.verdict);
        let current = self.current.entry(server).or_insert_with(|| Current::new(verdict.since));
        if current.evidence.is_none() {
            // The first that is known of it.
            (current.state, current.evidence) = (verdict.state, Some(verdict.evidence));
            return None;
        }
        let since = tally_since(server, verdict.since, states);
        let next =
            Current { from: verdict.since, state: verdict.state, evidence: Some(verdict.evidence), total: since };
        let mut ended = std::mem::replace(current, next);
        ended.total -= since;
        Some(ended.span(server, verdict.since))
    }

    /// Nothing is to be said of a server any more.
    pub fn forget(&mut self, server: &SocketAddr) {
        self.current.remove(server);
    }

    /// Nothing more happens: the spans that servers are in end `at` that time.
    pub fn finish(self, at: Timestamp, states: &States) -> Vec<Span> {
        let span = |(server, mut current): (SocketAddr, Current)| {
            if current.evidence.is_none()
                && let Some((state, evidence)) = states.server(&server).and_then(|it| it.seems(states.profile()))
            {
                (current.state, current.evidence) = (state, Some(evidence));
            }
            let to = at.max(current.from);
            current.span(server, to)
        };
        self.current.into_iter().map(span).collect()
    }
}

/// What has happened since a time, which was not long ago.
fn tally_since(server: SocketAddr, since: Timestamp, states: &States) -> Tally {
    let since_s = since.0 / 1_000_000_000;
    let mut total = Tally::default();
    if let Some(server) = states.server(&server) {
        for (_, tally) in server.window().seconds().filter(|(at_s, _)| *at_s >= since_s) {
            total += *tally;
        }
    }
    total
}

impl Current {
    fn new(from: Timestamp) -> Self {
        Self { from, state: ServerState::Idle, evidence: None, total: Tally::default() }
    }

    fn span(self, server: SocketAddr, to: Timestamp) -> Span {
        Span { server, from: self.from, to, state: self.state, evidence: self.evidence, total: self.total }
    }
}

/// A span, as JSON has it. Times are in seconds, those of a day since the Unix epoch; shares are 0 to 1.
#[derive(Debug, Serialize)]
pub struct SpanRow {
    server: SocketAddr,
    from: f64,
    to: f64,
    state: &'static str,
    /// Of what ended in it.
    shares: Option<SharesRow>,
    evidence: Option<EvidenceRow>,
    endings: BTreeMap<&'static str, u32>,
}

/// X, Y and Z, as JSON has them.
#[derive(Debug, Serialize)]
pub struct SharesRow {
    s_normal: f64,
    client_abort: f64,
    timeout: f64,
}

/// What a state was concluded from, as JSON has it.
#[derive(Debug, Serialize)]
pub struct EvidenceRow {
    reason: &'static str,
    value: f64,
    limit: f64,
    span_s: u64,
}

impl From<&Span> for SpanRow {
    fn from(span: &Span) -> Self {
        Self {
            server: span.server,
            from: seconds(span.from),
            to: seconds(span.to),
            state: span.state.as_str(),
            shares: span.total.shares().map(SharesRow::from),
            evidence: span.evidence.as_ref().map(EvidenceRow::from),
            endings: endings(&span.total),
        }
    }
}

impl From<Shares> for SharesRow {
    fn from(shares: Shares) -> Self {
        Self { s_normal: shares.s_normal, client_abort: shares.client_abort, timeout: shares.timeout }
    }
}

impl From<&Evidence> for EvidenceRow {
    fn from(evidence: &Evidence) -> Self {
        let Evidence { reason, value, limit, span, .. } = *evidence;
        Self { reason: reason.as_str(), value, limit, span_s: span.as_secs() }
    }
}

/// Those of which there were any.
pub(crate) fn endings(tally: &Tally) -> BTreeMap<&'static str, u32> {
    let counted = Ending::ALL.into_iter().map(|ending| (ending.as_str(), tally.ending(ending)));
    counted.filter(|(_, count)| *count > 0).collect()
}

/// A span's reason as a sentence for people.
pub fn because(evidence: &Evidence) -> String {
    let Evidence { reason, value, limit, span, .. } = evidence;
    let what = match reason {
        Reason::NoClients => return "nobody asked it for anything".to_owned(),
        Reason::WithinLimits => return "all shares were within their limits".to_owned(),
        Reason::Aborts => "of what ended was cut off by clients",
        Reason::Timeouts => "of what ended was out of time",
        Reason::AbortsAndTimeouts => "of what ended was cut off by clients or out of time",
        Reason::Failures => "of what ended was cut off by the server",
        Reason::Unanswered => "of what asked got no answer",
    };
    format!("{:.1} % {what}, over {:.1} %, in {} s", value * 100.0, limit * 100.0, span.as_secs())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A connection that nobody ended is told of at the end of a capture, and is dated to its last packet.
    #[test]
    fn what_is_told_late_does_not_make_spans_overlap() {
        let server = SocketAddr::from(([10, 0, 0, 1], 80));
        let tally = Tally::default();
        let evidence = Evidence {
            reason: Reason::NoClients,
            value: 0.0,
            limit: 0.0,
            span: Duration::from_mins(1),
            shares: None,
            tally,
        };
        for (evidence, from) in [(Some(evidence), 10), (None, 5)] {
            let mut spans = Spans::default();
            spans.current.insert(server, Current { evidence, ..Current::new(Timestamp(10)) });
            spans.add(server, Timestamp(5), &tally);
            assert_eq!(spans.current[&server].from, Timestamp(from));
        }
    }
}
