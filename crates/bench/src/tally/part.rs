//! The sums over requests and connections that have something in common.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::{Endings, Times};
use crate::ending::EndingKind;
use crate::sample::{ConnectionSample, HandshakeKind, RequestSample, TlsSeen};

/// Requests, and the connections that belong to them.
///
/// A request that fails must neither flatter the times of those that succeed (a refused one takes no time at all) nor hide: `latency`
/// has the requests that got a whole response, and `failed` all others. Together they have every request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// How many requests ended.
    pub requests: u64,
    /// How they ended; as many as `requests`.
    pub endings: Endings,
    /// The statuses of responses that came, whole or not.
    pub statuses: BTreeMap<u16, u64>,
    /// How many of those that ended NORMAL have a status that is none of success.
    pub error_statuses: u64,
    /// Bytes of bodies that came, whole or not.
    pub body_bytes: u64,
    /// From when it was due to the last byte, of requests with a whole response: NORMAL and MISMATCH.
    pub latency: Times,
    /// From when it was due to its end, of all other requests.
    pub failed: Times,
    /// From the request's last byte written to the response's first byte read, wherever one came.
    pub wait: Times,
    /// From the response's first byte to its last, of requests with a whole response.
    pub transfer: Times,
    /// The connections.
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

    /// How many requests failed: those that ended otherwise than NORMAL, or with a status that is none of success.
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
/// The time of a step counts as soon as the step was done, however the connection ended later; `tc`, the time of the whole, only
/// counts where the connection ended NORMAL, and otherwise goes into `failed`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Connections {
    /// How many there were, those included that could not be connected.
    pub opened: u64,
    /// How they ended; as many as `opened`.
    pub endings: Endings,
    /// Bytes of HTTP read, heads included.
    pub bytes_read: u64,
    /// Bytes of HTTP written, heads included.
    pub bytes_written: u64,
    /// From `connect` to TCP connected.
    pub connect: Times,
    /// From TCP connected to the TLS handshake done.
    pub handshake: Times,
    /// From there (plain: from TCP connected) to the first request written.
    pub write: Times,
    /// The paper's Tr: from `connect` to the first request written.
    pub tr: Times,
    /// The paper's Tc: from `connect` to `close`.
    pub tc: Times,
    /// From `connect` to the end, of connections that ended otherwise than NORMAL.
    pub failed: Times,
    /// What TLS handshakes agreed on.
    pub tls: HashMap<Arc<TlsSeen>, u64>,
}

impl Connections {
    /// How many TLS handshakes of a kind were done.
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

/// Whether a whole response came: only then its time counts as latency.
pub(super) fn is_whole(sample: &RequestSample) -> bool {
    matches!(sample.ending.kind, EndingKind::Normal | EndingKind::Mismatch)
}

fn between(from: Option<Duration>, to: Option<Duration>) -> Option<Duration> {
    Some(to?.saturating_sub(from?))
}
