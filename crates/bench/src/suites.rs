//! `watari bench suites`: the cost of a cipher suite, and the savings of session reuse.
//!
//! The benchmark of "Maniac Java Programming 10" (2009; digest: tls-suites), with current TLS implementations. It
//! measures three tasks for each suite, over TCP on loopback, one connection at a time:
//!
//! * **bulk**: one connection over which the server sends a large amount of data (the paper: 100 MB),
//! * **new**: connections (the paper: 1,000), each with a full handshake and one byte from the server,
//! * **reuse**: as many connections that resume the session of an earlier one. The benchmark takes from each handshake
//!   whether the session was resumed, and counts these connections.
//!
//! Every time includes connecting, the handshake and the close. Wall time, CPU time of the client's thread and CPU time
//! of the server's thread are measured separately. All engines have the same settings: ECDHE over X25519, DHE with 2048
//! bits, RSA keys of 2048 bits, certificates signed by one authority, and sessions that the server stores (session ids;
//! in TLS 1.3 tickets that are ids).
//! certificates signed by one authority, and sessions that the server remembers (session ids; in TLS 1.3 tickets that are ids).
//!
//! ```text
//!   Plan -> measure -> Engine (rustls | openssl | jsse): which suites?
//!                         |  one suite after the other
//!                         +- rustls, openssl: loopback, two threads of this process
//!                         +- jsse: Jsse.java does the same in a JVM, and answers by JSON
//!           Report <- Row, Row, ...     beside paper::ROWS
//! ```

mod certificates;
mod engine;
mod key;
mod loopback;
pub mod paper;
pub mod row;

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use certificates::Certificates;
use engine::Engine;
pub use key::Key;
pub use row::{Cost, Measured, Row};

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The engines to measure. Empty: every available engine.
    pub engines: Vec<EngineName>,
    /// Measures only suites whose IANA name, or name in the paper, contains one of these, ignoring case. Empty: every
    /// suite.
    pub only: Vec<String>,
    pub work: Work,
}

impl Plan {
    /// Whether to measure the suite with this IANA name if an engine offers it.
    pub fn selects(&self, suite: &str) -> bool {
        let suite = suite.to_ascii_uppercase();
        self.only.is_empty() || self.only.iter().any(|part| suite.contains(&paper::iana(part).to_ascii_uppercase()))
    }
}

/// The amount of work for each suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The bytes that the bulk transfer carries.
    pub bulk_bytes: u64,
    /// The number of new connections, and the number of reused ones.
    pub connections: u32,
}

impl Work {
    /// The amount of work in the paper.
    pub const PAPER: Self = Self { bulk_bytes: 100_000_000, connections: 1000 };
}

/// A TLS implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EngineName {
    /// rustls with aws-lc-rs.
    Rustls,
    /// OpenSSL's libssl.
    OpenSsl,
    /// JSSE of the JDK, the engine of the paper.
    Jsse,
}

impl EngineName {
    pub const ALL: [Self; 3] = [Self::Rustls, Self::OpenSsl, Self::Jsse];

    /// The name on the command line and in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rustls => "rustls",
            Self::OpenSsl => "openssl",
            Self::Jsse => "jsse",
        }
    }
}

impl fmt::Display for EngineName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

impl FromStr for EngineName {
    type Err = UnknownEngine;

    fn from_str(name: &str) -> Result<Self, UnknownEngine> {
        Self::ALL.into_iter().find(|engine| engine.as_str() == name).ok_or(UnknownEngine)
    }
}

/// No engine has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engines are rustls, openssl and jsse")]
pub struct UnknownEngine;

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The engines that were measured, with their versions.
    pub present: Vec<(EngineName, String)>,
    /// The engines that are not available, with the causes. Only engines that were not requested by name.
    pub absent: Vec<(EngineName, String)>,
    /// A row for each suite of each engine.
    pub rows: Vec<Row>,
}

/// The benchmark could not start.
#[derive(Debug, thiserror::Error)]
pub enum SuitesError {
    /// The keys and certificates for the run could not be generated.
    #[error("cannot make keys and certificates for the run: {0}")]
    Certificates(#[from] rcgen::Error),
    /// An engine that was requested by name is not available.
    #[error("{engine} is not available: {why}")]
    Absent { engine: EngineName, why: String },
    /// No suite matches the names.
    #[error("no available engine offers a suite whose name contains {0}")]
    NoSuite(String),
}

/// Measures one suite after the other. Passes each row to `progress` as soon as it is complete.
///
/// If a suite fails, its row contains the error, and the benchmark continues with the next suite.
pub fn measure(plan: &Plan, progress: &mut dyn FnMut(&Row)) -> Result<Report, SuitesError> {
    let certificates = Certificates::generate()?;
    let mut report = Report::default();
    for name in wanted(plan) {
        match engine::open(name, &certificates) {
            Ok(mut engine) => {
                report.present.push((name, engine.version()));
                measure_with(name, engine.as_mut(), plan, &mut |row| {
                    progress(&row);
                    report.rows.push(row);
                });
            }
            Err(absent) if plan.engines.is_empty() => report.absent.push((name, absent.to_string())),
            Err(absent) => return Err(SuitesError::Absent { engine: name, why: absent.to_string() }),
        }
    }
    if report.rows.is_empty() {
        return Err(SuitesError::NoSuite(plan.only.join(", ")));
    }
    Ok(report)
}

/// The selected engines in the order of [`EngineName::ALL`], each once.
fn wanted(plan: &Plan) -> impl Iterator<Item = EngineName> {
    EngineName::ALL.into_iter().filter(|name| plan.engines.is_empty() || plan.engines.contains(name))
}

fn measure_with(name: EngineName, engine: &mut dyn Engine, plan: &Plan, emit: &mut dyn FnMut(Row)) {
    for offer in engine.offers().into_iter().filter(|offer| plan.selects(&offer.suite)) {
        let measured = engine.measure(&offer, plan.work).map_err(|error| error.to_string());
        emit(Row { engine: name, suite: offer.suite, key: offer.key, work: plan.work, measured });
    }
}
