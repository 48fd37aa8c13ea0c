//! A timer for deadlines that mostly move away.

use std::pin::Pin;

use tokio::time::{Instant, Sleep, sleep_until};

/// Rings at the earliest of deadlines that every byte moves. Setting the runtime's timer costs more than a small read: this one is
/// set anew only when it has to ring earlier, or has run out too early.
pub(crate) struct Alarm(Pin<Box<Sleep>>);

impl Alarm {
    /// An alarm whose first deadline is about `first`.
    pub(crate) fn at(first: Instant) -> Self {
        Self(Box::pin(sleep_until(first)))
    }

    /// Waits until `deadline`. It may be given up, and called with another deadline.
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
            // Given up for another, later or earlier.
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
