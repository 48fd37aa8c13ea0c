//! How fast an origin is.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

/// The total speed of an origin, as it depends on how many transfers it serves. All get the same share of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Where the curve is at 100.
    pub bytes_per_s: u64,
    /// The total for 1, 2, 3, .. transfers, in percent of `bytes_per_s`; the last also for more.
    pub curve: &'static [u64],
}

impl Pace {
    /// Rising up to five clients and then no more, as figure 5 of the paper (Doi and Goto, 2008), in percent of the
    /// total for two clients: what the paper's table of gains implies.
    pub const FIGURE_5: &'static [u64] = &[54, 100, 114, 137, 144];

    /// As the paper's server, which gives `bytes_per_s` to two clients together.
    pub fn figure_5(bytes_per_s: u64) -> Self {
        Self { bytes_per_s, curve: Self::FIGURE_5 }
    }

    /// `bytes_per_s` for all transfers together, however many they are.
    pub fn capped(bytes_per_s: u64) -> Self {
        Self { bytes_per_s, curve: &[100] }
    }

    /// What all of so many transfers get together, in bytes per second.
    pub fn total(&self, transfers: usize) -> u64 {
        let place = transfers.clamp(1, self.curve.len()) - 1;
        self.bytes_per_s * self.curve[place] / 100
    }

    /// What each of so many transfers gets, in bytes per second.
    pub fn share(&self, transfers: usize) -> u64 {
        self.total(transfers) / transfers.max(1) as u64
    }
}

/// Lets one transfer go as fast as it may.
pub(crate) enum Throttle<'a> {
    None,
    Drip { bytes: usize, every: Duration, next: Instant },
    Share { pace: Pace, transfers: &'a AtomicUsize, paid: Instant },
}

/// How often shares are handed out.
const TICK: Duration = Duration::from_millis(2);

/// How late a transfer may be: a machine that was busy is made up for, but what a client was slow to take is lost to
/// it.
const LATE_MAX: Duration = Duration::from_millis(100);

impl Throttle<'_> {
    /// Waits until something may be sent, and says how much: at most `wanted`, and at least one byte.
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
                // Anything worth a system call.
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

    /// By how much all clients of two origins are faster, and by how much the slowest, in percent.
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
