//! Ejection and readmission of an origin.

use std::time::Instant;

/// The cause of an ejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Too many failures in a row.
    InARow,
    /// A much higher percentage of failures than the other origins.
    Share,
    /// The trial request after an ejection failed.
    Trial,
}

/// A change of an origin's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The origin gets no requests.
    Ejected {
        /// The time of the trial request.
        until: Instant,
        cause: Cause,
    },
    /// The origin gets requests again. The caller applies slow start.
    Readmitted,
}

impl Cause {
    /// The cause as a metric label and in status output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InARow => "in_a_row",
            Self::Share => "share",
            Self::Trial => "trial",
        }
    }
}
