//! The figures of a part of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use watari_bench_engine::ending::EndingKind;
use watari_bench_engine::sample::{HandshakeKind, TlsSeen};
use watari_bench_engine::tally::{Connections, Endings, Part, Times};

/// Requests, connections and their times. [`Part`] defines which of them count into which time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartSummary {
    /// Requests that ended.
    pub requests: u64,
    /// The duration of the whole run, in seconds.
    pub seconds: f64,
    /// Successful requests per second of the run: they ended NORMAL, with a success status.
    pub requests_per_s: f64,
    /// Bytes of response bodies per second of the run.
    pub bytes_per_s: f64,
    /// Bytes of response bodies.
    pub body_bytes: u64,
    /// Number of requests for each ending.
    pub endings: EndingCounts,
    /// The same by kind, phase and side.
    pub endings_at: Vec<EndingCount>,
    /// The share of requests that failed, from 0 to 1.
    pub failures: f64,
    /// Requests that failed: their ending is not NORMAL, or their status is not a success.
    pub failed: u64,
    /// Requests with the ending NORMAL and a status that is not a success.
    pub error_statuses: u64,
    /// Number of responses for each status.
    pub status: BTreeMap<String, u64>,
    /// The time from when a request was due to the last byte of its complete response.
    pub latency_ms: Milliseconds,
    /// The time from when a request was due to its end without a complete response.
    pub failed_ms: Milliseconds,
    /// The time from the last byte of the request to the first byte of the response.
    pub wait_ms: Milliseconds,
    /// The time from the first byte of the response to its last.
    pub transfer_ms: Milliseconds,
    /// The paper's Tr, of connections.
    pub tr_ms: Milliseconds,
    /// The paper's Tc, of connections.
    pub tc_ms: Milliseconds,
    pub tls: TlsSummary,
    pub connections: ConnectionsSummary,
}

impl PartSummary {
    pub(super) fn new(part: &Part, elapsed: Duration) -> Self {
        let succeeded = part.endings.of(EndingKind::Normal).saturating_sub(part.error_statuses);
        Self {
            requests: part.requests,
            seconds: elapsed.as_secs_f64(),
            requests_per_s: per_second(succeeded, elapsed),
            bytes_per_s: per_second(part.body_bytes, elapsed),
            body_bytes: part.body_bytes,
            endings: EndingCounts::new(&part.endings),
            endings_at: EndingCount::all(&part.endings),
            failures: share(part.failed(), part.requests),
            failed: part.failed(),
            error_statuses: part.error_statuses,
            status: part.statuses.iter().map(|(status, count)| (status.to_string(), *count)).collect(),
            latency_ms: Milliseconds::new(&part.latency),
            failed_ms: Milliseconds::new(&part.failed),
            wait_ms: Milliseconds::new(&part.wait),
            transfer_ms: Milliseconds::new(&part.transfer),
            tr_ms: Milliseconds::new(&part.connections.tr),
            tc_ms: Milliseconds::new(&part.connections.tc),
            tls: TlsSummary::new(&part.connections),
            connections: ConnectionsSummary::new(&part.connections),
        }
    }
}

impl PartSummary {
    /// Number of successful requests.
    pub fn succeeded(&self) -> u64 {
        self.requests.saturating_sub(self.failed)
    }
}

/// Counts by [`EndingKind`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "the fields are the kinds of `EndingKind`, which documents them")]
pub struct EndingCounts {
    pub normal: u64,
    pub reset: u64,
    pub timeout: u64,
    pub refused: u64,
    pub handshake: u64,
    pub protocol: u64,
    pub mismatch: u64,
    pub local: u64,
}

impl EndingCounts {
    fn new(endings: &Endings) -> Self {
        Self::by_kind(EndingKind::ALL.map(|kind| endings.of(kind)))
    }

    /// Takes counts in the order of [`EndingKind::ALL`].
    pub(super) fn by_kind(counts: [u64; EndingKind::ALL.len()]) -> Self {
        let [normal, reset, timeout, refused, handshake, protocol, mismatch, local] = counts;
        Self { normal, reset, timeout, refused, handshake, protocol, mismatch, local }
    }

    /// Number of endings of this kind.
    pub fn of(&self, kind: EndingKind) -> u64 {
        match kind {
            EndingKind::Normal => self.normal,
            EndingKind::Reset => self.reset,
            EndingKind::Timeout => self.timeout,
            EndingKind::Refused => self.refused,
            EndingKind::Handshake => self.handshake,
            EndingKind::Protocol => self.protocol,
            EndingKind::Mismatch => self.mismatch,
            EndingKind::Local => self.local,
        }
    }
}

