//! Clocks and their offsets.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use watari_packets::Timestamp;

/// A clock of the time of day.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self::new(crate::clock::now)
    }

    /// Another clock, for tests.
    pub fn new(read: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}

/// The offset of a clock to another one, from the last measurements.
#[derive(Debug, Default)]
pub(super) struct Offsets(VecDeque<(Duration, i64)>);

/// Number of measurements that are stored.
const OFFSETS_MAX: usize = 8;

impl Offsets {
    /// Adds a measurement: a request sent at `sent` was answered with the time `theirs` after `round_trip`. It assumes
    /// that the answer was given in the middle.
    pub(super) fn add(&mut self, sent: Timestamp, theirs: Timestamp, round_trip: Duration) {
        let middle = sent + round_trip / 2;
        let offset = (i128::from(middle.0) - i128::from(theirs.0)).clamp(i64::MIN.into(), i64::MAX.into());
        if self.0.len() >= OFFSETS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((round_trip, offset as i64));
    }

    /// The offset from the shortest round trip, in nanoseconds. Its error is at most half of that round trip.
    pub(super) fn best(&self) -> Option<i64> {
        self.0.iter().min_by_key(|(round_trip, _)| *round_trip).map(|(_, offset)| *offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_way_tells_best() {
        let mut offsets = Offsets::default();
        assert_eq!(offsets.best(), None);
        // The clock is 3 s behind. One answer was delayed by 1 s on its way back.
        for (sent, round_trip_ms) in [(10, 20), (11, 1_000), (12, 30)] {
            let round_trip = Duration::from_millis(round_trip_ms);
            let theirs = Timestamp((sent + 3) * 1_000_000_000 + 10_000_000);
            offsets.add(Timestamp(sent * 1_000_000_000), theirs, round_trip);
        }
        assert_eq!(offsets.best(), Some(-3_000_000_000));
    }

    #[test]
    fn old_answers_are_forgotten_and_absurd_ones_bounded() {
        let mut offsets = Offsets::default();
        offsets.add(Timestamp(0), Timestamp(u64::MAX), Duration::ZERO);
        assert_eq!(offsets.best(), Some(i64::MIN));
        for _ in 0..OFFSETS_MAX {
            offsets.add(Timestamp(7), Timestamp(0), Duration::from_secs(1));
        }
        assert_eq!(offsets.best(), Some(500_000_007));
    }
}
