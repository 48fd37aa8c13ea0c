//! The speed of an origin.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

/// The total speed of an origin, as a function of its number of transfers. All get the same share of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The total that is 100 percent in `curve`.
    pub bytes_per_s: u64,
    /// The total for 1, 2, 3, .. transfers, in percent of `bytes_per_s`. The last value also applies to more transfers.
    pub curve: &'static [u64],
}

impl Pace {
    /// Rises up to five clients, as figure 5 of the paper (Doi and Goto, 2008), in percent of the total for two
    /// clients: the values that the paper's table of gains implies.
    pub const FIGURE_5: &'static [u64] = &[54, 100, 114, 137, 144];

    /// As the paper's server. `bytes_per_s` is its total for two clients.
    pub fn figure_5(bytes_per_s: u64) -> Self {
        Self { bytes_per_s, curve: Self::FIGURE_5 }
    }

    /// `bytes_per_s` for all transfers together, independent of their number.
    pub fn capped(bytes_per_s: u64) -> Self {
        Self { bytes_per_s, curve: &[100] }
    }

    /// The total of this many transfers, in bytes per second.
    pub fn total(&self, transfers: usize) -> u64 {
        let place = transfers.clamp(1, self.curve.len()) - 1;
        self.bytes_per_s * self.curve[place] / 100
    }

    /// The share of each of this many transfers, in bytes per second.
    pub fn share(&self, transfers: usize) -> u64 {
        self.total(transfers) / transfers.max(1) as u64
    }
}

/// Limits the speed of one transfer.
pub(crate) enum Throttle<'a> {
    None,
    Drip { bytes: usize, every: Duration, next: Instant },
    Share { pace: Pace, transfers: &'a AtomicUsize, paid: Instant },
}

/// The least time for which a share is sent at once.
const TICK: Duration = Duration::from_millis(2);

/// How far a transfer may catch up: it makes up for delays of a busy machine, and not for a client that reads slowly.
const LATE_MAX: Duration = Duration::from_millis(100);

impl Throttle<'_> {
    /// Waits until bytes may be sent, and returns their number: at least one, at most `wanted`.
    pub(crate) async fn allowance(&mut self, wanted: usize) -> usize {
        match self {
            Self::None => wanted,
            Self::Drip { bytes, every, next } => {
                sleep_until(*next).await;
                *next += *every;
                wanted.min((*bytes).max(1))
            }
            Self::Share { pace, transfers, paid } => loop {
                let share = pace.share(transfers.load(Ordering::Relaxed)).max(1);
                *paid = (*paid).max(Instant::now() - LATE_MAX);
                let earned = bytes_in(share, paid.elapsed()).min(wanted);
                // Enough for a system call.
                if earned == wanted || earned > bytes_in(share, TICK) {
                    *paid += time_for(share, earned);
                    return earned;
                }
                sleep(TICK).await;
            },
        }
    }
}

/// `share` is in bytes per second.
fn bytes_in(share: u64, time: Duration) -> usize {
    (u128::from(share) * time.as_nanos() / 1_000_000_000) as usize
}

fn time_for(share: u64, bytes: usize) -> Duration {
    Duration::from_nanos((bytes as u128 * 1_000_000_000 / u128::from(share)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The gain of all clients of two origins, and of the slowest, in percent.
    fn gains(before: [usize; 2], after: [usize; 2]) -> [i64; 2] {
        let pace = Pace::figure_5(1_000_000);
        let total = |clients: [usize; 2]| clients.map(|clients| pace.total(clients)).iter().sum::<u64>();
        let slowest = |clients: [usize; 2]| clients.map(|clients| pace.share(clients)).into_iter().min().unwrap_or(1);
        [(total(before), total(after)), (slowest(before), slowest(after))]
            .map(|(before, after)| (after * 100 / before).cast_signed() - 100)
    }

    /// The paper's table, without the row in which a client is lost.
    #[test]
    fn balance_brings_what_the_paper_says() {
        for (before, after, mean, slowest) in
            [([1, 3], [2, 2], 19, 31), ([3, 5], [4, 4], 6, 19), ([4, 6], [5, 5], 4, 16)]
        {
            let [is_mean, is_slowest] = gains(before, after);
            assert!((is_mean - mean).abs() <= 2, "{before:?}: {is_mean} instead of {mean}");
            assert!((is_slowest - slowest).abs() <= 4, "{before:?}: {is_slowest} instead of {slowest}");
        }
    }

    #[test]
    fn it_rises_up_to_five_and_then_no_more() {
        let pace = Pace::figure_5(1_000_000);
        assert!((1..5).all(|transfers| pace.total(transfers) < pace.total(transfers + 1)));
        assert_eq!(pace.total(5), pace.total(50));
        assert_eq!((pace.total(2), pace.share(50)), (1_000_000, 28_800));
    }
}
