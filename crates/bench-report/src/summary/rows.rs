//! The common content of texts and pages: sentences, and rows of tables.

use super::{FlowsSummary, Milliseconds, PartSummary, Summary};
use crate::grid::shown;

/// The columns of [`Summary::times`].
pub(crate) const TIMES_HEADS: [&str; 9] = ["times in ms", "count", "mean", "min", "p50", "p90", "p99", "p99.9", "max"];

/// The columns of [`Summary::parts`].
pub(crate) const PARTS_HEADS: [&str; 10] =
    ["of these", "requests", "NORMAL", "failed", "success/s", "latency p50", "p99", "max", "Tr mean", "Tc mean"];

impl Summary {
    /// Sentences that complete the total: flows, unfinished requests, causes of failures.
    pub(crate) fn notes(&self) -> Vec<String> {
        let FlowsSummary { done, failed, .. } = self.flows;
        let unfinished = self.unfinished;
        let flows = format!("{done} flows completed, and {failed} failed");
        let cut =
            format!("{unfinished} more requests were in progress when the run was cancelled, and are not counted");
        let some = [(done > 0 || failed > 0).then_some(flows), (unfinished > 0).then_some(cut)];
        let causes = self.causes.iter().map(|(cause, count)| format!("{count} x {}", shown(cause)));
        some.into_iter().flatten().chain(causes).collect()
    }

    /// A row for each time that was measured. A time that is part of the one above it is indented.
    pub(crate) fn times(&self) -> Vec<[String; TIMES_HEADS.len()]> {
        let (total, connections) = (&self.total, &self.total.connections);
        let rows = [
            ("latency", &total.latency_ms),
            ("  wait for the first byte", &total.wait_ms),
            ("  transfer", &total.transfer_ms),
            ("requests that failed", &total.failed_ms),
            ("connect", &connections.connect_ms),
            ("TLS handshake", &connections.handshake_ms),
            ("Tr, connect to request", &total.tr_ms),
            ("Tc, connect to close", &total.tc_ms),
            ("connections that failed", &connections.failed_ms),
            ("whole flow", &self.flows.duration_ms),
            ("began late by", &self.schedule_error_ms),
        ];
        rows.into_iter().filter(|(_, times)| times.count > 0).map(|(name, times)| time(name, times)).collect()
    }

    /// A row for each address family that occurred. Rows for handshakes and for classes if several occurred.
    pub(crate) fn parts(&self) -> Vec<[String; PARTS_HEADS.len()]> {
        let by_tls = &self.by_tls;
        let families = occurred([("IPv4", &self.by_family.ipv4), ("IPv6", &self.by_family.ipv6)]);
        let handshakes =
            occurred([("no TLS", &by_tls.none), ("TLS, full", &by_tls.full), ("TLS, resumed", &by_tls.resumed)]);
        let classes = occurred(self.by_class.iter().map(|(name, part)| (name.as_str(), part)));
        let several = [handshakes, classes].into_iter().filter(|parts| parts.len() > 1).flatten();
        families.into_iter().chain(several).map(|(name, figures)| part(name, figures)).collect()
    }
}

fn occurred<'a>(parts: impl IntoIterator<Item = (&'a str, &'a PartSummary)>) -> Vec<(&'a str, &'a PartSummary)> {
    parts.into_iter().filter(|(_, part)| part.requests > 0 || part.connections.opened > 0).collect()
}

fn time(name: &str, times: &Milliseconds) -> [String; TIMES_HEADS.len()] {
    let [mean, min, p50, p90, p99, p999, max] =
        [times.mean, times.min, times.p50, times.p90, times.p99, times.p999, times.max].map(|ms| format!("{ms:.3}"));
    [name.to_owned(), times.count.to_string(), mean, min, p50, p90, p99, p999, max]
}

fn part(name: &str, part: &PartSummary) -> [String; PARTS_HEADS.len()] {
    let time = |times: &Milliseconds, ms: f64| if times.count > 0 { format!("{ms:.3}") } else { "-".to_owned() };
    let (latency, tr, tc) = (&part.latency_ms, &part.tr_ms, &part.tc_ms);
    [
        name.to_owned(),
        part.requests.to_string(),
        part.endings.normal.to_string(),
        part.failed.to_string(),
        format!("{:.1}", part.requests_per_s),
        time(latency, latency.p50),
        time(latency, latency.p99),
        time(latency, latency.max),
        time(tr, tr.mean),
        time(tc, tc.mean),
    ]
}
