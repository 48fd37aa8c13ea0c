//! Many durations, as a histogram.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Durations, kept to three significant digits in nanoseconds (an HDR histogram). Takes no memory until there is one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    histogram: Option<Box<Histogram<u64>>>,
}

impl Times {
    /// Counts one. What is longer than 104 days counts as that.
    pub fn record(&mut self, time: Duration) {
        let made = self.histogram.get_or_insert_with(|| Box::new(empty()));
        made.record(nanoseconds(time)).expect("it grows up to the longest");
    }

    /// Counts one where there is one.
    pub fn record_if(&mut self, time: Option<Duration>) {
        if let Some(time) = time {
            self.record(time);
        }
    }

    /// Adds those of another one.
    pub fn merge(&mut self, other: &Self) {
        let Some(theirs) = &other.histogram else { return };
        match &mut self.histogram {
            Some(ours) => ours.add(theirs.as_ref()).expect("it grows to hold the other's"),
            none => *none = Some(theirs.clone()),
        }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.histogram.as_ref().map_or(0, |times| times.len())
    }

    /// The smallest time that the share `quantile` (0 to 1) of all do not exceed; `None`: there is none.
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        self.histogram().map(|times| Duration::from_nanos(times.value_at_quantile(quantile)))
    }

    /// The mean; `None`: there is none.
    pub fn mean(&self) -> Option<Duration> {
        self.histogram().map(|times| Duration::from_secs_f64(times.mean() / 1e9))
    }

    /// The shortest; `None`: there is none.
    pub fn min(&self) -> Option<Duration> {
        self.histogram().map(|times| Duration::from_nanos(times.min()))
    }

    /// The longest; `None`: there is none.
    pub fn max(&self) -> Option<Duration> {
        self.histogram().map(|times| Duration::from_nanos(times.max()))
    }

    /// The histogram, in nanoseconds; `None`: there is no time in it.
    pub fn histogram(&self) -> Option<&Histogram<u64>> {
        self.histogram.as_deref()
    }
}

/// A time as histograms here take it.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(LONGEST_NS).min(LONGEST_NS)
}

fn empty() -> Histogram<u64> {
    Histogram::new(SIGNIFICANT_DIGITS).expect("so many digits are possible")
}

const SIGNIFICANT_DIGITS: u8 = 3;
/// Still exact as a floating-point number.
const LONGEST_NS: u64 = 1 << 53;

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

    proptest! {
            #[test]
            fn quantiles_are_right_to_three_digits(mut nanos in prop::collection::vec(0..=LONGEST_NS, 1..200), permille in 0..=1_000_u32) {
                let mut times = Times::default();
                for at in &nanos {
     times.record(Duration::from_nanos(*at));
    }
                nanos.sort_unstable();
                let rank = (permille as usize * nanos.len()).div_ceil(1_000).max(1);
                let found = times.quantile(f64::from(permille) / 1_000.0).unwrap();
                let exact = Duration::from_nanos(nanos[rank - 1]);
                prop_assert!(found.abs_diff(exact) <= exact / 1_000 + Duration::from_nanos(1), "{found:?} {exact:?}");
            }

            #[test]
            fn merging_is_recording_all(left in prop::collection::vec(any::<Duration>(), 0..20), right in prop::collection::vec(any::<Duration>(), 0..20)) {
                let of = |all: &[Duration]| {
                    let mut times = Times::default();
                    for time in all {
     times.record(*time);
    }
                    times
                };
                let mut merged = of(&left);
                merged.merge(&of(&right));
                let all = of(&[left, right].concat());
                prop_assert_eq!(merged.histogram(), all.histogram());
            }
        }
}
