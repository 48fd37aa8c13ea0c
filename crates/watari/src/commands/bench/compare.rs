//! `watari bench compare`: which differences between two sides are real.

use std::path::PathBuf;

use clap::Args;
use watari_bench_analysis::compare::Options;
use watari_bench_analysis::compare::files::compare_files;

use crate::commands::print::{print, print_json};
use crate::failure::Failure;

/// Compare the results of two sides, and report which differences are significant
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Compare {
    /// Side A: a file that --json wrote, or one for each of several runs, separated by commas
    #[arg(required = true, num_args = 1, value_delimiter = ',', value_name = "A[,A2...]")]
    a: Vec<PathBuf>,
    /// Side B, likewise
    #[arg(required = true, num_args = 1, value_delimiter = ',', value_name = "B[,B2...]")]
    b: Vec<PathBuf>,
    /// The confidence that all intervals hold, between 0 and 1
    #[arg(long, value_name = "SHARE", default_value_t = Options::default().confidence, value_parser = confidence)]
    confidence: f64,
    /// The smallest difference that counts as better or worse, as a share of A's figure
    #[arg(long, value_name = "SHARE", default_value_t = Options::default().min_effect, value_parser = min_effect)]
    min_effect: f64,
    /// The number of random draws
    #[arg(long, value_name = "N", default_value_t = Options::default().replicates,
        value_parser = clap::value_parser!(u32).range(1_000..=1_000_000))]
    replicates: u32,
    /// The seed of the draws: the same seed gives the same result
    #[arg(long, value_name = "N", default_value_t = Options::default().seed)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  watari bench http URL -d 30s --json > a.json          before a change
  watari bench http URL -d 30s --json > b.json          after it
  watari bench compare a.json b.json
  watari bench compare a1.json,a2.json,a3.json,a4.json,a5.json b1.json,b2.json,b3.json,b4.json,b5.json

Make five or more runs on each side, by turns: one run does not show the differences between runs.";

impl Compare {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let options = self.options();
        let compared = compare_files(self.a, self.b, &options);
        let comparison = compared.map_err(|error| Failure::Usage(error.to_string()))?;
        if self.json { print_json(&comparison) } else { print(comparison) }
    }

    fn options(&self) -> Options {
        let Self { confidence, min_effect, replicates, seed, .. } = *self;
        Options { confidence, min_effect, replicates, seed }
    }
}

fn confidence(text: &str) -> Result<f64, String> {
    share(text)
        .filter(|share| (0.5..1.0).contains(share))
        .ok_or_else(|| "expected a number from 0.5 to below 1, such as 0.95".to_owned())
}

fn min_effect(text: &str) -> Result<f64, String> {
    share(text).filter(|share| *share >= 0.0).ok_or_else(|| "expected a number of 0 or more, such as 0.02".to_owned())
}

fn share(text: &str) -> Option<f64> {
    text.parse().ok().filter(|share: &f64| share.is_finite())
}
