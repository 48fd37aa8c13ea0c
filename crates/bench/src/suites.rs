//! `watari bench suites`: what a cipher suite costs, and what the reuse of sessions saves.
//!
//! The benchmark of "Maniac Java Programming 10" (2009; digest: tls-suites), with the engines of today. For each suite, all over
//! TCP on loopback, one connection at a time:
//!
//! * **bulk**: one connection, over which the server sends much (the paper: 100 MB);
//! * **new**: connections (the paper: 1,000), each with a full handshake and one byte from the server;
//! * **reuse**: as many that resume the session of one before them. Whether each did is taken from its handshake, and counted.
//!
//! Every time includes connecting, the handshake and the close. Wall time, and the CPU of the client's and of the server's thread
//! are measured apart. All engines work under the same terms: ECDHE over X25519, DHE with 2048 bits, RSA keys of 2048 bits,
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

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// With what; empty: with every engine that is present.
    pub engines: Vec<EngineName>,
    /// Only suites whose IANA name, or name in the paper, contains one of these, in letters of any case; empty: every suite.
    pub only: Vec<String>,
    /// How much.
    pub work: Work,
}

impl Plan {
    /// Whether a suite, by its IANA name, is to be measured where an engine has it.
    pub fn selects(&self, suite: &str) -> bool {
        let suite = suite.to_ascii_uppercase();
        self.only.is_empty() || self.only.iter().any(|part| suite.contains(&paper::iana(part).to_ascii_uppercase()))
    }
}

/// How much a suite has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// What the bulk transfer carries, in bytes.
    pub bulk_bytes: u64,
    /// How many new connections, and how many reused ones.
    pub connections: u32,
}

impl Work {
    /// The paper's.
    pub const PAPER: Self = Self { bulk_bytes: 100_000_000, connections: 1000 };
}

/// An implementation of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EngineName {
    /// rustls with aws-lc-rs.
    Rustls,
    /// OpenSSL's libssl.
    OpenSsl,
    /// The JDK's, the engine of the paper.
    Jsse,
}

impl EngineName {
    /// Every engine.
    pub const ALL: [Self; 3] = [Self::Rustls, Self::OpenSsl, Self::Jsse];

    /// As on the command line and in reports.
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

/// No engine has that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engines are rustls, openssl and jsse")]
pub struct UnknownEngine;

/// What was found out.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Engines that took part, and their versions.
    pub present: Vec<(EngineName, String)>,
    /// Engines that are not to be had, and why. Only engines that were not asked for by name.
    pub absent: Vec<(EngineName, String)>,
    /// A row for each suite of each engine.
    pub rows: Vec<Row>,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum SuitesError {
    /// The keys and certificates for the run could not be made.
    #[error("cannot make keys and certificates for the run: {0}")]
    Certificates(#[from] rcgen::Error),
    /// An engine that was asked for by name is not to be had.
    #[error("{engine} is not to be had here: {why}")]
    Absent {
        /// Which.
        engine: EngineName,
        /// What is missing.
        why: String,
    },
    /// The names leave nothing to measure.
    #[error("no engine that is present offers a suite named like {0}")]
    NoSuite(String),
}

/// Measures one suite after the other, and shows each row to `progress` as soon as it is known.
///
/// A suite that fails says why in its row, and the others go on.
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

/// The engines in the order of [`EngineName::ALL`], each once.
fn wanted(plan: &Plan) -> impl Iterator<Item = EngineName> {
    EngineName::ALL.into_iter().filter(|name| plan.engines.is_empty() || plan.engines.contains(name))
}

fn measure_with(name: EngineName, engine: &mut dyn Engine, plan: &Plan, emit: &mut dyn FnMut(Row)) {
    for offer in engine.offers().into_iter().filter(|offer| plan.selects(&offer.suite)) {
        let measured = engine.measure(&offer, plan.work).map_err(|error| error.to_string());
        emit(Row { engine: name, suite: offer.suite, key: offer.key, work: plan.work, measured });
    }
}
