//! The load of a site, from files: access logs, or a profile of a day.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use super::observed::Observed;
use super::profile::{Profile, ProfileError};
use super::{Demand, Stated};
use crate::access_log::{BadLine, LogCount, read_log};

/// The files do not state the load of a site.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    #[error("cannot read {file}: {error}", file = file.display())]
    Read { file: PathBuf, error: io::Error },
    /// All lines of the logs are bad.
    #[error("no usable line: {0}")]
    NoUsableLine(BadLine),
    #[error("{0} is empty")]
    Empty(String),
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// The load that all `logs` together show, and the first bad lines of each.
pub fn of_logs(logs: &[PathBuf]) -> Result<(Demand, Vec<BadLine>), SiteError> {
    let (mut observed, mut bad, mut first_bad) = (Observed::default(), 0, Vec::new());
    for file in logs {
        let count = read_into(&mut observed, file)?;
        bad += count.bad;
        first_bad.extend(count.first_bad);
    }
    let names: Vec<_> = logs.iter().map(|file| file.display().to_string()).collect();
    let name = names.join(", ");
    match (observed.demand(&name, bad), first_bad.first()) {
        (Some(demand), _) => Ok((demand, first_bad)),
        (None, Some(bad)) => Err(SiteError::NoUsableLine(bad.clone())),
        (None, None) => Err(SiteError::Empty(name)),
    }
}

/// The load that a profile states. `quantile` is the probability that no second of the busiest hour exceeds it.
pub fn of_profile(file: &Path, quantile: &Stated<f64>) -> Result<Demand, SiteError> {
    let text = fs::read_to_string(file).map_err(|error| unreadable(file, error))?;
    Ok(Profile::parse(&file.display().to_string(), &text)?.demand(quantile))
}

fn read_into(observed: &mut Observed, file: &Path) -> Result<LogCount, SiteError> {
    let opened = File::open(file).map_err(|error| unreadable(file, error))?;
    read_log(&file.display().to_string(), BufReader::new(opened), |line| observed.enter(line))
        .map_err(|error| unreadable(file, error))
}

fn unreadable(file: &Path, error: io::Error) -> SiteError {
    SiteError::Read { file: file.to_owned(), error }
}
