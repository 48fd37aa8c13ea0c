//! What a run comes to: the numbers that are printed, written as JSON, drawn, and compared.
//!
//! ```text
//!   Tally --Summary::new--> Summary <--serde--> JSON (the contract: names and units of its fields)
//!                              |
//!                              +--> text (`Display`), conditions (`expect`), comparisons (`compare`), pages
//! ```
//!
//! Every time is in milliseconds, every rate per second, and where nothing was measured a number is 0 and the `count` beside it too.

mod course;
mod part;
mod rows;
mod series;
mod text;

pub(crate) use part::float;
pub use part::{ConnectionsSummary, EndingCount, EndingCounts, Milliseconds, PartSummary, TlsSummary};
pub(crate) use rows::{PARTS_HEADS, TIMES_HEADS};
pub use series::{PointSummary, SeriesSummary};

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::num::NonZero;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::fleet::Worked;
use crate::histogram::Encoded;
use crate::sample::{Family, HandshakeKind};
use crate::tally::{Flows, Part, Tally, Times};

/// What a run comes to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Of this form of a summary; see [`FORMAT`].
    pub format: u32,
    /// What was run.
    pub run: Run,
    /// All requests and connections together.
    #[serde(flatten)]
    pub total: PartSummary,
    /// Requests that had begun, and were given up because the run was broken off. They are in no other count.
    pub unfinished: u64,
    /// Why things failed, in sentences, and how often: of as many causes as people want to read.
    #[serde(default)]
    pub causes: BTreeMap<String, u64>,
    /// Flows, where flows were gone through.
    #[serde(default)]
    pub flows: FlowsSummary,
    /// Open loop: by how much arrivals were begun later than they were due.
    pub schedule_error_ms: Milliseconds,
    /// Split by address family.
    pub by_family: ByFamily,
    /// Split by TLS handshake.
    pub by_tls: ByTls,
    /// Split by class of URIs.
    pub by_class: BTreeMap<String, PartSummary>,
    /// The course of the run.
    pub series: SeriesSummary,
    /// The histograms behind the total's times, in nanoseconds.
    pub histograms: Histograms,
}

impl Summary {
    /// Sums a run of `elapsed` up.
    pub fn new(run: Run, elapsed: Duration, tally: &Tally) -> Self {
        let summary = |part: &Part| PartSummary::new(part, elapsed);
        let total = tally.total();
        let classes = tally.classes().iter().enumerate();
        Self {
            format: FORMAT,
            run,
            total: summary(&total),
            unfinished: tally.given_up(),
            causes: BTreeMap::new(),
            flows: FlowsSummary::new(tally.flows()),
            schedule_error_ms: Milliseconds::new(tally.lags()),
            by_family: ByFamily {
                ipv4: summary(&tally.by_family(Family::Ipv4)),
                ipv6: summary(&tally.by_family(Family::Ipv6)),
            },
            by_tls: ByTls {
                none: summary(&tally.by_handshake(None)),
                full: summary(&tally.by_handshake(Some(HandshakeKind::Full))),
                resumed: summary(&tally.by_handshake(Some(HandshakeKind::Resumed))),
            },
            by_class: classes.map(|(at, name)| (name.clone(), summary(&tally.by_class(at)))).collect(),
            series: SeriesSummary::new(tally.series()),
            histograms: Histograms::new(&total, tally.lags()),
        }
    }

    /// The same, with why things failed.
    #[must_use]
    pub fn because(self, causes: BTreeMap<String, u64>) -> Self {
        Self { causes, ..self }
    }

    /// Reads a summary from JSON, and refuses one of another form, or one that is larger than any.
    pub fn read(input: impl Read) -> Result<Self, ReadError> {
        let mut json = Vec::new();
        input.take(JSON_BYTES_MAX + 1).read_to_end(&mut json).map_err(ReadError::Input)?;
        if json.len() as u64 > JSON_BYTES_MAX {
            return Err(ReadError::TooLarge);
        }
        let Format { format } = serde_json::from_slice(&json).map_err(ReadError::Json)?;
        if format != FORMAT {
            return Err(ReadError::Format(format));
        }
        serde_json::from_slice(&json).map_err(ReadError::Json)
    }
}

/// What was run, by what, where and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The command line, word by word.
    pub command: Vec<String>,
    /// The version of Watari.
    pub version: String,
    /// When it began: RFC 3339, UTC.
    pub started: String,
    /// The operating system, and how many processors it gave this process.
    pub machine: String,
    /// Who made it, if others than this process did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerSummary>,
}

