//! `watari bench compare`: which differences between two sides are real.
//!
//! A side is one run or several. A figure of a side is the median of its runs. The bootstrap (Efron) gives the
//! confidence interval of a difference: it draws many repetitions of the measurement from the measured values, and
//! takes the middle of the resulting differences, up to the requested confidence.
//!
//! * With [`RUNS_MIN`] runs or more on both sides, it draws whole runs. The interval then includes the variation
//!   between runs.
//! * With fewer, it draws runs, and from each run blocks of successive seconds, because neighbouring seconds resemble
//!   each other. The variation between runs is then badly known or unknown, and the comparison notes that.
//!
//! The confidence holds for all figures together (Bonferroni). Otherwise one in twenty figures would differ by chance.
//! A difference is real if its interval excludes 0 and it is at least [`Options::min_effect`].
//!
//! Imports: no sibling.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "numbers of intervals and replicates, none of which is negative or large"
)]

mod bootstrap;
mod course;
mod figures;
pub mod files;
mod options;
mod text;

use serde::Serialize;
use watari_bench_engine::histogram::DecodeError;
use watari_bench_report::summary::Summary;

pub use bootstrap::Interval;
use bootstrap::{Side, median};
use course::Course;
use figures::{FIGURES, Figure, Wanted};
pub use options::Options;

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Number of runs of side A.
    pub runs_a: usize,
    /// Number of runs of side B.
    pub runs_b: usize,
    pub drawn: Drawn,
    /// As in [`Options`].
    pub confidence: f64,
    /// As in [`Options`].
    pub min_effect: f64,
    /// As in [`Options`].
    pub replicates: u32,
    /// As in [`Options`].
    pub seed: u64,
    pub figures: Vec<Compared>,
    /// Warnings about the data, as sentences.
    pub notes: Vec<String>,
}

/// The units that the bootstrap drew.
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
    /// The confidence interval of the difference; `None` if there are too few measurements.
    pub interval: Option<Interval>,
    pub verdict: Verdict,
}

/// The meaning of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// B is better, and the difference is real.
    Better,
    /// B is worse, and the difference is real.
    Worse,
    /// The difference is not real. This does not prove that the sides are equal: the interval shows how large the
    /// difference may be.
    None,
    /// Too few measurements.
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
    /// A side has no runs.
    #[error("a side without a run cannot be compared")]
    NoRun,
    /// The series of a summary does not decode: another program wrote it, or the file is damaged.
    #[error("run {run} of side {side}, interval {interval} of its series: {error}")]
    Histogram {
        /// `A` or `B`.
        side: char,
        /// Counted from 1.
        run: usize,
        /// Counted from 1.
        interval: usize,
        /// Why the histogram does not decode.
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
            "with fewer than {RUNS_MIN} runs on each side, the variation between runs is hardly known: repeat both, alternately"
        ));
        if sides.0.is_too_short() || sides.1.is_too_short() {
            notes.push(format!(
                "a run with fewer than {} complete intervals is too short for a conclusion",
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

/// From this number of runs on each side, the bootstrap draws whole runs. With five runs, 3 of 100 comparisons of a
/// server with itself find a difference, if the speed of whole runs varies by up to 5 %. With four runs it would be 7
/// to 9, more than the confidence of 95 % allows.
pub const RUNS_MIN: usize = 5;

#[cfg(test)]
mod tests;
