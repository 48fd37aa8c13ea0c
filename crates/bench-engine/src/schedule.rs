//! When the requests of an open loop are due.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "ramps and intervals are computed in floating point, from numbers that are in range and not negative"
)]

use std::str::FromStr;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use crate::duration::Span;
use crate::excerpt::excerpt;

/// The times at which arrivals are due, independent of the server. They are counted from the start of the run and never
/// decrease. The sequence has no end, unless a ramp ends at a rate of 0.
///
/// [`Schedule::share`] deals out the arrivals of one schedule to threads, and again among machines. The shares together
/// are all arrivals of the schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    rate: Rate,
    spacing: Spacing,
    /// The number of this share's first arrival.
    first: u64,
    /// The distance between the numbers of this share's arrivals.
    every: u64,
}

impl Schedule {
    /// All arrivals at a rate.
    pub fn new(rate: Rate, spacing: Spacing) -> Self {
        Self { rate, spacing, first: 0, every: 1 }
    }

    /// Arrivals `index`, `index + of`, `index + 2 * of` and so on of this schedule: the share of thread `index` of
    /// `of`.
    #[must_use]
    pub fn share(self, index: u64, of: u64) -> Self {
        assert!(index < of, "share {index} of {of}");
        Self { first: self.first + index * self.every, every: self.every * of, ..self }
    }

    /// The rate of the whole schedule, of which this may be a share.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    pub fn spacing(&self) -> Spacing {
        self.spacing
    }

    /// The share of the whole schedule: the number of its first arrival, and the distance between its arrivals.
    pub fn part(&self) -> (u64, u64) {
        (self.first, self.every)
    }

    /// The times of the arrivals, from the first on.
    pub fn times(&self) -> DueTimes {
        let random = match self.spacing {
            Spacing::Even => None,
            Spacing::Poisson { seed } => Some(Xoshiro256PlusPlus::seed_from_u64(seed)),
        };
        DueTimes { schedule: *self, next: self.first, random, position: 0, drawn: 0, last: Duration::ZERO }
    }
}

/// The average number of arrivals per second.
///
/// Written as `800`, or as `100..2000/60s`: from 100 to 2,000 within 60 seconds, then constant at 2,000.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// At the start, in millionths of an arrival per second.
    from: u64,
    /// At the end of the ramp and afterwards, in millionths of an arrival per second.
    to: u64,
    /// The duration of the ramp. 0: no ramp.
    over: Duration,
}

impl Rate {
    /// A constant rate in arrivals per second, from 0.001 to 10 million.
    pub fn constant(per_second: f64) -> Result<Self, RateError> {
        Self::ramp(per_second, per_second, Duration::ZERO)
    }

    /// A rate that changes linearly from `from` to `to` arrivals per second within `over`, and then stays at `to`. One
    /// of both may be 0.
    pub fn ramp(from: f64, to: f64, over: Duration) -> Result<Self, RateError> {
        let rate = Self { from: millionths(from)?, to: millionths(to)?, over };
        if over > RAMP_MAX {
            return Err(RateError::Ramp);
        }
        let needed = if over.is_zero() { rate.to } else { rate.from.max(rate.to) };
        if needed < RATE_MIN { Err(RateError::Range) } else { Ok(rate) }
    }

    /// The arguments that [`Rate::ramp`] takes.
    pub fn as_ramp(&self) -> (f64, f64, Duration) {
        (per_second(self.from), per_second(self.to), self.over)
    }

    /// Arrivals per second at a time after the start.
    pub fn at(&self, time: Duration) -> f64 {
        let (from, to) = (per_second(self.from), per_second(self.to));
        if time < self.over { from + (to - from) * time.div_duration_f64(self.over) } else { to }
    }

    /// When `position` arrivals are over, in billionths of an arrival. `None` if a ramp to 0 ends before.
    fn time_of(&self, position: u128) -> Option<Duration> {
        let in_ramp = (u128::from(self.from) + u128::from(self.to)) * self.over.as_nanos() / 2_000_000;
        if position >= in_ramp {
            return self.over.checked_add(evenly(position - in_ramp, self.to)?);
        }
        // Solved for t: from * t + (to - from) / over * t^2 / 2 = position. This form loses no digits if both rates are
        // close.
        let arrivals = position as f64 / 1e9;
        let (from, to) = (per_second(self.from), per_second(self.to));
        let growth = (to - from) / self.over.as_secs_f64();
        let root = (from * from + 2.0 * growth * arrivals).max(0.0).sqrt();
        let seconds = if arrivals == 0.0 { 0.0 } else { 2.0 * arrivals / (from + root) };
        Some(Duration::try_from_secs_f64(seconds).ok()?.min(self.over))
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let bad = || RateError::Unreadable { text: excerpt(text) };
        let number = |text: &str| text.trim().parse::<f64>().map_err(|_| bad());
        let Some((from, rest)) = text.split_once("..") else { return Self::constant(number(text)?) };
        let (to, over) = rest.split_once('/').ok_or_else(bad)?;
        let over = over.trim().parse::<Span>().map_err(|_| bad())?.get();
        if over.is_zero() { Err(RateError::Ramp) } else { Self::ramp(number(from)?, number(to)?, over) }
    }
}

