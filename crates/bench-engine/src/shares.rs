//! Times that are shared out among users.

use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;

/// Times that users get in equal shares. In each row of `times().len()` consecutive users, every user gets another
/// element of the list. The seed selects a new order for each row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    times: Vec<Duration>,
    seed: u64,
}

/// The list is empty or too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a list of times has 1 to {TIMES_MAX} entries")]
pub struct SharesError;

impl Shares {
    /// A time that is in `times` several times is given out that often.
    pub fn new(times: Vec<Duration>, seed: u64) -> Result<Self, SharesError> {
        if (1..=TIMES_MAX).contains(&times.len()) { Ok(Self { times, seed }) } else { Err(SharesError) }
    }

    pub fn times(&self) -> &[Duration] {
        &self.times
    }

    /// The seed of the orders.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The time of user number `user`.
    pub fn of(&self, user: u64) -> Duration {
        let row_length = self.times.len() as u64;
        let mut row = self.times.clone();
        row.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(self.seed ^ (user / row_length).rotate_left(32)));
        row[(user % row_length) as usize]
    }
}

const TIMES_MAX: usize = 100;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shares_come_in_an_order_that_the_seed_decides() {
        let orders: Vec<Vec<_>> = (0..10)
            .map(|seed| {
                let shares = Shares::new((1..=8).map(Duration::from_secs).collect(), seed).unwrap();
                (0..16).map(|user| shares.of(user)).collect()
            })
            .collect();
        assert!(orders.windows(2).any(|pair| pair[0] != pair[1]));
        assert!(orders.iter().any(|order| order[..8] != order[8..]));
    }

    #[test]
    fn nothing_cannot_be_shared() {
        assert_eq!(Shares::new(Vec::new(), 0), Err(SharesError));
    }

    proptest! {
        #[test]
        fn shares_are_equal(length in 1_u64..20, seed: u64, rows in 0_u64..1000) {
            let times: Vec<_> = (0..length).map(Duration::from_secs).collect();
            let shares = Shares::new(times.clone(), seed).unwrap();
            let mut row: Vec<_> = (rows * length..(rows + 1) * length).map(|user| shares.of(user)).collect();
            row.sort();
            prop_assert_eq!(row, times);
        }
    }
}