/// Number of endings with one kind, phase and side, by the names of [`watari_bench_engine::ending`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of `Ending`, which documents them")]
pub struct EndingCount {
    pub kind: String,
    pub phase: String,
    pub side: String,
    pub count: u64,
}

impl EndingCount {
    fn all(endings: &Endings) -> Vec<Self> {
        let row = |(ending, count): (watari_bench_engine::ending::Ending, u64)| Self {
            kind: ending.kind.name().to_owned(),
            phase: ending.phase.name().to_owned(),
            side: ending.side.name().to_owned(),
            count,
        };
        endings.iter().map(row).collect()
    }
}

/// Statistics of times, in milliseconds. All 0 if nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub struct Milliseconds {
    pub count: u64,
    pub mean: f64,
    pub min: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Milliseconds {
    pub fn new(times: &Times) -> Self {
        let quantile = |quantile| milliseconds(times.quantile(quantile));
        Self {
            count: times.count(),
            mean: milliseconds(times.mean()),
            min: milliseconds(times.min()),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: milliseconds(times.max()),
        }
    }
}

/// Completed TLS handshakes, and their results.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsSummary {
    pub full: u64,
    /// Abbreviated handshakes.
    pub resumed: u64,
    /// By protocol version.
    pub versions: BTreeMap<String, u64>,
    /// By the IANA name of the cipher suite.
    pub suites: BTreeMap<String, u64>,
    /// By the group of the key exchange. Handshakes without one are not counted here.
    pub groups: BTreeMap<String, u64>,
    /// By the kind of the server's key.
    pub keys: BTreeMap<String, u64>,
    /// By the protocol that ALPN selected. Handshakes without ALPN are not counted here.
    pub alpn: BTreeMap<String, u64>,
}

impl TlsSummary {
    fn new(connections: &Connections) -> Self {
        let count_by = |name: fn(&TlsSeen) -> Option<&str>| {
            let mut counts = BTreeMap::new();
            for (seen, count) in &connections.tls {
                if let Some(name) = name(seen) {
                    *counts.entry(name.to_owned()).or_default() += count;
                }
            }
            counts
        };
        Self {
            full: connections.handshakes(HandshakeKind::Full),
            resumed: connections.handshakes(HandshakeKind::Resumed),
            versions: count_by(|seen| Some(seen.version)),
            suites: count_by(|seen| Some(&seen.suite)),
            groups: count_by(|seen| seen.group.as_deref()),
            keys: count_by(|seen| seen.key.as_deref()),
            alpn: count_by(|seen| seen.alpn.as_deref()),
        }
    }
}

/// Figures of connections. [`Connections`] defines which of them count into which time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConnectionsSummary {
    /// Connections, including those that could not be established.
    pub opened: u64,
    /// Number of connections for each ending.
    pub endings: EndingCounts,
    /// The same by kind, phase and side.
    pub endings_at: Vec<EndingCount>,
    /// Bytes of HTTP read, including heads.
    pub bytes_read: u64,
    /// Bytes of HTTP written, including heads.
    pub bytes_written: u64,
    /// The time to establish the TCP connection.
    pub connect_ms: Milliseconds,
    /// The time of the TLS handshake.
    pub handshake_ms: Milliseconds,
    /// The time from then to the last byte of the first request.
    pub write_ms: Milliseconds,
    /// The time from `connect` to the end, of connections whose ending is not NORMAL.
    pub failed_ms: Milliseconds,
}

impl ConnectionsSummary {
    fn new(connections: &Connections) -> Self {
        Self {
            opened: connections.opened,
            endings: EndingCounts::new(&connections.endings),
            endings_at: EndingCount::all(&connections.endings),
            bytes_read: connections.bytes_read,
            bytes_written: connections.bytes_written,
            connect_ms: Milliseconds::new(&connections.connect),
            handshake_ms: Milliseconds::new(&connections.handshake),
            write_ms: Milliseconds::new(&connections.write),
            failed_ms: Milliseconds::new(&connections.failed),
        }
    }
}

/// A time in milliseconds. 0 for `None`.
pub(super) fn milliseconds(time: Option<Duration>) -> f64 {
    time.map_or(0.0, |time| float(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)) / 1e6)
}

fn per_second(count: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() { 0.0 } else { float(count) / elapsed.as_secs_f64() }
}

fn share(count: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { float(count) / float(of) }
}

#[expect(clippy::cast_precision_loss, reason = "no run counts to 2^53")]
pub fn float(count: u64) -> f64 {
    count as f64
}
