//! Who listens may be another machine than who judges (ANMA paper, chapter 2): sensors tell a judge, over TCP with mutual TLS.
//!
//! ```text
//!   capture threads ──▶ Reporter ──▶ Backlog ──▶ Cursor ═══ reports ═══▶ Books ──▶ Board
//!                                     ▲                                  │
//!                                     └──────────── taken ═══════════════┘
//! ```
//!
//! A [`Reporter`] numbers what it is told, from 1, and holds it until it is too old or too much. A [`Judge`] says how far it
//! has taken it. On each new connection the judge says it first, so that what was sent and not taken is sent again, and a judge
//! that is new, which has taken nothing, gets all that is still held: the past of its page.
//!
//! # Invariants
//!
//! 1. A judge takes each report of a run of a sensor once at most, in the order in which the sensor was told: it takes only
//!    numbers beyond the last that it has taken. It knows the last [`books::RUNS_MAX`] runs of each name.
//! 2. What was told is taken, or counted as lost: with each report goes how many tallies there were before it, so that what a
//!    full backlog dropped shows in the numbers of those who come after. When the last report is taken, the tallies that judges
//!    have taken and those that are lost are what the sensor was told. (What a judge took and could not say before it ended is
//!    gone with it: it is taken by the next, or lost.)
//! 3. A sensor speaks for the node that its certificate names, and for no other.
//! 4. Memory is bounded on both sides, whatever the other does: a backlog by its [`Limits`]; a judge by one message for each
//!    connection, and by what its board holds (of [`SENSORS_MAX`](crate::board::SENSORS_MAX) sensors, each with
//!    [`SERVERS_MAX`](crate::board::SERVERS_MAX) servers: 128 octets for each second of the profile's span). Who is too slow is
//!    waited for, and given up after [`wire::SILENCE_MAX`].
//!
//! # Time
//!
//! Reports bear the time of the sensor's clock, and nothing corrects it; how far it is from the judge's is measured, as half a
//! round trip can, and shown. Seconds that cannot be ([`AHEAD_MAX_S`](crate::board::AHEAD_MAX_S), [`judge::BEHIND_MAX_S`]) are refused and counted.
//!
//! Only reports move a sensor's time: where none comes nothing is known of its servers, and they stay what they were. That is why
//! capture threads report every second, even that nothing happened. The link has beats of its own, which say that somebody is
//! there and nothing about servers. The board waits for the last of a sensor's threads, for ten seconds; then it hangs, and is
//! shown to.
//!
//! What comes late is judged as it would have been then: time goes on report by report, and a server that stopped and recovered
//! while the judge was away has both changes in its past, with the times at which they were. They are told late: who tells them
//! to others finds in [`Verdict::at`](watari_endings::Verdict::at) how late.

mod backlog;
pub mod books;
mod clock;
mod inbox;
pub mod judge;
mod listen;
mod metrics;
mod reporter;
mod serve;
mod session;
pub mod wire;

pub use backlog::{Backlog, Cursor, FalseTaking, Limits};
pub use clock::Clock;
pub use judge::{Judge, JudgeCounts};
pub use listen::{ListenError, Listening};
pub use metrics::{JudgeMetrics, ReporterMetrics};
pub use reporter::{Backoff, Options, Reporter, ReporterCounts, StartError};
pub use session::LinkError;

#[cfg(test)]
mod tests;
