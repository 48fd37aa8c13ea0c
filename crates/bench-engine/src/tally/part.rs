//! Sums over requests and connections with the same class, address family and handshake.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::endings::Endings;
use super::times::Times;
use crate::ending::EndingKind;
use crate::sample::{ConnectionSample, HandshakeKind, RequestSample, TlsSeen};

/// Requests, and the connections that belong to them.
///
/// Failed requests must not improve the times of successful ones (a refused request takes almost no time), and must not
/// be hidden. `latency` therefore has the requests with a complete response, and `failed` all others. Together they
/// have every request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// Requests that ended.
    pub requests: u64,
    /// The endings of the requests. Their total is `requests`.
    pub endings: Endings,
    /// The statuses of the responses, complete or not.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests with the ending NORMAL and a status that is not a success.
    pub error_statuses: u64,
    /// Bytes of response bodies, complete or not.
    pub body_bytes: u64,
    /// The time from when the request was due to the last byte, of requests with a complete response: NORMAL and
    /// MISMATCH.
    pub latency: Times,
    /// The time from when the request was due to its end, of all other requests.
    pub failed: Times,
    /// The time from the request's last byte written to the response's first byte read, of every request with a first
    /// byte.
    pub wait: Times,
    /// The time from the response's first byte to its last, of requests with a complete response.
    pub transfer: Times,
    pub connections: Connections,
}

impl Part {
    pub(super) fn request(&mut self, sample: &RequestSample) {
        self.requests += 1;
        self.endings.add(sample.ending);
        self.error_statuses += u64::from(sample.error_status);
        self.body_bytes += sample.body_bytes;
        if let Some(status) = sample.status {
            *self.statuses.entry(status).or_default() += 1;
        }
        self.wait.record_if(between(sample.written, sample.first_byte));
        if is_whole(sample) {
            self.latency.record(sample.latency());
            self.transfer.record_if(between(sample.first_byte, Some(sample.ended)));
        } else {
            self.failed.record(sample.latency());
        }
    }

    /// Requests that failed: their ending is not NORMAL, or their status is not a success.
    pub fn failed(&self) -> u64 {
        self.endings.failed() + self.error_statuses
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.endings.merge(&other.endings);
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self.error_statuses += other.error_statuses;
        self.body_bytes += other.body_bytes;
        self.latency.merge(&other.latency);
        self.failed.merge(&other.failed);
        self.wait.merge(&other.wait);
        self.transfer.merge(&other.transfer);
        self.connections.merge(&other.connections);
    }
}

/// Connections.
///
/// The time of a step counts if the step completed, however the connection ended later. `tc`, the time of the whole
/// connection, counts only for the ending NORMAL. For other endings this time is in `failed`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Connections {
    /// Connections, including those that could not be established.
    pub opened: u64,
    /// The endings of the connections. Their total is `opened`.
    pub endings: Endings,
    /// Bytes of HTTP read, including heads.
    pub bytes_read: u64,
    /// Bytes of HTTP written, including heads.
    pub bytes_written: u64,
    /// The time from `connect` to the TCP connection.
    pub connect: Times,
    /// The time from the TCP connection to the end of the TLS handshake.
    pub handshake: Times,
    /// The time from then (without TLS: from the TCP connection) to the last byte of the first request.
    pub write: Times,
    /// The paper's Tr: from `connect` to the last byte of the first request.
    pub tr: Times,
    /// The paper's Tc: from `connect` to `close`.
    pub tc: Times,
    /// The time from `connect` to the end, of connections whose ending is not NORMAL.
    pub failed: Times,
    /// The results of TLS handshakes, with their counts.
    pub tls: HashMap<Arc<TlsSeen>, u64>,
}

impl Connections {
    /// Number of completed TLS handshakes of a kind.
    pub fn handshakes(&self, kind: HandshakeKind) -> u64 {
        self.tls.iter().filter(|(seen, _)| seen.kind == kind).map(|(_, count)| count).sum()
    }

    pub(super) fn add(&mut self, sample: &ConnectionSample) {
        self.opened += 1;
        self.endings.add(sample.ending);
        self.bytes_read += sample.bytes_read;
        self.bytes_written += sample.bytes_written;
        self.connect.record_if(between(Some(sample.opened), sample.connected));
        self.handshake.record_if(between(sample.connected, sample.secured));
        self.write.record_if(between(sample.secured.or(sample.connected), sample.written));
        self.tr.record_if(sample.tr());
        let whole = if sample.ending.is_normal() { &mut self.tc } else { &mut self.failed };
        whole.record(sample.tc());
        if let Some(seen) = &sample.tls {
            *self.tls.entry(Arc::clone(seen)).or_default() += 1;
        }
    }

    fn merge(&mut self, other: &Self) {
        self.opened += other.opened;
        self.endings.merge(&other.endings);
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.connect.merge(&other.connect);
        self.handshake.merge(&other.handshake);
        self.write.merge(&other.write);
        self.tr.merge(&other.tr);
        self.tc.merge(&other.tc);
        self.failed.merge(&other.failed);
        for (seen, count) in &other.tls {
            *self.tls.entry(Arc::clone(seen)).or_default() += count;
        }
    }
}

/// Whether the response is complete. Only then its time counts as latency.
pub(super) fn is_whole(sample: &RequestSample) -> bool {
    matches!(sample.ending.kind, EndingKind::Normal | EndingKind::Mismatch)
}

fn between(from: Option<Duration>, to: Option<Duration>) -> Option<Duration> {
    Some(to?.saturating_sub(from?))
}
