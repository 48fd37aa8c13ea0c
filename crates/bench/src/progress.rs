//! How a run goes, for whoever watches it.
//!
//! Looking must not disturb the load: a whole tally has histograms for every part of it, and is merged under the locks that the
//! load's threads take for every sample. What is needed to watch are a few counts, and those intervals of the course that have
//! changed since the last look: two, usually.

use std::time::Duration;

use crate::tally::{Point, Series};

/// How a run goes. It begins as the default, and [`Running::follow`](crate::fleet::Running::follow) brings it up to date.
#[derive(Debug, Default)]
pub struct Progress {
    /// Time since the start.
    pub elapsed: Duration,
    /// Connections and handshakes; `None` where others make the load, who only tell of connections that have ended.
    pub counts: Option<Counts>,
    /// How much later than things happen they may become known here.
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

/// What is seen at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    pub(crate) elapsed: Duration,
    pub(crate) behind: Duration,
    pub(crate) counts: Option<Counts>,
}

impl Progress {
    /// Takes over what is new. `course_since` gives the intervals of the course that end after a point of time.
    pub(crate) fn update(&mut self, look: Look, course_since: impl Fn(Duration) -> Series) {
        (self.elapsed, self.behind, self.counts) = (look.elapsed, look.behind, look.counts);
        loop {
            let from = self.course.interval() * self.settled_points() as u32;
            let newer = course_since(from);
            if newer.interval() <= self.course.interval() {
                return self.course.replace_since(&newer, from);
            }
            // What does not change any more is put together here, rather than taken again.
            self.course.coarsen(newer.interval());
        }
    }

    /// The course, in which requests are counted when they ended. What is counted by its beginning may still be missing.
    pub fn course(&self) -> &Series {
        &self.course
    }

    /// The interval that was over last; `None` in the first. Empty if nothing ended in it.
    pub fn last(&self) -> Option<Point> {
        let last = self.over().checked_sub(1)?;
        Some(self.course.points().get(last).cloned().unwrap_or_default())
    }

    /// How many intervals are over, and known.
    pub fn over(&self) -> usize {
        self.intervals(self.elapsed.saturating_sub(self.behind))
    }

    /// All intervals together.
    pub fn so_far(&mut self) -> Point {
        let until = self.settled_points();
        self.settled.advance(&self.course, until);
        let mut sum = self.settled.sum.clone();
        for point in &self.course.points()[until..] {
            sum.merge(point);
        }
        sum
    }

    /// So many intervals do not change any more: no request waits for a second between its end and its being counted. What comes
    /// from others may be as much behind as that, and they may be as much apart.
    fn settled_points(&self) -> usize {
        self.course.points().len().saturating_sub(2 + self.intervals(4 * self.behind))
    }

    fn intervals(&self, time: Duration) -> usize {
        (time.as_secs() / self.course.interval().as_secs()) as usize
    }
}

/// The sum of the intervals that do not change any more, so that it need not be taken anew for each look.
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
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ending::EndingKind;
    use crate::sample::Family;
    use crate::tally::Tally;
    use crate::tally::tests::{request, tally};

    /// Counts a request that takes some time and ends at `ended`.
    pub(crate) fn end_at(tally: &mut Tally, ended: Duration, latency: Duration, kind: EndingKind) {
        let mut sample = request(0, Family::Ipv4, None, kind);
        (sample.due, sample.started, sample.ended) = (ended.saturating_sub(latency), ended, ended);
        tally.request(&sample);
    }

    /// What somebody knows who looks at `tallies` again.
    pub(crate) fn look(progress: &mut Progress, tallies: &[Tally], elapsed: Duration) {
        progress.update(Look { elapsed, ..Look::default() }, |from| {
            let mut course = Series::default();
            for tally in tallies {
                course.merge_since(tally.series(), from);
            }
            course
        });
    }

    proptest! {
        /// Gaps of up to 700 s double the intervals once or several times between two looks, and of two threads not in both.
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
