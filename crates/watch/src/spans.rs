//! Spans: the states of servers, with their begin and end.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Serialize;
use watari_endings::{Change, Ending, Evidence, Reason, ServerState, Shares, States, Tally};
use watari_packets::Timestamp;

use crate::rows::seconds;

/// Collects spans. Pass it all input of [`States`], and the changes that it returns.
#[derive(Debug, Default)]
pub struct Spans {
    current: BTreeMap<SocketAddr, Current>,
}

/// The present span of a server.
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
    pub server: SocketAddr,
    pub from: Timestamp,
    pub to: Timestamp,
    pub state: ServerState,
    /// `None` if too little happened to decide the state.
    pub evidence: Option<Evidence>,
    /// The counts of the span.
    pub total: Tally,
}

impl Spans {
    /// Adds counts of a server.
    pub fn add(&mut self, server: SocketAddr, at: Timestamp, tally: &Tally) {
        let current = self.current.entry(server).or_insert_with(|| Current::new(at));
        // Late events of an earlier time do not extend a later span.
        if current.evidence.is_none() {
            current.from = current.from.min(at);
        }
        current.total += *tally;
    }

    /// Takes a change; `states` has the counts since then. Returns the span that it ends.
    pub fn change(&mut self, change: &Change, states: &States) -> Option<Span> {
        let (server, verdict) = (change.server, &change.verdict);
        let current = self.current.entry(server).or_insert_with(|| Current::new(verdict.since));
        if current.evidence.is_none() {
            // The first known state of the server.
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

    /// Drops the present span of a server.
    pub fn forget(&mut self, server: &SocketAddr) {
        self.current.remove(server);
    }

    /// Ends all present spans at the time `at`.
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

/// The counts since a time within the spans of the profile.
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

/// A span as JSON. Times are in seconds, times of day since the Unix epoch. Shares are 0 to 1.
#[derive(Debug, Serialize)]
pub struct SpanRow {
    server: SocketAddr,
    from: f64,
    to: f64,
    state: &'static str,
    /// Of the connections that ended in it.
    shares: Option<SharesRow>,
    evidence: Option<EvidenceRow>,
    endings: BTreeMap<&'static str, u32>,
}

/// X, Y and Z as JSON.
#[derive(Debug, Serialize)]
pub struct SharesRow {
    s_normal: f64,
    client_abort: f64,
    timeout: f64,
}

/// The evidence of a state as JSON.
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

/// The endings with a count above 0.
pub(crate) fn endings(tally: &Tally) -> BTreeMap<&'static str, u32> {
    let counted = Ending::ALL.into_iter().map(|ending| (ending.as_str(), tally.ending(ending)));
    counted.filter(|(_, count)| *count > 0).collect()
}

/// The reason of a span as a sentence.
pub fn because(evidence: &Evidence) -> String {
    let Evidence { reason, value, limit, span, .. } = evidence;
    let what = match reason {
        Reason::NoClients => return "no client sent a request".to_owned(),
        Reason::WithinLimits => return "all shares were within their limits".to_owned(),
        Reason::Aborts => "of ended connections were cut off by clients",
        Reason::Timeouts => "of ended connections timed out",
        Reason::AbortsAndTimeouts => "of ended connections were cut off by clients or timed out",
        Reason::Failures => "of ended connections were cut off by the server",
        Reason::Unanswered => "of attempts and requests got no answer",
    };
    format!("{:.1} % {what}, limit {:.1} %, in {} s", value * 100.0, limit * 100.0, span.as_secs())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// At the end of a capture, open connections are reported with the time of their last packet.
    #[test]
    fn late_reports_do_not_make_spans_overlap() {
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
