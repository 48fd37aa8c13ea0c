//! A deadline that moves with every request and costs no timer then.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};

/// Expires at its deadline. A later deadline leaves the timer as it is: when that fires too early, it is set again.
#[derive(Debug)]
pub(crate) struct Watchdog {
    sleep: Pin<Box<Sleep>>,
    deadline: Instant,
}

impl Watchdog {
    pub(crate) fn new(deadline: Instant) -> Self {
        Self { sleep: Box::pin(sleep_until(deadline)), deadline }
    }

    pub(crate) fn set(&mut self, deadline: Instant) {
        self.deadline = deadline;
        if deadline < self.sleep.deadline() {
            self.sleep.as_mut().reset(deadline);
        }
    }

    /// Ready when the deadline is over.
    pub(crate) fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            std::task::ready!(self.sleep.as_mut().poll(cx));
            if self.sleep.deadline() >= self.deadline {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(self.deadline);
        }
    }

    /// What is ready, or none when the deadline is over.
    pub(crate) fn or_expired<T>(&mut self, result: Poll<T>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        match result {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => self.poll_expired(cx).map(|()| None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_expires_at_the_last_deadline_set() {
        let start = Instant::now();
        let mut watchdog = Watchdog::new(start + Duration::from_secs(5));
        watchdog.set(start + Duration::from_secs(9));
        poll_fn(|cx| watchdog.poll_expired(cx)).await;
        assert_eq!(start.elapsed().as_secs(), 9);
        watchdog.set(start + Duration::from_secs(20));
        watchdog.set(start + Duration::from_secs(12));
        poll_fn(|cx| watchdog.poll_expired(cx)).await;
        assert_eq!(start.elapsed().as_secs(), 12);
    }
}
