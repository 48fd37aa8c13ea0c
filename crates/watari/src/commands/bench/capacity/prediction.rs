//! The prediction: the given data of the site, and the assumptions.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use watari_bench_analysis::capacity::Found;
use watari_bench_analysis::predict::site::{self, SiteError};
use watari_bench_analysis::predict::{Demand, Prediction, Sizing, Stated, Window};

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
        let usage = |error: SiteError| Failure::Usage(error.to_string());
        let demand = match &self.profile {
            Some(file) => site::of_profile(file, &or_default(self.quantile, "--quantile", 0.99)).map_err(usage)?,
            None if self.log.is_empty() => return Ok(None),
            None => {
                let (demand, bad_lines) = site::of_logs(&self.log).map_err(usage)?;
                for bad in bad_lines {
                    print_line(format_args!("skipped: {bad}"));
                }
                demand
            }
        };
        let share = self.handshake_share.map(|share| Stated::new(share, "--handshake-share"));
        Ok(Some(match share {
            Some(share) => demand.with_handshake_share(&share),
            None => demand,
        }))
    }

    /// The prediction. `None` without a load of the site, or without the capacity of a server.
    pub(super) fn predict(
        &self,
        demand: Option<&Demand>,
        found: Option<&Found>,
    ) -> Result<Option<Prediction>, Failure> {
        let (Some(demand), Some(capacity)) = (demand, self.capacity(found)) else { return Ok(None) };
        let prediction = Prediction::new(demand, &self.sizing(capacity));
        prediction.map(Some).map_err(|error| Failure::Usage(error.to_string()))
    }

    /// The capacity of one server, given or measured. `None`: the search found none.
    fn capacity(&self, found: Option<&Found>) -> Option<Stated<f64>> {
        let measured = || Some(Stated::new(found?.throughput_per_s?, "measured"));
        self.capacity.map(|capacity| Stated::new(capacity, "--capacity")).or_else(measured)
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
}

fn or_default<T>(given: Option<T>, option: &str, default: T) -> Stated<T> {
    match given {
        Some(value) => Stated::new(value, option),
        None => Stated::new(default, "default"),
    }
}
