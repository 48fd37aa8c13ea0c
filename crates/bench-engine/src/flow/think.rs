//! Think times: how long a user waits before the next request.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;

use crate::shares::Shares;

/// The time before a request, counted from the end of the response before it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Think {
    /// Always the same.
    Fixed(Duration),
    /// Uniformly distributed between two times.
    Uniform(Duration, Duration),
    /// A list of times, each for the same number of users.
    Shares(Shares),
    /// Exponentially distributed with this mean, as between independent events.
    Exponential(Duration),
}

impl Think {
    /// Draws the time of the user with this number.
    pub(super) fn draw(&self, user: u64, rng: &mut Xoshiro256PlusPlus) -> Duration {
        match self {
            Self::Fixed(time) => *time,
            Self::Uniform(from, to) => from.saturating_add(to.saturating_sub(*from).mul_f64(rng.random())),
            Self::Shares(shares) => shares.of(user),
            Self::Exponential(mean) => mean.mul_f64(-(1.0 - rng.random::<f64>()).ln()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use rand::SeedableRng;

    use super::*;

    fn mean_s(think: &Think) -> f64 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        (0..20_000).map(|user| think.draw(user, &mut rng).as_secs_f64()).sum::<f64>() / 20_000.0
    }

    #[test]
    fn times_have_the_mean_they_should() {
        let s = Duration::from_secs;
        let shares = Shares::new(vec![s(1), s(2), s(9)], 5).unwrap();
        assert!((mean_s(&Think::Fixed(s(3))) - 3.0).abs() < 1e-9);
        assert!((mean_s(&Think::Shares(shares)) - 4.0).abs() < 0.001);
        assert!((mean_s(&Think::Uniform(s(2), s(4))) - 3.0).abs() < 0.02);
        assert!((mean_s(&Think::Exponential(s(3))) - 3.0).abs() < 0.1);
    }

    proptest! {
        #[test]
        fn uniform_times_are_in_between(from in 0_u64..100, more in 0_u64..100, seed: u64) {
            let (from, to) = (Duration::from_secs(from), Duration::from_secs(from + more));
            let time = Think::Uniform(from, to).draw(0, &mut Xoshiro256PlusPlus::seed_from_u64(seed));
            prop_assert!((from..=to).contains(&time));
        }
    }
}
