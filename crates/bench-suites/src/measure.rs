//! Measures the suites of the engines, one after the other.

use crate::certificates::Certificates;
use crate::engine;
use crate::engine::interface::Engine;
use crate::engine_name::EngineName;
use crate::paper;
use crate::row::Row;
use crate::work::Work;

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

#[cfg(test)]
mod tests;
