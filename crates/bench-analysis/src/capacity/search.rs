//! The search for the highest level that still meets the conditions.
//!
//! ```text
//!            met: a step up                    until the two are close
//!            +-----+                            +-----+
//!            v     |                            v     |
//!  from --> Climb -+--------- missed --------> Bisect +------> Confirm --- met again ---> Done
//!            | |                                ^  ^             |  ^
//!            | +-------- `to` is met ---------- | -|-------------|--+
//!            | `from` is missed                 |  +-- missed ---+
//!            v                                  |
//!          Descend ------------- met -----------+
//!            | ^  |
//!            +-+  +-- level 1 is missed ----------------------------------------------> Done
//!            missed: a step down
//! ```
//!
//! The search stores only the measurements. [`Search::poll`] derives the position in this diagram from them.
//!
//! **Noise.** A level counts as missed when most of `repeats` measurements missed it. It counts as met after one
//! measurement that met it, because the next level up is measured anyway. The answer itself is measured until most of
//! `repeats` measurements met it. A level with one measurement of each kind is measured until there is a majority.
//!
//! **Monotony.** The search assumes that a server that misses a level also misses all higher levels. If it misses a
//! level that it had met before, the search ignores any higher levels that were met, and continues below. The
//! [`Finding`] lists the levels with contradictory measurements. At any time every level that counts as met lies below
//! every level that was missed, because the search never asks for a level outside the two.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

/// The range and precision of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The first level, at least 1.
    pub from: u64,
    /// The highest level, at most [`LEVEL_MAX`].
    pub to: u64,
    /// How the level rises until one is missed.
    pub step: LevelStep,
    /// The distance between the answer and a missed level, as a share of the answer, such as 0.02.
    pub resolution: f64,
    /// The number of measurements of a level of which most decide. Odd, so that there is a majority.
    pub repeats: u32,
    /// The limit of measurements in all.
    pub runs_max: u32,
    /// How long a level is held before it is measured.
    pub warmup: Duration,
    /// How long a level is measured.
    pub duration: Duration,
}

/// How the level rises until one is missed, and falls until one is met.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LevelStep {
    /// Multiplies the level. Over 1.
    Factor(f64),
    /// Adds to the level. At least 1.
    Increment(u64),
}

/// A running search. To drive it, repeat until [`Search::poll`] returns [`Next::Done`]: poll it for the next
/// measurement, measure, and pass the outcome to [`Search::report`].
#[derive(Clone, Debug)]
pub struct Search {
    plan: Plan,
    levels: BTreeMap<u64, Votes>,
    runs: u32,
    asked: Option<u64>,
}

/// The next step of the caller.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Make this measurement.
    Probe(Probe),
    /// The search is over.
    Done(Finding),
}

/// A measurement to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The load.
    pub level: u64,
    /// How long it is held before it counts.
    pub warmup: Duration,
    /// How long it counts.
    pub duration: Duration,
    /// The number of this measurement in the search, from 1.
    pub run: u32,
}

/// The result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The server met every condition.
    Met,
    /// It missed one.
    Missed,
    /// The generator could not make this load, so the server was not tested. The search treats the level as missed,
    /// because the generator cannot make a higher one either.
    Void,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The highest level that meets the conditions; `None` if not even the lowest does.
    pub level: Option<u64>,
    /// Whether most of the repeats met the level. If the measurements ran out, it may have been only one.
    pub confirmed: bool,
    /// The lowest level that misses the conditions; `None` if none was missed.
    pub missed: Option<u64>,
    /// The levels that some measurements met and others missed.
    pub noisy: Vec<u64>,
    /// Number of measurements.
    pub runs: u32,
    pub ended: Ended,
}

/// Why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The server's limit was found.
    Found,
    /// The generator's limit was found. The server's limit may be higher.
    GeneratorLimit,
    /// The server meets the highest level of the plan. Its limit may be higher.
    HighestMet,
    /// The server missed the lowest level.
    LowestMissed,
    /// The server did not even answer single requests, so there is no measurement.
    Unanswered,
    /// The search did not finish: it reached the limit of measurements, or was interrupted.
    Unfinished,
}

