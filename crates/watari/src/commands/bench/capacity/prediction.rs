//! The prediction: the given data of the site, and the assumptions.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use watari_bench::access_log::{BadLine, LogCount, read_log};
use watari_bench::predict::observed::Observed;
use watari_bench::predict::profile::Profile;
use watari_bench::predict::{Assumption, Demand, Prediction, Sizing, Stated, Window};

use super::search::Found;
use crate::failure::Failure;
use crate::output::print_line;

/// The servers that a site needs
#[derive(Args)]
#[command(next_help_heading = "Prediction")]
pub(super) struct Predict {
    /// An access log of the site in the common or the combined format; repeatable
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    log: Vec<PathBuf>,
    /// A profile of a day of the site, in TOML
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// The capacity of one server in requests per second, instead of a search
    #[arg(long, value_name = "N")]
    pub(super) capacity: Option<f64>,
    /// The growth of the load, as a factor [default: 1]
    #[arg(long, value_name = "FACTOR")]
    growth: Option<f64>,
    /// The share of its capacity that each server keeps free [default: 0.3]
    #[arg(long, value_name = "SHARE")]
    headroom: Option<f64>,
    /// The number of servers that may fail [default: 1]
    #[arg(long, value_name = "N")]
    redundancy: Option<u32>,
    /// The peak that the servers must serve: the busiest hour, minute or second [default: second]
    #[arg(long, value_enum)]
    peak: Option<Peak>,
    /// With --profile: the probability that no second of the busiest hour exceeds the predicted peak [default: 0.99]
    #[arg(long, value_name = "PROBABILITY")]
    quantile: Option<f64>,
    /// The share of requests that begin with a full TLS handshake
    #[arg(long, value_name = "SHARE")]
    handshake_share: Option<f64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Peak {
    Hour,
    Minute,
    Second,
}

impl Predict {
    /// Checks that clap cannot express.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let share = |value: Option<f64>| value.is_none_or(|value| value > 0.0 && value < 1.0);
        if self.capacity.is_some() && self.log.is_empty() && self.profile.is_none() {
            return Err(Failure::Usage("--capacity needs a --log or a --profile to predict from".to_owned()));
        }
        if !share(self.quantile) {
            return Err(Failure::Usage("--quantile must be a probability above 0 and below 1".to_owned()));
        }
        if self.handshake_share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
            return Err(Failure::Usage("--handshake-share must be a share from 0 to 1".to_owned()));
        }
        // With any capacity, so that mistakes are not reported only after a search.
        let sizing = self.sizing(Stated::new(self.capacity.unwrap_or(1.0), "--capacity"));
        sizing.check().map_err(|error| Failure::Usage(error.to_string()))
    }

    /// The site's load. `None`: no option states it.
    pub(super) fn demand(&self) -> Result<Option<Demand>, Failure> {
        let demand = match &self.profile {
            Some(file) => Some(self.stated(file)?),
            None if self.log.is_empty() => None,
            None => Some(self.observed()?),
        };
        Ok(demand.map(|demand| self.with_handshakes(demand)))
    }

    /// The capacity of one server, given or measured. `None`: the search found none.
    pub(super) fn capacity(&self, found: Option<&Found>) -> Option<Stated<f64>> {
        let measured = || Some(Stated::new(found?.throughput_per_s?, "measured"));
        self.capacity.map(|capacity| Stated::new(capacity, "--capacity")).or_else(measured)
    }

    pub(super) fn predict(&self, demand: &Demand, capacity: Stated<f64>) -> Result<Prediction, Failure> {
        Prediction::new(demand, &self.sizing(capacity)).map_err(|error| Failure::Usage(error.to_string()))
    }

    fn sizing(&self, capacity: Stated<f64>) -> Sizing {
        let peak = self.peak.map(|peak| match peak {
            Peak::Hour => Window::Hour,
            Peak::Minute => Window::Minute,
            Peak::Second => Window::Second,
        });
        Sizing {
            capacity,
            growth: or_default(self.growth, "--growth", 1.0),
            headroom: or_default(self.headroom, "--headroom", 0.3),
            redundancy: or_default(self.redundancy, "--redundancy", 1),
            peak: or_default(peak, "--peak", Window::Second),
        }
    }

    fn stated(&self, file: &Path) -> Result<Demand, Failure> {
        let text = fs::read_to_string(file).map_err(|error| unreadable(file, &error))?;
        let profile = Profile::parse(&file.display().to_string(), &text);
        let profile = profile.map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(profile.demand(&or_default(self.quantile, "--quantile", 0.99)))
    }

    fn observed(&self) -> Result<Demand, Failure> {
        let (mut observed, mut bad, mut first_bad) = (Observed::default(), 0, Vec::new());
        for file in &self.log {
            let count = read_into(&mut observed, file)?;
            bad += count.bad;
            first_bad.extend(count.first_bad);
        }
        let names: Vec<_> = self.log.iter().map(|file| file.display().to_string()).collect();
        let name = names.join(", ");
        let demand = observed.demand(&name, bad).ok_or_else(|| nothing_in(&name, first_bad.first()))?;
        for bad in first_bad {
            print_line(format_args!("skipped: {bad}"));
        }
        Ok(demand)
    }

    fn with_handshakes(&self, demand: Demand) -> Demand {
        let Some(share) = self.handshake_share else { return demand };
        let assumption =
            Assumption::new("requests with a full handshake", format!("{:.1} %", 100.0 * share), "--handshake-share");
        let assumptions = demand.assumptions.into_iter().chain([assumption]).collect();
        Demand { handshake_share: Some(share), assumptions, ..demand }
    }
}

fn or_default<T>(given: Option<T>, option: &str, default: T) -> Stated<T> {
    match given {
        Some(value) => Stated::new(value, option),
        None => Stated::new(default, "default"),
    }
}

fn read_into(observed: &mut Observed, file: &Path) -> Result<LogCount, Failure> {
    let opened = File::open(file).map_err(|error| unreadable(file, &error))?;
    read_log(&file.display().to_string(), BufReader::new(opened), |line| observed.enter(line))
        .map_err(|error| unreadable(file, &error))
}

fn unreadable(file: &Path, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("cannot read {}: {error}", file.display()))
}

fn nothing_in(name: &str, first_bad: Option<&BadLine>) -> Failure {
    Failure::Usage(match first_bad {
        Some(bad) => format!("no usable line: {bad}"),
        None => format!("{name} is empty"),
    })
}