/// How arrivals are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// At equal intervals. The first arrival is at the start.
    Even,
    /// At random, like the arrivals of many independent users: a Poisson process.
    Poisson {
        /// Equal seeds give equal arrivals.
        seed: u64,
    },
}

/// The times of a [`Schedule`], from the start of the run.
///
/// Each is computed from the number of its arrival, not from the previous time, so that errors do not add up.
#[derive(Clone, Debug)]
pub struct DueTimes {
    schedule: Schedule,
    /// The number of the next arrival.
    next: u64,
    /// `Some` if the spacing is random.
    random: Option<Xoshiro256PlusPlus>,
    /// The number of arrivals expected before the one drawn last, in billionths.
    position: u128,
    /// The number of arrivals drawn.
    drawn: u64,
    last: Duration,
}

impl DueTimes {
    fn position(&mut self) -> u128 {
        let Some(random) = &mut self.random else { return u128::from(self.next) * BILLION };
        // The arrivals of the other shares are drawn, too, so that all shares together are one process.
        while self.drawn <= self.next {
            // 1 - random() is never 0. Intervals between arrivals are distributed exponentially with a mean of 1.
            let interval = -(1.0 - random.random::<f64>()).ln();
            self.position += (interval * 1e9).round() as u128;
            self.drawn += 1;
        }
        self.position
    }
}

impl Iterator for DueTimes {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let position = self.position();
        // The solution for the time in a ramp may be off by the last digit of a floating-point number.
        self.last = self.schedule.rate.time_of(position)?.max(self.last);
        self.next = self.next.checked_add(self.schedule.every)?;
        Some(self.last)
    }
}

/// A rate is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// The text is neither a number nor a ramp.
    #[error("{text:?} is not a rate such as 800, or 100..2000/60s for a ramp")]
    Unreadable { text: String },
    /// The rate is too low for a single arrival in a run, or higher than any machine can generate.
    #[error("a rate is from 0.001 to 10000000 a second")]
    Range,
    /// The ramp takes no time, or too long.
    #[error("a ramp takes more than 0 s and at most 7 days")]
    Ramp,
}

fn millionths(per_second: f64) -> Result<u64, RateError> {
    if (0.0..=RATE_MAX).contains(&per_second) { Ok((per_second * 1e6).round() as u64) } else { Err(RateError::Range) }
}

fn per_second(millionths: u64) -> f64 {
    millionths as f64 / 1e6
}

/// How long `position` billionths of an arrival take at `rate` millionths of an arrival per second.
fn evenly(position: u128, rate: u64) -> Option<Duration> {
    let nanos = (position * 1_000_000).checked_div(u128::from(rate))?;
    Some(Duration::new(u64::try_from(nanos / BILLION).ok()?, (nanos % BILLION) as u32))
}

