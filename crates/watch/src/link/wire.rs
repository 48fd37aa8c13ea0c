//! The protocol between sensors and a judge.
//!
//! ```text
//!  sensor                                        judge
//!    | -- greeting: magic, version ----------------> |
//!    | <---------------- greeting: magic, version -- |
//!    | -- Hello { run, taken } --------------------> |   what this or another judge has taken of this run before
//!    | <-------- Welcome { run, taken }, or Refused -- |   what this judge has taken: the sensor continues behind it
//!    | -- Report { number, before, report } -------> |
//!    | <--------------------------------- Taken(..) -- |   for each
//!    | -- Beat { clock_offset_ns } ----------------> |   every second, if the one before was answered
//!    | <------------------------------ Beat { at } -- |
//! ```
//! Greetings and messages have the layout of `watari_link`. Either side may close at any time. A judge first sends the
//! reason (`Refused`), if it can.

mod report;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use watari_link::{LinkFrame, Protocol, TalkError};

pub use report::{BadReport, TALLIES_MAX, WireReport};

/// A message of a sensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromSensor {
    /// The first message.
    Hello {
        /// A random number from the start of the reporter.
        run: u64,
        /// The reports that judges have taken; zeros if none.
        taken: Taken,
    },
    /// A report.
    Report {
        /// Counts up from 1 in a run.
        number: u64,
        /// The number of tallies in all earlier reports.
        before: u64,
        report: Box<WireReport>,
    },
    /// A heartbeat.
    Beat {
        /// How far the sensor's clock is ahead of the judge's, in nanoseconds, if measured.
        clock_offset_ns: Option<i64>,
    },
}

/// A message of a judge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromJudge {
    /// The first message.
    Welcome {
        /// A random number from the start of the judge.
        run: u64,
        /// The reports that it has taken of the sensor's run; number 0 if none.
        taken: Taken,
    },
    /// The judge closes the connection.
    Refused {
        /// The reason, as a sentence.
        why: String,
    },
    /// The judge has taken another report.
    Taken(Taken),
    /// The answer to a heartbeat.
    Beat {
        /// The time of the judge's clock, in nanoseconds since the Unix epoch.
        at_ns: u64,
    },
}

/// The reports of a run that judges have taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The number of the last one taken.
    pub number: u64,
    /// The number of tallies up to that report, taken or not.
    pub reported: u64,
    /// How many of those no judge has got.
    pub missed: u64,
}

impl FromSensor {
    /// The error if it came in the wrong state.
    pub(super) const fn out_of_turn(&self) -> TalkError {
        TalkError::OutOfTurn(match self {
            Self::Hello { .. } => "Hello",
            Self::Report { .. } => "Report",
            Self::Beat { .. } => "Beat",
        })
    }
}

impl FromJudge {
    /// The error if it came in the wrong state.
    pub(super) const fn out_of_turn(&self) -> TalkError {
        TalkError::OutOfTurn(match self {
            Self::Welcome { .. } => "Welcome",
            Self::Refused { .. } => "Refused",
            Self::Taken(_) => "Taken",
            Self::Beat { .. } => "Beat",
        })
    }
}

impl LinkFrame for FromSensor {
    /// The largest report fits.
    const LEN_MAX: usize = 288 << 10;
}

impl LinkFrame for FromJudge {
    const LEN_MAX: usize = 1 << 10;
}

pub(super) const PROTOCOL: Protocol = Protocol { magic: *b"wwatch", version: 3, program: "watari watch" };
/// The interval of a sensor's heartbeats.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
