//! The options of the search.

use clap::{Args, ValueEnum};
use watari_bench_analysis::capacity::Quantity;
use watari_bench_analysis::capacity::search::{LevelStep, Plan};
use watari_bench_engine::duration::Span;
use watari_bench_engine::schedule::Spacing;
use watari_bench_report::expect::Condition;

/// The range and precision of the search
#[derive(Args)]
#[command(next_help_heading = "Search")]
pub(super) struct SearchOptions {
    /// A condition that the server must meet; repeatable: p99<50ms, failures<0.1%
    #[arg(long, value_name = "CONDITION")]
    pub(super) expect: Vec<Condition>,
    /// The quantity to raise: due requests per second (an open loop), or connections in progress (a closed loop)
    #[arg(long, value_enum, default_value = "rate")]
    by: By,
    /// The first level [default: 100; by connections 8]
    #[arg(long, value_name = "LEVEL")]
    from: Option<u64>,
    /// The highest level to try [default: 1000000; by connections 10000]
    #[arg(long, value_name = "LEVEL")]
    to: Option<u64>,
    /// The step to the next level, until one misses a condition: x1.5, +100
    #[arg(long, default_value = "x2")]
    step: LevelStep,
    /// The precision of the result: its distance to a level that misses a condition, as a share of that level
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    resolution: f64,
    /// Measurements of each level, of which the majority decides; an odd number
    #[arg(long, value_name = "N", default_value_t = 3)]
    repeats: u32,
    /// The maximum number of measurements in all
    #[arg(long, value_name = "N", default_value_t = 60)]
    runs: u32,
    /// The warm-up time of each level before its measurement
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    warmup: Span,
    /// The time of each measurement
    #[arg(short = 'd', long, value_name = "DURATION", default_value = "10s")]
    duration: Span,
    /// The maximum time to wait between measurements until the server is idle
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    pub(super) settle: Span,
    /// By rate: the maximum number of connections in progress
    #[arg(short = 'c', long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// By rate: random intervals (a Poisson process), which the seed reproduces
    #[arg(long, value_name = "SEED")]
    poisson: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Rate,
    Connections,
}

impl SearchOptions {
    pub(super) fn plan(&self) -> Plan {
        Plan {
            from: self.from(),
            to: self.to(),
            step: self.step,
            resolution: self.resolution,
            repeats: self.repeats,
            runs_max: self.runs,
            warmup: self.warmup.get(),
            duration: self.duration.get(),
        }
    }

    pub(super) fn from(&self) -> u64 {
        self.from.unwrap_or(match self.by {
            By::Rate => 100,
            By::Connections => 8,
        })
    }

    pub(super) fn to(&self) -> u64 {
        self.to.unwrap_or(match self.by {
            By::Rate => 1_000_000,
            By::Connections => 10_000,
        })
    }

    pub(super) fn quantity(&self) -> Quantity {
        match self.by {
            By::Rate => Quantity::Rate {
                spacing: self.poisson.map_or(Spacing::Even, |seed| Spacing::Poisson { seed }),
                connections_max: self.connections as usize,
            },
            By::Connections => Quantity::Connections,
        }
    }
}
