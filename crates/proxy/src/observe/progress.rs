//! Checks the minimum rate of a body while a side is waited for.
//!
//! A pause has a timeout of its own, and each byte ends it. So a peer could send one byte in each pause without end.
//! Therefore bytes are also counted over periods of waiting. Time in which no side waits for this peer (for example,
//! because the receiver takes nothing) does not count.

use std::time::Duration;

use tokio::time::Instant;

/// Counts bytes over consecutive periods of waiting.
#[derive(Debug)]
pub(crate) struct Progress {
    bytes_min: u64,
    period: Duration,
    bytes: u64,
    waited: Duration,
    waiting_since: Option<Instant>,
}

/// Too few bytes came in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too few bytes arrived in {0:?} of waiting")]
pub(crate) struct TooSlow(pub(crate) Duration);

impl Progress {
    /// * `rate_min`: in bytes per second, on average over `period`. 0: no minimum.
    pub(crate) fn new(rate_min: u32, period: Duration) -> Self {
        Self { bytes_min: bytes_min(rate_min, period), period, bytes: 0, waited: Duration::ZERO, waiting_since: None }
    }

    /// No bytes are available at `now`: the wait begins.
    pub(crate) fn waits(&mut self, now: Instant) {
        self.waiting_since.get_or_insert(now);
    }

    /// No bytes that count have come by `now`: the wait continues.
    pub(crate) fn goes_on_waiting(&mut self, now: Instant) -> Result<(), TooSlow> {
        self.came(now, 0)?;
        self.waits(now);
        Ok(())
    }

    /// `bytes` have come by `now`.
    pub(crate) fn came(&mut self, now: Instant, bytes: u64) -> Result<(), TooSlow> {
        self.bytes += bytes;
        // No wait is running: the bytes were available at once.
        let Some(since) = self.waiting_since.take() else { return Ok(()) };
        self.waited += now.saturating_duration_since(since);
        if self.waited < self.period {
            return Ok(());
        }
        let (bytes, waited) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.waited));
        if bytes < self.bytes_min { Err(TooSlow(waited)) } else { Ok(()) }
    }
}

/// The minimum number of bytes in a period.
pub(crate) fn bytes_min(rate_min: u32, period: Duration) -> u64 {
    u64::try_from(u128::from(rate_min) * period.as_millis() / 1000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_mins(1);

    /// When the rate is too low, if a piece of `bytes` bytes comes after each pause, for ten minutes.
    fn ends_after(rate_min: u32, bytes: u64, pause: Duration) -> Option<Duration> {
        let (mut progress, begun) = (Progress::new(rate_min, PERIOD), Instant::now());
        let mut now = begun;
        while now - begun < 10 * PERIOD {
            progress.waits(now);
            now += pause;
            if progress.came(now, bytes).is_err() {
                return Some(now - begun);
            }
        }
        None
    }

    #[test]
    fn a_crawl_ends_with_the_first_period() {
        assert_eq!(ends_after(240, 1, Duration::from_millis(500)), Some(PERIOD));
        assert_eq!(ends_after(240, 119, Duration::from_millis(500)), Some(PERIOD));
        assert_eq!(ends_after(240, 120, Duration::from_millis(500)), None);
        assert_eq!(ends_after(0, 1, Duration::from_millis(500)), None);
    }

    #[test]
    fn the_longest_pauses_make_it_last_less_than_two_periods() {
        let pause = Duration::from_millis(59_999);
        assert_eq!(ends_after(240, 1, pause), Some(2 * pause));
        assert_eq!(ends_after(240, 14_400, pause), None);
    }

    /// Bytes may come that do not count, such as repeated ones.
    #[test]
    fn waiting_ends_though_nothing_that_counts_comes() {
        let (mut progress, begun) = (Progress::new(240, PERIOD), Instant::now());
        let at = |seconds| progress.goes_on_waiting(begun + Duration::from_secs(seconds));
        assert_eq!([0, 30, 59].map(at), [Ok(()); 3]);
        assert_eq!(progress.goes_on_waiting(begun + PERIOD), Err(TooSlow(PERIOD)));
    }

    #[test]
    fn only_waiting_counts() {
        let (mut progress, mut now) = (Progress::new(240, PERIOD), Instant::now());
        for _ in 0..1000 {
            // The client takes a piece in a minute, and its origin has the next one after ten milliseconds.
            now += PERIOD;
            progress.waits(now);
            now += Duration::from_millis(10);
            assert_eq!(progress.came(now, 100), Ok(()));
        }
    }
}
