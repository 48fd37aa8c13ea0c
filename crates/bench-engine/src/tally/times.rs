//! A histogram of durations.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Durations in nanoseconds. Mean, minimum and maximum are exact. The others have three significant digits (an HDR
/// histogram).
///
/// An empty value takes hardly any memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    histogram: Option<Box<Histogram<u64>>>,
    /// In nanoseconds.
    sum: u128,
    min: Duration,
    max: Duration,
}

impl Times {
    /// Counts a duration. A duration over 104 days counts as 104 days.
    pub fn record(&mut self, time: Duration) {
        let time = time.min(LONGEST);
        let fresh = self.histogram.is_none();
        let made = self.histogram.get_or_insert_with(|| Box::new(empty()));
        made.record(nanoseconds(time)).expect("it grows up to the longest");
        self.sum += time.as_nanos();
        self.min = if fresh { time } else { self.min.min(time) };
        self.max = self.max.max(time);
    }

    /// Counts a duration unless it is `None`.
    pub fn record_if(&mut self, time: Option<Duration>) {
        if let Some(time) = time {
            self.record(time);
        }
    }

    /// Adds the durations of `other`.
    pub fn merge(&mut self, other: &Self) {
        let Some(theirs) = &other.histogram else { return };
        let Some(ours) = &mut self.histogram else { return self.clone_from(other) };
        ours.add(theirs.as_ref()).expect("it grows to hold the other's");
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.histogram.as_ref().map_or(0, |times| times.len())
    }

    /// The smallest time that the share `quantile` (0 to 1) of all do not exceed. `None` if empty.
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let time = self.histogram.as_ref()?.value_at_quantile(quantile);
        Some(Duration::from_nanos(time).clamp(self.min, self.max))
    }

    /// `None` if empty.
    pub fn mean(&self) -> Option<Duration> {
        let mean = self.sum.checked_div(u128::from(self.count()))?;
        Some(Duration::from_nanos(u64::try_from(mean).expect("none is longer than the longest")))
    }

    /// The shortest duration. `None` if empty.
    pub fn min(&self) -> Option<Duration> {
        self.histogram.as_ref().map(|_| self.min)
    }

    /// The longest duration. `None` if empty.
    pub fn max(&self) -> Option<Duration> {
        self.histogram.as_ref().map(|_| self.max)
    }

    /// The parts of this value. `None` if empty.
    pub(super) fn to_raw(&self) -> Option<Raw> {
        let histogram = Histogram::clone(self.histogram.as_deref()?);
        Some(Raw { histogram, sum: self.sum, min: self.min, max: self.max })
    }

    /// Builds a value from its parts. `None` if they are not consistent.
    pub(super) fn from_raw(raw: Raw) -> Option<Self> {
        let Raw { histogram, sum, min, max } = raw;
        let count = histogram.len();
        let possible = (1..=COUNT_MAX).contains(&count)
            && histogram.sigfig() == SIGNIFICANT_DIGITS
            && (min <= max && max <= LONGEST)
            && histogram.max() <= histogram.highest_equivalent(nanoseconds(LONGEST))
            && (min.as_nanos() * u128::from(count)..=max.as_nanos() * u128::from(count)).contains(&sum);
        possible.then(|| Self { histogram: Some(Box::new(histogram)), sum, min, max })
    }

    /// The histogram in nanoseconds. `None` if empty.
    pub fn histogram(&self) -> Option<&Histogram<u64>> {
        self.histogram.as_deref()
    }
}

/// The parts of [`Times`].
#[derive(Clone, Debug)]
pub(super) struct Raw {
    pub(super) histogram: Histogram<u64>,
    /// In nanoseconds.
    pub(super) sum: u128,
    pub(super) min: Duration,
    pub(super) max: Duration,
}

/// A time in nanoseconds, for histograms. A time over [`LONGEST`] counts as [`LONGEST`].
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.min(LONGEST).as_nanos()).expect("so many fit")
}

fn empty() -> Histogram<u64> {
    Histogram::new(SIGNIFICANT_DIGITS).expect("so many digits are possible")
}

const SIGNIFICANT_DIGITS: u8 = 3;
/// More than any real count, and low enough that thousands of such counts can be added.
pub(super) const COUNT_MAX: u64 = 1 << 50;
/// 104 days. As a floating-point number, the nanoseconds are still exact.
const LONGEST: Duration = Duration::from_nanos(1 << 53);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn there_is_nothing_in_nothing() {
        let mut none = Times::default();
        none.merge(&Times::default());
        none.record_if(None);
        assert_eq!(
            (none.count(), none.min(), none.mean(), none.quantile(0.5), none.max()),
            (0, None, None, None, None)
        );
    }

    #[test]
    fn the_mean_and_the_ends_are_exact() {
        let mut times = Times::default();
        for nanos in [123_456_789, 400_000_000, 987_654_321] {
            times.record(Duration::from_nanos(nanos));
        }
        let nanos = |time: Option<Duration>| time.unwrap().as_nanos();
        assert_eq!(
            (nanos(times.min()), nanos(times.mean()), nanos(times.max())),
            (123_456_789, 503_703_703, 987_654_321)
        );
        assert_eq!(times.quantile(1.0), times.max());
    }

    proptest! {
        #[test]
        fn quantiles_are_right_to_three_digits(
            mut nanos in prop::collection::vec(0..=1_u64 << 53, 1..200),
            permille in 0..=1_000_u32,
        ) {
            let times = of(nanos.iter().map(|nanos| Duration::from_nanos(*nanos)));
            nanos.sort_unstable();
            let at = permille as usize * nanos.len();
            let rank = at.div_ceil(1_000).max(1);
            let found = times.quantile(f64::from(permille) / 1_000.0).unwrap();
            let is = |rank: usize| {
                let exact = Duration::from_nanos(nanos[rank - 1]);
                found.abs_diff(exact) <= exact / 1_000 + Duration::from_nanos(1)
            };
            // With a rank exactly between two values, rounding of floating-point numbers may select either.
            prop_assert!(is(rank) || at.is_multiple_of(1_000) && is((rank + 1).min(nanos.len())), "{found:?}");
        }

        #[test]
        fn merging_is_recording_all(
            left in prop::collection::vec(any::<Duration>(), 0..20),
            right in prop::collection::vec(any::<Duration>(), 0..20),
        ) {
            let mut merged = of(left.iter().copied());
            merged.merge(&of(right.iter().copied()));
            prop_assert_eq!(merged, of(left.into_iter().chain(right)));
        }
    }

    fn of(all: impl Iterator<Item = Duration>) -> Times {
        let mut times = Times::default();
        for time in all {
            times.record(time);
        }
        times
    }
}
