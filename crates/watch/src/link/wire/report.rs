//! The encoding of reports.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use watari_endings::{Counts, Ending, Histogram, Tally};
use watari_packets::{Other, Timestamp};

use crate::analysis::FrameCounts;
use crate::report::{Health, Report};

/// The most tallies in a message. A report with more is sent in parts.
pub const TALLIES_MAX: usize = 1024;
/// The largest accepted value of a sensor's counters, so that sums of them cannot overflow.
const COUNT_MAX: u64 = 1 << 48;

/// A report in the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireReport {
    part: u8,
    at_ns: u64,
    health: WireHealth,
    tallies: Vec<WireTally>,
}

/// A received report has more than [`TALLIES_MAX`] tallies. The value is their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a report of {0} tallies is too long")]
pub struct BadReport(pub usize);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct WireHealth {
    segments: u64,
    others: [u64; Other::ALL.len()],
    evicted: u64,
    untracked: u64,
    stray: u64,
    dropped: u64,
    dropped_by_interface: u64,
    uncounted: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct WireTally {
    server: SocketAddr,
    at_s: u64,
    opened: u32,
    endings: [u32; Ending::ALL.len()],
    evicted: u32,
    s_normal: u32,
    client_abort: u32,
    timeout: u32,
    failed: u32,
    answered: u32,
    unanswered: u32,
    unanswered_wait_s: u32,
    responses: [u32; Histogram::BUCKETS],
    response_us: u64,
    response_max_us: u32,
    tls_full: u32,
    tls_resumed: u32,
    tls_handshakes: u32,
    tls_handshake_us: u64,
    bytes_to_client: u64,
}

impl WireReport {
    /// A report of the thread `part` up to the time `at`, with some of its tallies.
    pub fn of(part: u8, at: Timestamp, health: &Health, tallies: &[(SocketAddr, u64, Tally)]) -> Self {
        let tallies = tallies.iter().map(|(server, at_s, tally)| WireTally::of(*server, *at_s, tally)).collect();
        Self { part, at_ns: at.0, health: WireHealth::of(health), tallies }
    }

    /// The number of the sensor's thread.
    pub const fn part(&self) -> u8 {
        self.part
    }

    /// The report, with values that can be added to others.
    pub fn into_report(self) -> Result<Report, BadReport> {
        if self.tallies.len() > TALLIES_MAX {
            return Err(BadReport(self.tallies.len()));
        }
        Ok(Report {
            at: Timestamp(self.at_ns),
            tallies: self.tallies.into_iter().map(WireTally::into_tally).collect(),
            health: self.health.into_health(),
        })
    }
}

impl WireHealth {
    fn of(health: &Health) -> Self {
        let Health { frames, counts, dropped, dropped_by_interface, uncounted } = *health;
        let FrameCounts { segments, others } = frames;
        let Counts { evicted, untracked, stray } = counts;
        Self { segments, others, evicted, untracked, stray, dropped, dropped_by_interface, uncounted }
    }

    fn into_health(self) -> Health {
        let count = |count: u64| count.min(COUNT_MAX);
        Health {
            frames: FrameCounts { segments: count(self.segments), others: self.others.map(count) },
            counts: Counts { evicted: count(self.evicted), untracked: count(self.untracked), stray: count(self.stray) },
            dropped: count(self.dropped),
            dropped_by_interface: count(self.dropped_by_interface),
            uncounted: count(self.uncounted),
        }
    }
}

impl WireTally {
    /// A new field of tallies has to be added here, with a new version of the protocol.
    fn of(server: SocketAddr, at_s: u64, tally: &Tally) -> Self {
        let Tally { opened, endings, evicted, s_normal, client_abort, timeout, failed, .. } = *tally;
        let Tally { answered, unanswered, unanswered_wait_s, responses, response_us, response_max_us, .. } = *tally;
        let Tally { tls_full, tls_resumed, tls_handshakes, tls_handshake_us, bytes_to_client, .. } = *tally;
        Self {
            server,
            at_s,
            opened,
            endings,
            evicted,
            s_normal,
            client_abort,
            timeout,
            failed,
            answered,
            unanswered,
            unanswered_wait_s,
            responses: responses.0,
            response_us,
            response_max_us,
            tls_full,
            tls_resumed,
            tls_handshakes,
            tls_handshake_us,
            bytes_to_client,
        }
    }

    /// Counts may have any value: sums of tallies wrap around.
    fn into_tally(self) -> (SocketAddr, u64, Tally) {
        let tally = Tally {
            opened: self.opened,
            endings: self.endings,
            evicted: self.evicted,
            s_normal: self.s_normal,
            client_abort: self.client_abort,
            timeout: self.timeout,
            failed: self.failed,
            answered: self.answered,
            unanswered: self.unanswered,
            unanswered_wait_s: self.unanswered_wait_s,
            responses: Histogram(self.responses),
            response_us: self.response_us,
            response_max_us: self.response_max_us,
            tls_full: self.tls_full,
            tls_resumed: self.tls_resumed,
            tls_handshakes: self.tls_handshakes,
            tls_handshake_us: self.tls_handshake_us,
            bytes_to_client: self.bytes_to_client,
        };
        (self.server, self.at_s, tally)
    }
}
