//! A histogram of times: exact enough for quantiles, and small enough for each second of each server.
//!
//! Its few buckets are fixed, so it is copied, sent and subtracted like any count. The load generator has one histogram
//! for a whole run, and uses `hdrhistogram` for exact times.

use std::time::Duration;

/// Counts of times, by bucket. A time equal to a bound counts in the bucket that ends there, as in Prometheus.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Histogram(pub [u32; Self::BUCKETS]);

impl Histogram {
    /// Upper bounds of the buckets, in microseconds. The last bucket has none.
    pub const BOUNDS_US: [u32; 18] = [
        100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000,
        5_000_000, 10_000_000, 20_000_000, 50_000_000,
    ];
    pub const BUCKETS: usize = Self::BOUNDS_US.len() + 1;

    /// The histogram of one time.
    pub fn of(time: Duration) -> Self {
        let mut all = Self::default();
        all.count(time);
        all
    }

    pub(crate) fn count(&mut self, time: Duration) {
        let time_us = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let bucket = &mut self.0[Self::BOUNDS_US.partition_point(|bound| *bound < time_us)];
        *bucket = bucket.wrapping_add(1);
    }

    /// Estimates the time that the share `quantile` (0 to 1) of all times did not exceed; `None` if there are none.
    /// `max` is the longest time, rounded up to a microsecond.
    ///
    /// It assumes that times are spread evenly within their bucket. The last bucket in use ends at `max`; a single time
    /// in it is `max`. From 100 µs to 50 s, an estimate is 0.4 to 2.5 times the true time, and never above `max`.
    pub fn quantile(&self, quantile: f64, max: Duration) -> Option<Duration> {
        let all: f64 = self.0.iter().map(|count| f64::from(*count)).sum();
        let rank = all * quantile;
        let max_s = max.as_secs_f64();
        let (mut below, mut from_s) = (0.0, 0.0);
        let bounds_s = Self::BOUNDS_US.iter().map(|bound_us| f64::from(*bound_us) / 1e6).chain([f64::INFINITY]);
        for (count, bound_s) in self.0.iter().map(|count| f64::from(*count)).zip(bounds_s) {
            if count > 0.0 && below + count >= rank {
                let is_last = below + count >= all;
                if is_last && count <= 1.0 {
                    return Some(max);
                }
                // A sum of counts may have wrapped around. Then the bounds may be out of order.
                let to_s = if is_last { bound_s.min(max_s).max(from_s) } else { bound_s };
                let time_s = from_s + (to_s - from_s) * ((rank - below) / count).max(0.0);
                return Some(Duration::from_secs_f64(time_s.min(max_s)));
            }
            below += count;
            from_s = bound_s;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of_all(times_us: &[u32]) -> Histogram {
        let mut all = Histogram::default();
        for time_us in times_us {
            let one = Histogram::of(Duration::from_micros((*time_us).into()));
            all.0.iter_mut().zip(one.0).for_each(|(count, more)| *count += more);
        }
        all
    }

    #[test]
    fn a_bound_belongs_to_the_bucket_that_ends_there() {
        for (bucket, bound_us) in Histogram::BOUNDS_US.into_iter().enumerate() {
            let bucket_of =
                |time_us| Histogram::of(Duration::from_micros(time_us)).0.iter().position(|count| *count == 1);
            assert_eq!(bucket_of(bound_us.into()), Some(bucket));
            assert_eq!(bucket_of(u64::from(bound_us) + 1), Some(bucket + 1));
        }
        assert_eq!(Histogram::of(Duration::ZERO).0[0], 1);
        assert_eq!(Histogram::of(Duration::MAX).0[Histogram::BUCKETS - 1], 1);
    }

    fn quantile(times_us: &[u32], quantile: f64) -> Option<Duration> {
        let max_us = times_us.iter().max().copied().unwrap_or_default();
        of_all(times_us).quantile(quantile, Duration::from_micros(max_us.into()))
    }

    #[test]
    fn quantiles_are_evenly_spread_in_a_bucket() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[[1_500; 10], [2_500; 10]].concat(), 0.25), Some(Duration::from_micros(1_500)));
        assert_eq!(quantile(&[[1_500; 10], [2_500; 10]].concat(), 0.5), Some(Duration::from_millis(2)));
    }

    /// The bound of a bucket may be above all measured times. An estimate must not be.
    #[test]
    fn nothing_takes_longer_than_the_longest() {
        const LONG_US: u32 = 15_001_000;
        let long = Some(Duration::from_micros(LONG_US.into()));
        for quantile_of in [0.0, 0.5, 0.99, 1.0] {
            assert_eq!(quantile(&[LONG_US], quantile_of), long, "alone");
            assert!(quantile(&[LONG_US; 7], quantile_of) <= long);
        }
        assert_eq!(quantile(&[LONG_US; 7], 1.0), long);
        assert_eq!(quantile(&[1_000, 1_000, LONG_US], 0.99), long);
        assert_eq!(quantile(&[1_000, 1_000, LONG_US], 0.5).map(|time| time.as_micros()), Some(875));
        assert_eq!(quantile(&[60_000_000; 2], 1.0), Some(Duration::from_mins(1)), "beyond the last bound");
        let wrapped = Histogram([u32::MAX; Histogram::BUCKETS]);
        assert_eq!(wrapped.quantile(0.99, Duration::ZERO), Some(Duration::ZERO));
    }

    proptest! {
        /// Shares that an `f64` represents exactly.
        #[test]
        fn quantiles_are_near_what_they_say_they_are(
            mut times_us in proptest::collection::vec(101..50_000_000_u32, 1..200),
            parts in 0..=64_u8,
        ) {
            let said = quantile(&times_us, f64::from(parts) / 64.0).map(|time| time.as_secs_f64() * 1e6);
            times_us.sort_unstable();
            let rank = (usize::from(parts) * times_us.len()).div_ceil(64).max(1);
            let (exact, max) = (f64::from(times_us[rank - 1]), f64::from(times_us[times_us.len() - 1]));
            prop_assert!(said.is_some_and(|said| (0.399..=2.501).contains(&(said / exact))), "{said:?} for {exact}");
            prop_assert!(said.is_some_and(|said| said <= max + 0.1), "{said:?} of {max}");
        }
    }
}
