//! What a run has found: `result.json`.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::experiment::Printed;

/// The largest spread of a ratio without a reason.
pub const SPREAD_MAX: f64 = 0.05;

/// The result of one experiment.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RunResult {
    pub name: String,
    pub title: String,
    /// The digest of the paper. None is beyond the papers.
    pub paper: Option<String>,
    pub text: String,
    pub verdict: Verdict,
    /// True for a run with fewer rounds and smaller loads.
    pub quick: bool,
    /// How it differs from the experiment as the program had it, such as `key = rsa:2048`.
    pub changes: Vec<String>,
    pub rounds: u32,
    pub seed: u64,
    /// RFC 3339, in UTC.
    pub started: String,
    pub seconds: f64,
    /// In the order of the experiment file.
    pub ratios: IndexMap<String, RatioResult>,
    pub figures: Vec<FigureResult>,
    /// Each row of the paper, with its verdict.
    pub entries: Vec<Entry>,
    /// Figures that other papers print, which are not measured here.
    pub printed: Vec<Printed>,
    pub deviations: Vec<String>,
    /// What the delay routers showed before the run.
    pub delays: Vec<Delay>,
    /// Files of plots, without their endings: there is an SVG and a PNG of each.
    pub plots: Vec<PlotFile>,
    /// The machine, and the versions of all programs.
    pub versions: BTreeMap<String, String>,
    /// Commands that prepared the run, that started processes, and that ran as steps, of the first round.
    pub commands: Vec<String>,
    /// See [`Plan::digest`](crate::plan::Plan::digest).
    #[serde(default)]
    pub digest: String,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Reproduced,
    Exceeded,
    Differs,
    Impossible,
}

impl Verdict {
    /// As in `result.json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Exceeded => "exceeded",
            Self::Differs => "differs",
            Self::Impossible => "impossible",
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.as_str())
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RatioResult {
    pub paper: Option<f64>,
    /// The median over the rounds. None if it could not be measured.
    pub ours: Option<f64>,
    pub peers: BTreeMap<String, Option<f64>>,
    /// The largest minus the least, divided by the median.
    pub spread: Option<f64>,
    /// The same quotient and spread of the speeds of the processor in those trials.
    pub speed_spread: Option<f64>,
    /// One for each round. None could not be measured, such as a quotient by zero.
    pub values: Vec<Option<f64>>,
    /// The largest relative distance from the paper's value that reproduces it.
    pub tolerance: f64,
    pub at_least: Option<f64>,
    pub at_most: Option<f64>,
    pub source: String,
    pub verdict: Verdict,
    /// The reason that the file states, if the verdict is `differs` or `exceeded`, or why ours is not there.
    pub because: String,
    /// The reason that the file states for a spread of more than 5 %. Empty for a smaller one.
    pub spread_because: String,
}

/// A figure of all variants.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct FigureResult {
    pub name: String,
    pub unit: String,
    pub source: String,
    pub rows: Vec<FigureRow>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct FigureRow {
    /// The key of the variant.
    pub variant: String,
    pub title: String,
    /// The values of the variant's matrix.
    pub matrix: BTreeMap<String, String>,
    pub paper: Option<f64>,
    /// One for each round, as in a ratio.
    pub values: Vec<Option<f64>>,
    pub median: Option<f64>,
}

impl FigureRow {
    /// The values of the rounds that have one.
    pub(crate) fn measured(&self) -> impl Iterator<Item = f64> {
        self.values.iter().copied().flatten()
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Entry {
    /// Where in the paper, or the name of the ratio.
    pub source: String,
    pub verdict: Verdict,
    pub why: String,
}

/// The round trip through a delay router.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Delay {
    pub router: String,
    pub set_ms: f64,
    pub measured_ms: f64,
    /// False in a quick run on a machine that was too busy for the delay.
    pub is_exact: bool,
}

impl Delay {
    /// How far it is from its setting, in milliseconds.
    pub(crate) fn error_ms(&self) -> f64 {
        (self.measured_ms - self.set_ms).abs()
    }

    /// How the run deviates from its file, if it does.
    pub fn deviation(&self) -> Option<String> {
        let Self { router, set_ms, measured_ms, is_exact } = self;
        let deviation = format!(
            "The round trip through the router {router} was {measured_ms:.1} ms, not {set_ms:.1} ms: other programs kept the \
             processors busy."
        );
        (!is_exact).then_some(deviation)
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PlotFile {
    pub title: String,
    /// The name below the folder of the run, without an ending.
    pub file: String,
}

/// The CPU use of hosts in one trial, for `cpu.csv` and plots.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct CpuSeries {
    pub variant: String,
    pub round: u32,
    pub host: String,
    /// The quota in cores.
    pub quota: Option<f64>,
    /// Seconds from the start of the trial, and the cores used in the second before.
    pub points: Vec<(f64, f64)>,
}
