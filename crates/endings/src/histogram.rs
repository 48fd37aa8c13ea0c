//! How many times were how long: enough for quantiles, and small enough for each second of each server.
//!
//! Its buckets are always the same few, so that it is copied, sent and taken off a sum like any count; the load generator, which has one
//! for all of a run, has `hdrhistogram` for exact times.

use std::time::Duration;

/// Counts of times, by bucket. A time that is a bound is of the bucket that ends there, as in Prometheus.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Histogram(pub [u32; Self::BUCKETS]);

impl Histogram {
    /// Where each bucket ends, in microseconds; the last one does not.
    pub const BOUNDS_US: [u32; 18] = [
        100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000,
        5_000_000, 10_000_000, 20_000_000, 50_000_000,
    ];
    /// How many buckets there are.
    pub const BUCKETS: usize = Self::BOUNDS_US.len() + 1;

    /// Of one time.
    pub fn of(time: Duration) -> Self {
        let mut counts = [0; Self::BUCKETS];
        counts[Self::BOUNDS_US.partition_point(|bound| u128::from(*bound) < time.as_micros())] = 1;
        Self(counts)
    }

    /// What the share `quantile`, 0 to 1, of all times were at most; `None` without any.
    ///
    /// Times are taken for evenly spread in their bucket: from 100 µs to 50 s, what is said is 0.4 to 2.5 times what it was. Of the
    /// last bucket its beginning is said.
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let all: f64 = self.0.iter().map(|count| f64::from(*count)).sum();
        let rank = all * quantile;
        let (mut below, mut from_s) = (0.0, 0.0);
        for (count, bound_us) in self.0.iter().zip(Self::BOUNDS_US) {
            let (count, to_s) = (f64::from(*count), f64::from(bound_us) / 1e6);
            if count > 0.0 && below + count >= rank {
                return Some(Duration::from_secs_f64(from_s + (to_s - from_s) * (rank - below) / count));
            }
            below += count;
            from_s = to_s;
        }
        (all > 0.0).then(|| Duration::from_secs_f64(from_s))
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

    #[test]
    fn quantiles_are_evenly_spread_in_a_bucket() {
        assert_eq!(Histogram::default().quantile(0.5), None);
        let of_one_bucket = of_all(&[1_500; 10]);
        assert_eq!(of_one_bucket.quantile(0.5), Some(Duration::from_micros(1_500)));
        assert_eq!(of_one_bucket.quantile(1.0), Some(Duration::from_millis(2)));
        let endless = of_all(&[60_000_000]);
        assert_eq!(endless.quantile(0.5), Some(Duration::from_secs(50)));
    }

    proptest! {
        /// Of shares that a double has exactly.
        #[test]
        fn quantiles_are_near_what_they_say_they_are(
            mut times_us in proptest::collection::vec(101..50_000_000_u32, 1..200),
            parts in 0..=64_u8,
        ) {
            let said = of_all(&times_us).quantile(f64::from(parts) / 64.0).map(|time| time.as_secs_f64() * 1e6);
            times_us.sort_unstable();
            let rank = (usize::from(parts) * times_us.len()).div_ceil(64).max(1);
            let exact = f64::from(times_us[rank - 1]);
            prop_assert!(said.is_some_and(|said| (0.399..=2.501).contains(&(said / exact))), "{said:?} for {exact}");
        }
    }
}
