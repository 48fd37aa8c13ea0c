//! The progress of a run, for displays.
//!
//! Displays must not disturb the load. A whole tally has histograms for every part of it, and is merged under the locks
//! that the load's threads take for every sample. So a display reads only a few counts, and the intervals of the course
//! that have changed since the last update: usually two.

use std::time::Duration;

use crate::tally::{Point, Series};

/// The progress of a run. It begins as the default, and `follow` of a run updates
/// it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Time since the start.
    pub elapsed: Duration,
    /// Connections and handshakes. `None` if workers generate the load, because they report only connections that have
    /// ended.
    pub counts: Option<Counts>,
    /// How old the newest data may be.
    behind: Duration,
    course: Series,
    settled: Settled,
}

/// Connections and handshakes so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections begun.
    pub opened: u64,
    /// Connections ended.
    pub closed: u64,
    /// Full TLS handshakes done.
    pub full: u64,
    /// Abbreviated TLS handshakes done.
    pub resumed: u64,
}

/// The data of one update, except the course.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    pub elapsed: Duration,
    pub behind: Duration,
    pub counts: Option<Counts>,
}

impl Progress {
    /// Applies an update. `course_since` returns the intervals of the course that end after a point of time.
    pub fn update(&mut self, look: Look, course_since: impl Fn(Duration) -> Series) {
        (self.elapsed, self.behind, self.counts) = (look.elapsed, look.behind, look.counts);
        loop {
            let from = self.course.interval() * self.settled_points() as u32;
            let newer = course_since(from);
            if newer.interval() <= self.course.interval() {
                return self.course.replace_since(&newer, from);
            }
            // Merges settled intervals here, instead of reading them again.
            self.course.coarsen(newer.interval());
        }
    }

    /// The course. It counts requests when they end. Counts of beginnings may still be incomplete.
    pub fn course(&self) -> &Series {
        &self.course
    }

    /// The last complete interval; `None` during the first. Empty if nothing ended in it.
    pub fn last(&self) -> Option<Point> {
        let last = self.over().checked_sub(1)?;
        Some(self.course.points().get(last).cloned().unwrap_or_default())
    }

    /// Number of complete intervals whose data have arrived.
    pub fn over(&self) -> usize {
        self.intervals(self.elapsed.saturating_sub(self.behind))
    }

    /// The sum of all intervals.
    pub fn so_far(&mut self) -> Point {
        let until = self.settled_points();
        self.settled.advance(&self.course, until);
        let mut sum = self.settled.sum.clone();
        for point in &self.course.points()[until..] {
            sum.merge(point);
        }
        sum
    }

    /// The number of intervals that do not change any more. No request waits for a second between its end and its
    /// count. Data of workers may arrive later by `behind`, and workers may differ by as much.
    fn settled_points(&self) -> usize {
        self.course.points().len().saturating_sub(2 + self.intervals(4 * self.behind))
    }

    fn intervals(&self, time: Duration) -> usize {
        (time.as_secs() / self.course.interval().as_secs()) as usize
    }
}

/// The sum of the intervals that do not change any more, so that an update need not compute it again.
#[derive(Debug, Default)]
struct Settled {
    interval: Duration,
    points: usize,
    sum: Point,
}

impl Settled {
    fn advance(&mut self, course: &Series, until: usize) {
        if self.interval != course.interval() {
            *self = Self { interval: course.interval(), ..Self::default() };
        }
        for point in &course.points()[self.points..until] {
            self.sum.merge(point);
        }
        self.points = until;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ending::EndingKind;
    use crate::test_samples::{end_at, look, tally};

    proptest! {
        /// Gaps of up to 700 s double the intervals once or several times between two updates. With two threads, this
        /// may happen in one of them only.
        #[test]
        fn whoever_looks_again_and_again_knows_the_same_as_whoever_looks_once(
            steps in prop::collection::vec((0..700_000_u64, 0..2_usize, any::<bool>(), any::<bool>()), 1..60),
        ) {
            let mut tallies = [tally(), tally()];
            let (mut again, mut now) = (Progress::default(), Duration::ZERO);
            for (gap_ms, thread, long, looks) in steps {
                now += Duration::from_millis(if long { gap_ms } else { gap_ms / 1000 });
                end_at(&mut tallies[thread], now, Duration::from_millis(gap_ms % 50), EndingKind::Normal);
                if looks {
                    look(&mut again, &tallies, now);
                    again.so_far();
                }
            }
            look(&mut again, &tallies, now);
            let mut once = Progress::default();
            look(&mut once, &tallies, now);
            prop_assert_eq!(again.so_far(), once.so_far());
            prop_assert_eq!(again.course(), once.course());
            prop_assert_eq!(again.last(), once.last());
        }
    }

    #[test]
    fn only_a_whole_interval_is_the_last_one() {
        let mut tally = tally();
        let mut progress = Progress::default();
        let seconds = Duration::from_millis;
        end_at(&mut tally, seconds(500), seconds(1), EndingKind::Normal);
        look(&mut progress, std::slice::from_ref(&tally), seconds(900));
        assert_eq!(progress.last(), None);
        look(&mut progress, std::slice::from_ref(&tally), seconds(1_100));
        assert_eq!(progress.last().map(|point| point.ended(EndingKind::Normal)), Some(1));
        look(&mut progress, &[tally], seconds(2_100));
        assert_eq!(progress.last(), Some(Point::default()), "nothing ended in the second before");
    }
}
