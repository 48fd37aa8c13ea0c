//! The results of a run: the figures that are printed, written as JSON, drawn and compared.
//!
//! ```text
//!   Tally --Summary::new--> Summary <--serde--> JSON (the contract: names and units of its fields)
//!                              |
//!                              +--> text (`Display`), conditions (`expect`), comparisons (`compare`), pages
//! ```
//!
//! Every time is in milliseconds, and every rate per second. If nothing was measured, a number is 0, and so is the
//! `count` beside it.
//!
//! Imports: `grid`, for tables of text.

mod course;
mod part;
pub(crate) mod rows;
mod series;
mod text;

pub use part::float;
pub use part::{ConnectionsSummary, EndingCount, EndingCounts, Milliseconds, PartSummary, TlsSummary};
pub use series::{PointSummary, SeriesSummary};

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::num::NonZero;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use watari_bench_engine::histogram::Encoded;
use watari_bench_engine::sample::{Family, HandshakeKind};
use watari_bench_engine::tally::{Flows, Part, Tally, Times};

/// The results of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The version of the format; see [`FORMAT`].
    pub format: u32,
    pub run: Run,
    /// All requests and connections together.
    #[serde(flatten)]
    pub total: PartSummary,
    /// Requests in progress when the run was cancelled. They are in no other count.
    pub unfinished: u64,
    /// The causes of failures, each as a sentence with its count. The number of causes is limited.
    #[serde(default)]
    pub causes: BTreeMap<String, u64>,
    /// All 0 in a run without flows.
    #[serde(default)]
    pub flows: FlowsSummary,
    /// Open loop: by how much requests began later than they were due.
    pub schedule_error_ms: Milliseconds,
    pub by_family: ByFamily,
    pub by_tls: ByTls,
    pub by_class: BTreeMap<String, PartSummary>,
    /// The course of the run.
    pub series: SeriesSummary,
    /// The histograms of the times in `total`, in nanoseconds.
    pub histograms: Histograms,
}

impl Summary {
    /// The summary of a run that took `elapsed`.
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

    /// The same summary with the causes of failures.
    #[must_use]
    pub fn because(self, causes: BTreeMap<String, u64>) -> Self {
        Self { causes, ..self }
    }

    /// Parses a summary from JSON. Rejects another format, and more than [`JSON_BYTES_MAX`].
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

/// The command, the machine and the time of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The command line, word by word.
    pub command: Vec<String>,
    /// The version of Watari.
    pub version: String,
    /// The start time: RFC 3339, UTC.
    pub started: String,
    /// The operating system, and the number of processors that this process may use.
    pub machine: String,
    /// The workers, if the load was not generated in this process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerSummary>,
}

/// The part of one worker in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerSummary {
    /// Its name, and its address if it has one.
    pub name: String,
    /// Number of its requests that ended.
    pub requests: u64,
    /// How long after the first worker it was to begin, in milliseconds.
    pub begun_after_ms: u64,
    /// The largest error of its start time in either direction, in microseconds.
    pub start_error_us: u64,
    /// The cause, if it was lost before its end.
    pub lost: Option<String>,
}

impl Run {
    /// The same run with these workers.
    #[must_use]
    pub fn by(self, workers: Vec<WorkerSummary>) -> Self {
        Self { workers, ..self }
    }

    /// The run of this process, which began at `started`.
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

/// Flows that ended before the end of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowsSummary {
    /// Flows that completed.
    pub done: u64,
    /// Flows that ended early because a request failed.
    pub failed: u64,
    /// The time from when a flow was due to its last response, including think times. Completed flows only.
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
    pub ipv4: PartSummary,
    pub ipv6: PartSummary,
}

/// The same figures for each kind of TLS handshake.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByTls {
    /// Plain connections, and those that ended before their handshake completed.
    pub none: PartSummary,
    /// With certificate and key exchange.
    pub full: PartSummary,
    /// With a resumed session.
    pub resumed: PartSummary,
}

/// The histograms of [`Part`]. `None`: nothing was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of `Part`, which documents them")]
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

/// A summary cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be read.
    #[error("cannot be read: {0}")]
    Input(io::Error),
    /// The file is larger than [`JSON_BYTES_MAX`].
    #[error("is too large for a summary")]
    TooLarge,
    /// The file is not JSON, or lacks a field.
    #[error("is not a summary written by `watari bench --json`: {0}")]
    Json(serde_json::Error),
    /// Another version of Watari wrote it in another format.
    #[error("is a summary in format {0}, but this version of Watari reads format {FORMAT}")]
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

/// The version of the format of [`Summary`]. It increases when a field is removed or changes its meaning. New fields do
/// not change it. 2: statuses that are not a success count in `failures`, and not in `requests_per_s`.
pub const FORMAT: u32 = 2;

/// The largest summary that is read. 600 intervals with a histogram each are a few megabytes at most.
pub const JSON_BYTES_MAX: u64 = 64 * 1024 * 1024;

#[cfg(test)]
pub(crate) mod tests;