/// What one of several processes did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerSummary {
    /// Its name, and its address if it has one.
    pub name: String,
    /// How many of its requests ended.
    pub requests: u64,
    /// How long after the first it was to begin.
    pub begun_after_ms: u64,
    /// By how much earlier or later it may have begun, in microseconds.
    pub start_error_us: u64,
    /// Why it was lost before its end, if it was.
    pub lost: Option<String>,
}

impl WorkerSummary {
    fn new(worked: &Worked) -> Self {
        Self {
            name: worked.name.clone(),
            requests: worked.requests,
            begun_after_ms: worked.after.as_millis() as u64,
            start_error_us: worked.start_error.as_micros() as u64,
            lost: worked.lost.clone(),
        }
    }
}

impl Run {
    /// The same run, made by these.
    #[must_use]
    pub fn by(self, workers: &[Worked]) -> Self {
        Self { workers: workers.iter().map(WorkerSummary::new).collect(), ..self }
    }

    /// Of this process, which began at `started`.
    pub fn of_this_process(command: Vec<String>, started: SystemTime) -> Self {
        let started = OffsetDateTime::from(started);
        let started = started.replace_nanosecond(0).unwrap_or(started);
        Self {
            command,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: started.format(&Rfc3339).unwrap_or_default(),
            machine: machine(),
            workers: Vec::new(),
        }
    }
}

/// Flows that ended before the run did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowsSummary {
    /// How many came to their end.
    pub done: u64,
    /// How many ended before, with a request that failed.
    pub failed: u64,
    /// From when a flow was due to its last answer, thinking included, of those that came to their end.
    pub duration_ms: Milliseconds,
}

impl FlowsSummary {
    fn new(flows: &Flows) -> Self {
        Self { done: flows.done.count(), failed: flows.failed, duration_ms: Milliseconds::new(&flows.done) }
    }
}

/// The same figures for each address family.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByFamily {
    /// IPv4.
    pub ipv4: PartSummary,
    /// IPv6.
    pub ipv6: PartSummary,
}

/// The same figures for each kind of TLS handshake.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByTls {
    /// Plain connections, and those that ended before a handshake was done.
    pub none: PartSummary,
    /// With certificate and key exchange.
    pub full: PartSummary,
    /// With a resumed session.
    pub resumed: PartSummary,
}

/// The histograms of [`Part`]; `None`: nothing was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of `Part`, and said there")]
pub struct Histograms {
    pub latency: Option<Encoded>,
    pub failed: Option<Encoded>,
    pub wait: Option<Encoded>,
    pub transfer: Option<Encoded>,
    pub connect: Option<Encoded>,
    pub handshake: Option<Encoded>,
    pub write: Option<Encoded>,
    pub tr: Option<Encoded>,
    pub tc: Option<Encoded>,
    pub schedule_error: Option<Encoded>,
}

impl Histograms {
    fn new(total: &Part, lags: &Times) -> Self {
        let encoded = |times: &Times| times.histogram().map(Encoded::of);
        let connections = &total.connections;
        Self {
            latency: encoded(&total.latency),
            failed: encoded(&total.failed),
            wait: encoded(&total.wait),
            transfer: encoded(&total.transfer),
            connect: encoded(&connections.connect),
            handshake: encoded(&connections.handshake),
            write: encoded(&connections.write),
            tr: encoded(&connections.tr),
            tc: encoded(&connections.tc),
            schedule_error: encoded(lags),
        }
    }
}

/// A file is no summary.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It could not be read.
    #[error("cannot be read: {0}")]
    Input(io::Error),
    /// It is larger than [`JSON_BYTES_MAX`].
    #[error("is larger than any summary")]
    TooLarge,
    /// It is not JSON, or lacks something.
    #[error("is no summary written by `watari bench --json`: {0}")]
    Json(serde_json::Error),
    /// It was written by a version of Watari that writes another form.
    #[error("is a summary of form {0}, while this version of Watari reads form {FORMAT}")]
    Format(u32),
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let system = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    format!("{} {} {}, {processors} processors", text(system.sysname()), text(system.release()), text(system.machine()))
}

/// The form of [`Summary`]. It counts up when a field goes away or changes its meaning; further fields do not change it. 2: statuses
/// that are none of success count in `failures`, and not in `requests_per_s`.
pub const FORMAT: u32 = 2;

/// No summary is larger: 600 intervals with a histogram each are some megabytes at most.
pub const JSON_BYTES_MAX: u64 = 64 * 1024 * 1024;

#[cfg(test)]
pub(crate) mod tests;
