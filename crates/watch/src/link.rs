//! Reports from sensors to a judge on another machine (ANMA paper, chapter 2), over TCP with mutual TLS.
//!
//! ```text
//!   capture threads ──▶ Reporter ──▶ Backlog ──▶ Cursor ═══ reports ═══▶ Books ──▶ Board
//!                                     ▲                                  │
//!                                     └──────────── taken ═══════════════┘
//! ```
//!
//! A [`Reporter`] numbers its reports from 1, and stores them until they are too old or too many. A [`Judge`]
//! acknowledges reports by the last number that it has taken. On each new connection it first sends that number, so the
//! sensor sends again what was sent and not taken. A new judge has taken nothing, and gets all stored reports: the past
//! for its page.
//!
//! # Invariants
//!
//! 1. A judge takes each report of a run of a sensor at most once, in the order of their numbers: it takes only numbers
//!    above the last one taken. It remembers the last [`books::RUNS_MAX`] runs of each name.
//! 2. Each tally is taken, or counted as lost. Each report has the number of tallies before it, so the later reports
//!    show what a full backlog has dropped. When the last report is taken, the tallies that judges have taken and those
//!    that are lost sum up to those reported. (A judge may end before it acknowledges a report that it took. Then that
//!    report's tallies are taken by the next judge, or lost.)
//! 3. A sensor reports for the node that its certificate names, and for no other.
//! 4. Memory is bounded on both sides, for any behavior of the peer. A backlog is bounded by its [`Limits`]. A judge
//!    stores one message for each connection, and its board (of [`SENSORS_MAX`](crate::board::SENSORS_MAX) sensors,
//!    each with [`SERVERS_MAX`](crate::board::SERVERS_MAX) servers: 128 octets for each second of the profile's span).
//!    Each side waits for a slow peer, and closes the connection after [`SILENCE_MAX`](watari_link::SILENCE_MAX).
//!
//! # Time
//!
//! Reports have the time of the sensor's clock, which is not corrected. The link measures its offset to the judge's
//! clock with an error of at most half a round trip, and displays it. The judge refuses and counts impossible seconds
//! ([`AHEAD_MAX_S`](crate::board::AHEAD_MAX_S), [`judge::BEHIND_MAX_S`]).
//!
//! Only reports advance a sensor's time. Without reports, the states of its servers are unknown, and stay as they were.
//! So capture threads report every second, even without events. Heartbeats of the link show that the peer is alive, and
//! nothing about servers. The board waits up to ten seconds for the slowest thread of a sensor. After that it displays
//! the thread as hanging.
//!
//! Late reports are judged as they would have been in time: time advances report by report. If a server stopped and
//! recovered while the judge was away, its past has both changes, with their times. Their notices are late;
//! [`Verdict::at`](watari_endings::Verdict::at) shows by how much.

mod backlog;
pub mod books;
mod clock;
pub mod judge;
mod listen;
mod metrics;
mod reporter;
mod serve;
mod session;
mod shared;
pub mod wire;

pub use backlog::{Backlog, Cursor, FalseTaking, Limits};
pub use clock::Clock;
pub use judge::{Judge, JudgeCounts};
pub use listen::{ListenError, Listening};
pub use metrics::{JudgeMetrics, ReporterMetrics};
pub use reporter::{Backoff, Options, Reporter, StartError};
pub use session::LinkError;
pub use shared::ReporterCounts;

#[cfg(test)]
mod tests;
