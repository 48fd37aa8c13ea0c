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
//! Nothing is remembered but what was measured; where in this picture the search stands follows from that ([`Search::poll`]).
//!
//! **Noise.** A level is missed when most of `repeats` measurements missed it. It is taken for met after one that met it, because
//! the next level up will tell; but the answer is measured again until most of `repeats` say so. Whatever got one measurement of
//! each kind is repeated until there is a majority.
//!
//! **Monotony.** A server that misses a level is not trusted with a higher one. So where a level is missed that was met before,
//! that a higher one was met too counts for nothing any more: the search goes on below. The [`Finding`] names the levels that
//! measurements disagreed on. At any time every level that counts as met lies below every one that was missed, because no level
//! outside the two is asked for.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

/// What is searched, and how thoroughly.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The first level, at least 1.
    pub from: u64,
    /// The highest level, at most [`LEVEL_MAX`].
    pub to: u64,
    /// How the level rises until one is missed.
    pub step: Step,
    /// How close the answer shall be to a level that was missed, as a share of the answer: 0.02.
    pub resolution: f64,
    /// Of how many measurements of a level most decide. Odd, so that there is a majority.
    pub repeats: u32,
    /// How many measurements there may be in all.
    pub runs_max: u32,
    /// How long a level is held before it is measured.
    pub warmup: Duration,
    /// How long it is measured.
    pub duration: Duration,
}

/// How the level rises until one is missed, and falls until one is met.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Times this, over 1.
    Factor(f64),
    /// Plus this, at least 1.
    Increment(u64),
}

/// A search that is going on. Drive it so: ask [`Search::poll`] what to measure, measure it, [`Search::report`] what came out, and
/// so on until the answer is [`Next::Done`].
#[derive(Clone, Debug)]
pub struct Search {
    plan: Plan,
    levels: BTreeMap<u64, Votes>,
    runs: u32,
    asked: Option<u64>,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Measure this.
    Probe(Probe),
    /// There is nothing more to measure.
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
    /// The how manieth measurement this is of all, from 1.
    pub run: u32,
}

/// What a measurement showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The server met every condition.
    Met,
    /// It missed one.
    Missed,
    /// The generator could not make this load, so the server was not tried. The search goes on as if it was missed: no higher level
    /// can be tried either.
    Void,
}

/// What the search came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The highest level that meets the conditions; `None` if not even the lowest does.
    pub level: Option<u64>,
    /// Whether most of the repeats said so; if the measurements ran out, it may have been only one.
    pub confirmed: bool,
    /// The lowest level that misses them; `None` if none was missed.
    pub missed: Option<u64>,
    /// The levels that were met by some measurements and missed by others.
    pub noisy: Vec<u64>,
    /// How many measurements it took.
    pub runs: u32,
    /// Why it ended here.
    pub ended: Ended,
}

/// Why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The server's limit was found.
    Found,
    /// The generator's limit was found: the server may take more.
    GeneratorLimit,
    /// The highest level of the plan is met: the server may take more.
    HighestMet,
    /// The lowest level there is was missed.
    LowestMissed,
    /// The server did not even answer single requests, so nothing was measured.
    Unanswered,
    /// There was more to measure: as many measurements were made as are allowed, or the search was broken off.
    Unfinished,
}

/// A step as text, which is neither `x1.5` nor `+100`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a step is a factor over 1, such as x1.5, or an increment, such as +100")]
pub struct NoStep;

/// A plan that cannot be followed, which whoever made it is to blame for.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The levels are out of order or of range.
    #[error("levels go from at least 1 to at most {LEVEL_MAX}, not from {0} to {1}")]
    Levels(u64, u64),
    /// The step goes nowhere.
    #[error("a step must raise the level: a factor over 1, or an increment of at least 1")]
    Step,
    /// The resolution is out of range.
    #[error("the resolution is a share over 0 and under 1, not {0}")]
    Resolution(f64),
    /// There is no majority.
    #[error("the number of repeats is odd, so that most of them say the same; {0} is not")]
    Repeats(u32),
    /// Nothing can be measured.
    #[error("not even one level can be decided by {0} measurements")]
    Runs(u32),
    /// Nothing can be measured.
    #[error("a level cannot be measured in no time")]
    Duration,
}

/// The highest level a plan may have.
pub const LEVEL_MAX: u64 = 1_000_000_000;

impl FromStr for Step {
    type Err = NoStep;

    /// `x1.5`, `+100`
    fn from_str(text: &str) -> Result<Self, NoStep> {
        let factor = text.strip_prefix('x').and_then(|factor| factor.parse().ok()).map(Self::Factor);
        let increment = || text.strip_prefix('+').and_then(|increment| increment.parse().ok()).map(Self::Increment);
        factor.or_else(increment).filter(|step| step.rises()).ok_or(NoStep)
    }
}

impl Step {
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
            _ if !self.step.rises() => Err(PlanError::Step),
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
            Step::Factor(factor) => scaled(level, factor),
            Step::Increment(increment) => level.saturating_add(increment),
        };
        raised.max(level + 1).min(self.to)
    }

    fn step_down(&self, level: u64) -> u64 {
        let lowered = match self.step {
            Step::Factor(factor) => scaled(level, factor.recip()),
            Step::Increment(increment) => level.saturating_sub(increment),
        };
        lowered.min(level - 1).max(1)
    }

    /// Whether nothing that matters lies between a level that is met and one that is missed.
    fn is_close(&self, met: u64, missed: u64) -> bool {
        missed - met <= scaled(met, self.resolution).max(1)
    }
}

impl Search {
    /// Begins a search.
    pub fn new(plan: Plan) -> Result<Self, PlanError> {
        plan.check()?;
        Ok(Self { plan, levels: BTreeMap::new(), runs: 0, asked: None })
    }

    /// What to measure now, or what has been found. Asking again changes nothing.
    pub fn poll(&mut self) -> Next {
        let level = self.next_level().filter(|_| self.runs < self.plan.runs_max);
        self.asked = level;
        match level {
            Some(level) => Next::Probe(self.probe(level)),
            None => Next::Done(self.finding()),
        }
    }

    /// Says what the measurement that was asked for last has shown. Without such, nothing happens.
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

    /// The picture above, line by line. `None`: there is nothing more to learn.
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

    /// The level that has been measured but not decided.
    fn undecided(&self) -> Option<u64> {
        self.with(Verdict::Undecided).next()
    }

    /// The highest level that counts as met, and the lowest that was missed.
    fn bounds(&self) -> (Option<u64>, Option<u64>) {
        (self.with(Verdict::Met).last(), self.with(Verdict::Missed).next())
    }

    /// The levels that a verdict was found on, from the lowest on.
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

    /// What is known so far.
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

/// How often a level was met, missed, and not reached.
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

/// A level times a factor, to the next whole one.
#[allow(clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "levels are under 2^53 and factors over 0")]
fn scaled(level: u64, factor: f64) -> u64 {
    (level as f64 * factor).round() as u64
}

#[cfg(test)]
mod tests;
