//! The protocol between controller and worker.
//!
//! ```text
//!  controller                                   worker
//!      | -- greeting: magic, version ------------> |
//!      | <------------ greeting: magic, version -- |
//!      | -- Job ---------------------------------> |   the plan, and the worker's part of it
//!      | <----------------------- Ready, or Refused |
//!      | -- Ping --------------------------------> |   a few times, to measure the round-trip time
//!      | <---------------------------------- Pong -- |
//!      | -- Start { after } ---------------------> |   all workers begin at the same instant
//!      | <------------------------------ Progress -- |   a tally, again and again
//!      | <--------------------------- Connections -- |   with a log: samples of some connections
//!      | -- Logged ------------------------------> |   for each such report, when the log has taken it
//!      | -- Take --------------------------------> |   to all workers at the same time
//!      | <--------------------------------- Taken -- |   a tally since the last Take; resets the counts
//!      | -- Ping, Cut ---------------------------> |
//!      | <---------------------------------- Done -- |   the last tally
//! ```
//! Greetings and messages have the layout of `watari_link`.

mod job;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use watari_bench_engine::sample::wire::WireSamples;
use watari_bench_engine::tally::wire::WireTally;
use watari_link::{LinkFrame, Protocol, TalkError};

pub(crate) use job::Job;

/// A message from the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Prepare this job.
    Job(Box<Job>),
    /// Heartbeat, and measurement of the round-trip time.
    Ping,
    /// Begin.
    Start {
        /// In nanoseconds, counted from the arrival of this message.
        after_ns: u64,
    },
    /// The log has taken the connections of one report.
    Logged,
    /// Send a tally since the start or since the last `Take`, and reset the counts.
    Take,
    /// Drop the requests in progress, and send the last tally.
    Cut,
}

impl Order {
    /// The error that this message is not valid in the current state.
    pub(crate) fn out_of_turn(&self) -> TalkError {
        TalkError::OutOfTurn(match self {
            Self::Job(_) => "Job",
            Self::Ping => "Ping",
            Self::Start { .. } => "Start",
            Self::Logged => "Logged",
            Self::Take => "Take",
            Self::Cut => "Cut",
        })
    }
}

/// A message from the worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The worker can begin.
    Ready,
    /// The worker rejects the job.
    Refused {
        /// The cause, as a sentence.
        why: String,
    },
    /// The response to `Ping`.
    Pong,
    /// The tally since the start or since the last `Take`.
    Progress(Box<WireTally>),
    /// Connections that have ended. There are never more than [`AHEAD_MAX`] such reports that the log has not taken.
    Connections(WireSamples),
    /// The response to `Take`.
    Taken {
        /// The tally since the start or since the last `Take`.
        tally: Box<WireTally>,
        /// When it was taken, in nanoseconds from the common start.
        at_ns: u64,
    },
    /// The load is over.
    Done(Box<WireDone>),
}

impl Report {
    /// The error that this message is not valid in the current state.
    pub(crate) fn out_of_turn(&self) -> TalkError {
        TalkError::OutOfTurn(match self {
            Self::Ready => "Ready",
            Self::Refused { .. } => "Refused",
            Self::Pong => "Pong",
            Self::Progress(_) => "Progress",
            Self::Connections(_) => "Connections",
            Self::Taken { .. } => "Taken",
            Self::Done(_) => "Done",
        })
    }
}

/// The results of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WireDone {
    pub(crate) tally: WireTally,
    /// From the common start to the end of the load, in nanoseconds.
    pub(crate) elapsed_ns: u64,
    /// The causes of failures, each as a sentence with its count.
    pub(crate) causes: BTreeMap<String, u64>,
}

impl LinkFrame for Order {
    const LEN_MAX: usize = LEN_MAX;
}

impl LinkFrame for Report {
    const LEN_MAX: usize = LEN_MAX;
}

pub(crate) const PROTOCOL: Protocol = Protocol { magic: *b"wbench", version: 1, program: "watari bench" };
/// The largest message, in bytes. A list of 10 million lines fits.
const LEN_MAX: usize = 256 << 20;
/// Reports of connections that may be on their way to the log. Enough for tens of thousands of connections per second
/// with a long round-trip time.
pub(crate) const AHEAD_MAX: usize = 4;
/// The interval at which both sides send a message.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