/// In arrivals per second.
const RATE_MAX: f64 = 1e7;
/// In millionths of an arrival per second.
const RATE_MIN: u64 = 1000;
const RAMP_MAX: Duration = Duration::from_hours(7 * 24);
const BILLION: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    fn even(text: &str) -> DueTimes {
        Schedule::new(rate(text), Spacing::Even).times()
    }

    fn poisson(text: &str, seed: u64) -> Schedule {
        Schedule::new(rate(text), Spacing::Poisson { seed })
    }

    #[test]
    fn a_constant_rate_is_even() {
        let times: Vec<_> = even("800").take(4).collect();
        assert_eq!(times, [0, 1_250_000, 2_500_000, 3_750_000].map(Duration::from_nanos));
        assert_eq!(even("0.5").nth(3), Some(Duration::from_secs(6)));
    }

    #[test]
    fn nothing_drifts_over_hours() {
        // An error of a third of a nanosecond per arrival would be 3.6 s after 10 hours at 300,000 arrivals per second.
        let ten_hours = 36_000 * 300_000;
        let schedule = Schedule::new(rate("300000"), Spacing::Even).share(ten_hours, ten_hours + 1);
        assert_eq!(schedule.times().next(), Some(Duration::from_hours(10)));
    }

    #[test]
    fn a_ramp_grows_evenly() {
        // (100 + 2,000) / 2 * 60 arrivals in the ramp, 2,000 per second afterwards.
        let times: Vec<_> = even("100..2000/60s").take(63_000 + 2001).collect();
        assert_eq!(times[63_000], Duration::from_mins(1));
        assert_eq!(times[65_000], Duration::from_secs(61));
        // 100 * 30 + 950 * 30 / 2 = 17,250 arrivals in the first half.
        assert_eq!(times[17_250], Duration::from_secs(30));
        let in_first = times.iter().filter(|time| **time < Duration::from_secs(1)).count();
        assert_eq!(in_first, 116);
    }

    #[test]
    fn a_ramp_may_begin_or_end_at_nothing() {
        assert_eq!(even("0..10/10s").nth(50), Some(Duration::from_secs(10)));
        assert_eq!(even("0..10/10s").next(), Some(Duration::ZERO));
        let down: Vec<_> = even("10..0/10s").collect();
        assert_eq!(down.len(), 50);
        assert!(down[49] < Duration::from_secs(10) && down[49] > Duration::from_secs(8));
    }

    #[test]
    fn the_rate_is_told() {
        let rate = rate("100..2000/60s");
        let at = [0, 30, 60, 90].map(|second| rate.at(Duration::from_secs(second)).round() as u64);
        assert_eq!(at, [100, 1050, 2000, 2000]);
    }

    #[test]
    fn poisson_arrivals_have_their_rate_and_spread() {
        // The number of arrivals per second has mean and variance 1,000. Over 1,000 seconds the bounds are 5 standard
        // errors away.
        let mut counts = vec![0_u32; 1000];
        let second = |time: Duration| time.as_secs() as usize;
        for time in poisson("1000", 7).times().map(second).take_while(|second| *second < 1000) {
            counts[time] += 1;
        }
        let mean = f64::from(counts.iter().sum::<u32>()) / 1000.0;
        let variance = counts.iter().map(|count| (f64::from(*count) - mean).powi(2)).sum::<f64>() / 999.0;
        assert!((mean - 1000.0).abs() < 5.0, "{mean}");
        assert!((variance - 1000.0).abs() < 5.0 * 1000.0 * (2.0_f64 / 999.0).sqrt(), "{variance}");
    }

    #[test]
    fn a_seed_repeats_its_arrivals() {
        let first = |seed| poisson("1000", seed).times().take(100).collect::<Vec<_>>();
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for text in ["", "x", "1..2", "1..2/", "1..2/x", "1..x/1s"] {
            assert_eq!(text.parse::<Rate>(), Err(RateError::Unreadable { text: text.into() }));
        }
        for text in ["0", "-1", "0.0001", "nan", "inf", "1e8", "0..0/1s", "1..-1/1s"] {
            assert_eq!(text.parse::<Rate>(), Err(RateError::Range), "{text}");
        }
        for text in ["1..2/0s", "1..2/169h"] {
            assert_eq!(text.parse::<Rate>(), Err(RateError::Ramp));
        }
    }

    fn any_schedule() -> impl Strategy<Value = Schedule> {
        let rate = (0.1..1e6, 0.1..1e6, 0_u64..100_000);
        (rate, prop::option::of(any::<u64>())).prop_map(|((from, to, over), seed)| {
            let rate = Rate::ramp(from, to, Duration::from_millis(over)).unwrap();
            Schedule::new(rate, seed.map_or(Spacing::Even, |seed| Spacing::Poisson { seed }))
        })
    }

    proptest! {
        #[test]
        fn times_never_decrease(schedule in any_schedule()) {
            prop_assert!(schedule.times().take(2000).is_sorted());
        }

        #[test]
        fn shares_make_up_the_whole(schedule in any_schedule(), machines in 1_u64..4, threads in 1_u64..4) {
            let each = 50;
            let mut dealt: Vec<_> = (0..machines)
                .flat_map(|machine| (0..threads).map(move |thread| (machine, thread)))
                .flat_map(|(machine, thread)| schedule.share(machine, machines).share(thread, threads).times().take(each))
                .collect();
            dealt.sort();
            let whole: Vec<_> = schedule.times().take(each * (machines * threads) as usize).collect();
            prop_assert_eq!(dealt, whole);
        }

        #[test]
        fn as_many_arrive_in_a_ramp_as_its_area(from in 0.1..1e4, to in 0.1..1e4, over in 1_u64..100) {
            let over = Duration::from_secs(over);
            let area = f64::midpoint(from, to) * over.as_secs_f64();
            prop_assume!(area < 1e5);
            let schedule = Schedule::new(Rate::ramp(from, to, over).unwrap(), Spacing::Even);
            let arrived = schedule.times().take_while(|time| *time < over).count() as f64;
            prop_assert!((arrived - area).abs() <= 1.001, "{arrived} {area}");
        }
    }
}