/// The text of a step is neither like `x1.5` nor like `+100`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a step is a factor over 1, such as x1.5, or an increment, such as +100")]
pub struct NoStep;

/// A plan that cannot be followed. The caller is at fault.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The levels are out of order or out of range.
    #[error("levels go from at least 1 to at most {LEVEL_MAX}, not from {0} to {1}")]
    Levels(u64, u64),
    /// The step does not raise the level.
    #[error("a step must raise the level: a factor over 1, or an increment of at least 1")]
    LevelStep,
    /// The resolution is not between 0 and 1.
    #[error("the resolution is a share over 0 and under 1, not {0}")]
    Resolution(f64),
    /// The number of repeats is even, so there is no majority.
    #[error("the number of repeats must be odd, so that there is a majority; {0} is even")]
    Repeats(u32),
    /// The limit of measurements is below the majority that one level needs.
    #[error("{0} measurements are too few to decide one level")]
    Runs(u32),
    /// The duration of a measurement is 0.
    #[error("the duration of a measurement must be over 0")]
    Duration,
}

/// The highest level a plan may have.
pub const LEVEL_MAX: u64 = 1_000_000_000;

impl FromStr for LevelStep {
    type Err = NoStep;

    /// `x1.5`, `+100`
    fn from_str(text: &str) -> Result<Self, NoStep> {
        let factor = text.strip_prefix('x').and_then(|factor| factor.parse().ok()).map(Self::Factor);
        let increment = || text.strip_prefix('+').and_then(|increment| increment.parse().ok()).map(Self::Increment);
        factor.or_else(increment).filter(|step| step.rises()).ok_or(NoStep)
    }
}

impl LevelStep {
    fn rises(self) -> bool {
        match self {
            Self::Factor(factor) => factor > 1.0 && factor.is_finite(),
            Self::Increment(increment) => increment >= 1,
        }
    }
}

impl Plan {
    fn check(&self) -> Result<(), PlanError> {
        match self {
            Self { from, to, .. } if *from < 1 || to < from || *to > LEVEL_MAX => Err(PlanError::Levels(*from, *to)),
            _ if !self.step.rises() => Err(PlanError::LevelStep),
            Self { resolution, .. } if !(*resolution > 0.0 && *resolution < 1.0) => {
                Err(PlanError::Resolution(*resolution))
            }
            Self { repeats, .. } if repeats % 2 == 0 => Err(PlanError::Repeats(*repeats)),
            Self { runs_max, .. } if *runs_max < self.majority() => Err(PlanError::Runs(*runs_max)),
            Self { duration, .. } if duration.is_zero() => Err(PlanError::Duration),
            _ => Ok(()),
        }
    }

    fn majority(&self) -> u32 {
        self.repeats / 2 + 1
    }

    fn step_up(&self, level: u64) -> u64 {
        let raised = match self.step {
            LevelStep::Factor(factor) => scaled(level, factor),
            LevelStep::Increment(increment) => level.saturating_add(increment),
        };
        raised.max(level + 1).min(self.to)
    }

    fn step_down(&self, level: u64) -> u64 {
        let lowered = match self.step {
            LevelStep::Factor(factor) => scaled(level, factor.recip()),
            LevelStep::Increment(increment) => level.saturating_sub(increment),
        };
        lowered.min(level - 1).max(1)
    }

    /// Whether a met and a missed level are so close that the search ends.
    fn is_close(&self, met: u64, missed: u64) -> bool {
        missed - met <= scaled(met, self.resolution).max(1)
    }
}

impl Search {
    /// Validates the plan.
    pub fn new(plan: Plan) -> Result<Self, PlanError> {
        plan.check()?;
        Ok(Self { plan, levels: BTreeMap::new(), runs: 0, asked: None })
    }

    /// The next measurement, or the finding. Idempotent until [`Search::report`].
    pub fn poll(&mut self) -> Next {
        let level = self.next_level().filter(|_| self.runs < self.plan.runs_max);
        self.asked = level;
        match level {
            Some(level) => Next::Probe(self.probe(level)),
            None => Next::Done(self.finding()),
        }
    }

