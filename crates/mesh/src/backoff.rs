//! The pauses between attempts to connect.

use std::time::Duration;

/// Pauses that double from `min` to `max`. Each is shortened at random by up to half, so that nodes which lost the same
/// peer do not all return to it at once.
pub(crate) struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, next: min }
    }

    /// The next pause. `random` is any number.
    pub(crate) fn pause(&mut self, random: u32) -> Duration {
        let full = self.next;
        self.next = full.saturating_mul(2).min(self.max);
        full.saturating_sub((full / 2).mul_f64(f64::from(random) / f64::from(u32::MAX)))
    }

    /// Starts again with the shortest pause if the last link lasted for `max` or longer. A shorter link is no success.
    pub(crate) fn after_link(&mut self, lifetime: Duration) {
        if lifetime >= self.max {
            self.next = self.min;
        }
    }
}

/// Returns 0 if the system provides no randomness. Then the pauses are not spread.
pub(crate) fn random_u32() -> u32 {
    let mut bytes = [0; 4];
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    u32::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIN: Duration = Duration::from_millis(50);
    const MAX: Duration = Duration::from_secs(5);

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = Backoff::new(MIN, MAX);
        let pauses: Vec<u128> = (0..9).map(|_| backoff.pause(0).as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        backoff.after_link(Duration::from_secs(4));
        assert_eq!(backoff.pause(0), MAX);
        backoff.after_link(MAX);
        assert_eq!(backoff.pause(0), MIN);
    }

    proptest! {
        #[test]
        fn jitter_takes_up_to_half(randoms in prop::collection::vec(any::<u32>(), 1..12)) {
            let (mut backoff, mut full) = (Backoff::new(MIN, MAX), Backoff::new(MIN, MAX));
            for random in randoms {
                let (pause, full) = (backoff.pause(random), full.pause(0));
                prop_assert!(pause <= full && pause >= full / 2, "{pause:?} of {full:?}");
            }
        }
    }
}
