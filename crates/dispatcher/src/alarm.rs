//! A timer for deadlines that usually move into the future before they are reached.

use std::pin::Pin;

use tokio::time::{Instant, Sleep, sleep_until};

/// Waits for the earliest of several deadlines that change with every byte. To set a timer of the runtime costs more
/// than a small read. So the alarm resets its timer only if the new deadline is earlier, or if the timer fired too
/// early.
pub(crate) struct Alarm(Pin<Box<Sleep>>);

impl Alarm {
    /// Creates an alarm. `first` is an estimate of the first deadline.
    pub(crate) fn at(first: Instant) -> Self {
        Self(Box::pin(sleep_until(first)))
    }

    /// Waits until `deadline`. The caller may drop the future, and call this again with another deadline.
    pub(crate) async fn ring(&mut self, deadline: Instant) {
        if deadline < self.0.deadline() {
            self.0.as_mut().reset(deadline);
        }
        loop {
            self.0.as_mut().await;
            if self.0.deadline() >= deadline {
                return;
            }
            self.0.as_mut().reset(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout_at;

    #[tokio::test(start_paused = true)]
    async fn it_rings_at_the_deadline_of_the_moment() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut alarm = Alarm::at(at(10));
        for deadline in [10, 20, 15, 60] {
            // Dropped and called again with a later or earlier deadline.
            assert!(timeout_at(at(5), alarm.ring(at(deadline))).await.is_err());
        }
        alarm.ring(at(30)).await;
        assert_eq!(Instant::now(), at(30));
        alarm.ring(at(40)).await;
        assert_eq!(Instant::now(), at(40));
        alarm.ring(at(35)).await;
        assert_eq!(Instant::now(), at(40));
    }
}