    /// Enters the outcome of the measurement that [`Search::poll`] returned last. Without a pending measurement, this
    /// does nothing.
    pub fn report(&mut self, outcome: Outcome) {
        let Some(level) = self.asked.take() else { return };
        self.runs += 1;
        let votes = self.levels.entry(level).or_default();
        match outcome {
            Outcome::Met => votes.met += 1,
            Outcome::Missed => votes.missed += 1,
            Outcome::Void => votes.void += 1,
        }
    }

    /// The transitions of the diagram above. `None`: the search is over.
    fn next_level(&self) -> Option<u64> {
        if let Some(undecided) = self.undecided() {
            return Some(undecided);
        }
        let Plan { from, to, .. } = self.plan;
        match self.bounds() {
            (None, None) => Some(from),
            (Some(met), None) if met < to => Some(self.plan.step_up(met)),
            (None, Some(missed)) => (missed > 1).then(|| self.plan.step_down(missed)),
            (Some(met), Some(missed)) if !self.plan.is_close(met, missed) => Some(met.midpoint(missed)),
            (Some(met), _) => (!self.is_confirmed(met)).then_some(met),
        }
    }

    /// The lowest level that has been measured without a majority.
    fn undecided(&self) -> Option<u64> {
        self.with(Verdict::Undecided).next()
    }

    /// The highest level that counts as met, and the lowest level that was missed.
    fn bounds(&self) -> (Option<u64>, Option<u64>) {
        (self.with(Verdict::Met).last(), self.with(Verdict::Missed).next())
    }

    /// The levels with this verdict, in ascending order.
    fn with(&self, verdict: Verdict) -> impl Iterator<Item = u64> {
        let majority = self.plan.majority();
        self.levels.iter().filter(move |(_, votes)| votes.verdict(majority) == verdict).map(|(level, _)| *level)
    }

    fn is_confirmed(&self, level: u64) -> bool {
        self.levels.get(&level).is_some_and(|votes| votes.met >= self.plan.majority())
    }

    fn probe(&self, level: u64) -> Probe {
        Probe { level, warmup: self.plan.warmup, duration: self.plan.duration, run: self.runs + 1 }
    }

    /// The result of the measurements so far.
    pub fn finding(&self) -> Finding {
        let (level, missed) = self.bounds();
        Finding {
            level,
            confirmed: level.is_some_and(|level| self.is_confirmed(level)),
            missed,
            noisy: self.levels.iter().filter(|(_, votes)| votes.disagree()).map(|(level, _)| *level).collect(),
            runs: self.runs,
            ended: self.ended(level, missed),
        }
    }

    fn ended(&self, level: Option<u64>, missed: Option<u64>) -> Ended {
        let by_generator = missed.and_then(|missed| self.levels.get(&missed)).is_some_and(Votes::by_generator);
        match (level, missed) {
            _ if self.next_level().is_some() => Ended::Unfinished,
            _ if by_generator => Ended::GeneratorLimit,
            (None, _) => Ended::LowestMissed,
            (Some(_), None) => Ended::HighestMet,
            (Some(_), Some(_)) => Ended::Found,
        }
    }
}

/// How many measurements met the level, missed it, or were void.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Votes {
    met: u32,
    missed: u32,
    void: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Met,
    Missed,
    Undecided,
}

impl Votes {
    fn verdict(&self, majority: u32) -> Verdict {
        let against = self.missed + self.void;
        if against >= majority {
            Verdict::Missed
        } else if self.met >= majority || against == 0 {
            Verdict::Met
        } else {
            Verdict::Undecided
        }
    }

    fn disagree(&self) -> bool {
        self.met > 0 && self.missed + self.void > 0
    }

    fn by_generator(&self) -> bool {
        self.void > self.missed
    }
}

/// `level * factor`, rounded to the nearest whole level.
#[allow(clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "levels are under 2^53 and factors over 0")]
fn scaled(level: u64, factor: f64) -> u64 {
    (level as f64 * factor).round() as u64
}

#[cfg(test)]
mod tests;
