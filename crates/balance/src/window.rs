//! Counts over a sliding window.

use std::ops::{AddAssign, SubAssign};
use std::time::{Duration, Instant};

/// The number of parts of a window. Old counts leave the window one part at a time.
const PARTS: usize = 10;

/// The numbers of all and of marked events in a window of time. Old events leave it with the resolution of a part.
#[derive(Debug)]
pub(crate) struct Window {
    part_length: Duration,
    parts: [Counts; PARTS],
    /// The sum of all parts.
    sum: Counts,
    current: usize,
    /// When the current part began.
    begun: Instant,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) all: u64,
    /// The marked events among `all`.
    pub(crate) marked: u64,
}

impl Window {
    pub(crate) fn new(length: Duration, now: Instant) -> Self {
        let part_length = (length / PARTS as u32).max(Duration::from_nanos(1));
        Self { part_length, parts: [Counts::default(); PARTS], sum: Counts::default(), current: 0, begun: now }
    }

    pub(crate) fn count(&mut self, counts: Counts, now: Instant) {
        self.advance(now);
        self.parts[self.current] += counts;
        self.sum += counts;
    }

    /// The counts in the window at `now`, including the current part.
    pub(crate) fn sum(&mut self, now: Instant) -> Counts {
        self.advance(now);
        self.sum
    }

    fn advance(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.begun).as_nanos() / self.part_length.as_nanos();
        if passed >= PARTS as u128 {
            (self.parts, self.sum, self.begun) = ([Counts::default(); PARTS], Counts::default(), now);
            return;
        }
        for _ in 0..passed {
            self.current = (self.current + 1) % PARTS;
            self.sum -= std::mem::take(&mut self.parts[self.current]);
            self.begun += self.part_length;
        }
    }
}

impl Counts {
    pub(crate) fn one(marked: bool) -> Self {
        Self { all: 1, marked: u64::from(marked) }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.all += other.all;
        self.marked += other.marked;
    }
}

impl SubAssign for Counts {
    fn sub_assign(&mut self, other: Self) {
        self.all -= other.all;
        self.marked -= other.marked;
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Events younger than nine parts count. Events older than ten do not.
        #[test]
        fn a_window_holds_what_is_young(pauses_ms in vec(0..400_u64, 1..60)) {
            let begin = Instant::now();
            let (mut now, mut window) = (begin, Window::new(Duration::from_secs(1), begin));
            let mut seen = Vec::new();
            for (n, pause_ms) in pauses_ms.into_iter().enumerate() {
                now += Duration::from_millis(pause_ms);
                window.count(Counts::one(n % 3 == 0), now);
                seen.push((now, n % 3 == 0));
                let younger = |ms| {
                    let counted = seen.iter().filter(move |(then, _)| now - *then < Duration::from_millis(ms));
                    counted.fold(Counts::default(), |mut sum, (_, marked)| {
                        sum += Counts::one(*marked);
                        sum
                    })
                };
                let (sum, least, most) = (window.sum(now), younger(900), younger(1001));
                prop_assert!((least.all..=most.all).contains(&sum.all), "{sum:?} {least:?} {most:?}");
                prop_assert!((least.marked..=most.marked).contains(&sum.marked));
            }
        }
    }
}
