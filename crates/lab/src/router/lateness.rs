//! Sleeps until a moment, and allows for the time that a thread takes to wake up.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// How late the threads of a direction wake up, in nanoseconds, as sleeps of the writer have shown. An idle processor
/// takes longer than a busy one, and so do some virtual machines.
#[derive(Debug, Default)]
pub(super) struct Lateness(AtomicU64);

/// The largest estimate. A thread spins for the time by which it wakes up early, so this also bounds its CPU use.
pub(super) const LATENESS_MAX: Duration = Duration::from_micros(150);
/// The parts of the difference by which an earlier and a later end of a sleep change the estimate. It is near the
/// shortest lateness of late: what is longer is a busy machine, and a packet does not become early for it.
const EARLIER: u32 = 4;
const LATER: u32 = 32;

impl Lateness {
    /// Returns at `due`, never before it.
    pub(super) fn sleep_until(&self, due: Instant) {
        let before = Instant::now();
        if let Some(pause) = self.pause(before, due) {
            thread::sleep(pause);
            self.learn(before.elapsed().saturating_sub(pause));
        }
        while Instant::now() < due {
            spin_loop();
        }
    }

    /// When the event came that a thread waited for from `before` to `after`.
    pub(super) fn came(&self, before: Instant, after: Instant) -> Instant {
        after.checked_sub(self.get()).map_or(before, |came| came.max(before))
    }

    /// How long to sleep. None: the moment is too near.
    fn pause(&self, now: Instant, due: Instant) -> Option<Duration> {
        due.checked_duration_since(now)?.checked_sub(self.get()).filter(|pause| !pause.is_zero())
    }

    fn learn(&self, late: Duration) {
        let (before, late) = (self.get(), late.min(LATENESS_MAX));
        let part = if late < before { EARLIER } else { LATER };
        let estimate = (before * (part - 1) + late) / part;
        // One thread learns, so it overwrites no other estimate.
        self.0.store(estimate.as_nanos() as u64, Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    fn learnt(late: Duration) -> Lateness {
        let lateness = Lateness::default();
        (0..300).for_each(|_| lateness.learn(late));
        lateness
    }

    #[test]
    fn it_never_returns_early() {
        let lateness = learnt(LATENESS_MAX);
        for us in [0, 10, 149, 151, 1000, 5000] {
            let due = Instant::now() + us * US;
            lateness.sleep_until(due);
            assert!(Instant::now() >= due);
        }
    }

    #[test]
    fn a_sleep_is_shorter_by_the_lateness() {
        let now = Instant::now();
        assert_eq!(Lateness::default().pause(now, now + 1000 * US), Some(1000 * US));
        let lateness = learnt(80 * US);
        let pause = lateness.pause(now, now + 1000 * US).expect("there is time to sleep");
        assert!(pause.abs_diff(920 * US) < US, "{pause:?}");
        assert_eq!(lateness.pause(now, now + 50 * US), None);
        assert_eq!(lateness.pause(now + US, now), None);
    }

    #[test]
    fn an_event_came_before_the_thread_woke_up_and_not_before_it_waited() {
        let before = Instant::now();
        let lateness = learnt(80 * US);
        let came = lateness.came(before, before + 1000 * US) - before;
        assert!(came.abs_diff(920 * US) < US, "{came:?}");
        assert_eq!(lateness.came(before, before + 10 * US), before);
    }

    #[test]
    fn late_sleeps_among_others_count_little() {
        let lateness = learnt(40 * US);
        (0..300).for_each(|n| lateness.learn(if n % 2 == 0 { 40 * US } else { LATENESS_MAX }));
        assert!(lateness.get() < 60 * US, "{:?}", lateness.get());
    }

    #[test]
    fn a_pause_of_the_whole_machine_does_not_make_it_spin_for_long() {
        assert!(learnt(Duration::from_secs(1)).get() <= LATENESS_MAX);
    }
}
