//! `watari bench compare`: which differences between two sides are real.
//!
//! A side is one run or several. A figure of a side is the median of its runs. How far the difference between two sides can be trusted
//! comes from the bootstrap (Efron): the measurement is repeated many times from what was measured, and the middle of the differences
//! that come out, up to the confidence asked for, is the interval.
//!
//! * With [`RUNS_MIN`] runs or more on both sides, whole runs are drawn: what differs from run to run is in the interval.
//! * With fewer, runs are drawn, and of each run blocks of successive seconds, since neighbours resemble each other. What differs from
//!   one run to the next is then known badly or not at all, which the comparison says.
//!
//! The confidence holds for all figures together (Bonferroni): otherwise one in twenty figures would differ by chance. A difference is
//! real if its interval excludes 0, and it is as large as anybody cares for.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "numbers of intervals and replicates, none of which is negative or large"
)]

mod bootstrap;
mod course;
mod figures;
mod text;

use serde::Serialize;

use crate::histogram::DecodeError;
use crate::summary::Summary;
pub use bootstrap::Interval;
use bootstrap::{Side, median};
use course::Course;
use figures::{FIGURES, Figure, Wanted};

/// How to compare.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// How likely it should be that all intervals hold, from 0 to 1.
    pub confidence: f64,
    /// Differences smaller than this are not called real: a part of side A's figure.
    pub min_effect: f64,
    /// How often the measurement is repeated.
    pub replicates: u32,
    /// Of the random draws.
    pub seed: u64,
}

/// 95 % for all figures together, effects from 2 %, 5,000 replicates.
impl Default for Options {
    fn default() -> Self {
        Self { confidence: 0.95, min_effect: 0.02, replicates: 5_000, seed: 1 }
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// How many runs side A has.
    pub runs_a: usize,
    /// How many runs side B has.
    pub runs_b: usize,
    /// What was drawn.
    pub drawn: Drawn,
    /// As in [`Options`].
    pub confidence: f64,
    /// As in [`Options`].
    pub min_effect: f64,
    /// As in [`Options`].
    pub replicates: u32,
    /// As in [`Options`].
    pub seed: u64,
    /// The figures.
    pub figures: Vec<Compared>,
    /// What to bear in mind.
    pub notes: Vec<String>,
}

/// What the bootstrap drew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Drawn {
    /// Whole runs.
    Runs,
    /// Runs, and blocks of their seconds.
    Seconds,
}

/// One figure of both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// Its path in the JSON of a summary.
    pub figure: &'static str,
    /// Median of the runs of side A.
    pub a: f64,
    /// Median of the runs of side B.
    pub b: f64,
    /// `b - a`.
    pub difference: f64,
    /// Where the difference lies; `None`: too little was measured to say.
    pub interval: Option<Interval>,
    /// What this means.
    pub verdict: Verdict,
}

/// What a difference means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// B is really better.
    Better,
    /// B is really worse.
    Worse,
    /// No real difference was found. That is not to say that there is none: the interval says how large it could be.
    None,
    /// Too little was measured to say.
    Unknown,
}

/// Compares side B with side A.
pub fn compare(a: &[Summary], b: &[Summary], options: &Options) -> Result<Comparison, CompareError> {
    if a.is_empty() || b.is_empty() {
        return Err(CompareError::NoRun);
    }
    let drawn = if a.len().min(b.len()) >= RUNS_MIN { Drawn::Runs } else { Drawn::Seconds };
    let is_known = |figure: &Figure| a.iter().chain(b).all(|run| figure.is_known(run));
    let figures: Vec<_> = FIGURES.into_iter().filter(is_known).collect();
    let sides = (side(a, drawn, &figures, 'A')?, side(b, drawn, &figures, 'B')?);
    let intervals = bootstrap::intervals(&sides.0, &sides.1, &figures, options);
    let compared =
        figures.iter().zip(intervals).filter_map(|(figure, interval)| compared(figure, a, b, interval, options));
    Ok(Comparison {
        runs_a: a.len(),
        runs_b: b.len(),
        drawn,
        confidence: options.confidence,
        min_effect: options.min_effect,
        replicates: options.replicates,
        seed: options.seed,
        figures: compared.collect(),
        notes: notes(a, b, drawn, &sides),
    })
}

/// Two sides cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// A side is empty.
    #[error("a side without a run cannot be compared")]
    NoRun,
    /// A summary's series was written by something else, or damaged.
    #[error("run {run} of side {side}, interval {interval} of its series: {error}")]
    Histogram {
        /// `A` or `B`.
        side: char,
        /// Counted from 1.
        run: usize,
        /// Counted from 1.
        interval: usize,
        /// What is wrong.
        error: DecodeError,
    },
}

fn side(runs: &[Summary], drawn: Drawn, figures: &[Figure], name: char) -> Result<Side, CompareError> {
    if drawn == Drawn::Runs {
        let of_run = |run| figures.iter().map(|figure| figure.of(run)).collect();
        return Ok(Side::Runs(runs.iter().map(of_run).collect()));
    }
    let course = |(run, summary): (usize, &Summary)| {
        Course::read(summary).map_err(|(interval, error)| CompareError::Histogram {
            side: name,
            run: run + 1,
            interval,
            error,
        })
    };
    runs.iter().enumerate().map(course).collect::<Result<_, _>>().map(Side::Seconds)
}

fn compared(
    figure: &Figure,
    a: &[Summary],
    b: &[Summary],
    interval: Option<Interval>,
    options: &Options,
) -> Option<Compared> {
    let figure_of = |runs: &[Summary]| median(runs.iter().map(|run| figure.of(run)).collect());
    let (a, b) = (figure_of(a)?, figure_of(b)?);
    let difference = b - a;
    let is_large = difference.abs() >= options.min_effect * a.abs();
    let verdict = match interval {
        None => Verdict::Unknown,
        Some(interval) if is_large && interval.excludes_0() => figure.wanted().verdict(interval),
        Some(_) => Verdict::None,
    };
    Some(Compared { figure: figure.path, a, b, difference, interval, verdict })
}

impl Wanted {
    fn verdict(self, difference: Interval) -> Verdict {
        if (difference.low > 0.0) == (self == Self::More) { Verdict::Better } else { Verdict::Worse }
    }
}

fn notes(a: &[Summary], b: &[Summary], drawn: Drawn, sides: &(Side, Side)) -> Vec<String> {
    let mut notes = Vec::new();
    if drawn == Drawn::Seconds {
        notes.push(format!(
            "with fewer than {RUNS_MIN} runs on each side, what differs from run to run is hardly known: repeat both, by turns"
        ));
        if sides.0.is_too_short() || sides.1.is_too_short() {
            notes.push(format!(
                "a run with fewer than {} whole intervals is too short for anything to be said",
                course::INTERVALS_MIN
            ));
        }
    }
    if a.iter().chain(b).any(|run| run.total.failures > 0.01) {
        notes.push(
            "more than 1 % of the requests of a run failed: they are in `failures`, and in no latency".to_owned(),
        );
    }
    notes
}

/// From so many runs on, whole runs are drawn. With five, 3 of 100 comparisons of the same thing find a difference, where runs as a whole
/// are up to 5 % faster or slower; with four it would be 7 to 9, more than the confidence of 95 % allows.
pub const RUNS_MIN: usize = 5;

#[cfg(test)]
mod tests;
