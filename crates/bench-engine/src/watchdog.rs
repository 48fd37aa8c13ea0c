//! A deadline that moves with every request without setting a timer each time.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use tokio::time::{Instant, Sleep, sleep_until};

/// Expires at its deadline. A later deadline does not change the timer. If the timer fires before the deadline, it is
/// set again.
#[derive(Debug)]
pub(crate) struct Watchdog {
    sleep: Pin<Box<Sleep>>,
    deadline: Instant,
    /// The waker that the timer has.
    waker: Option<Waker>,
}

impl Watchdog {
    pub(crate) fn new(deadline: Instant) -> Self {
        Self { sleep: Box::pin(sleep_until(deadline)), deadline, waker: None }
    }

    /// The output of `future`, or `None` if the deadline passes first.
    pub(crate) async fn within<F: Future>(&mut self, deadline: Instant, future: F) -> Option<F::Output> {
        self.set(deadline);
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => self.poll_expired(cx).map(|()| None),
        })
        .await
    }

    fn set(&mut self, deadline: Instant) {
        self.deadline = deadline;
        if deadline < self.sleep.deadline() {
            self.sleep.as_mut().reset(deadline);
            self.waker = None;
        }
    }

    /// Ready when the deadline has passed.
    fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // A timer that runs and has the waker need not be polled.
        if self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) && !self.sleep.is_elapsed() {
            return Poll::Pending;
        }
        self.waker = Some(cx.waker().clone());
        loop {
            ready!(self.sleep.as_mut().poll(cx));
            if self.sleep.deadline() >= self.deadline {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(self.deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_expires_at_the_last_deadline() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut watchdog = Watchdog::new(after(5));
        assert_eq!(watchdog.within(after(9), pending::<()>()).await, None);
        assert_eq!(start.elapsed().as_secs(), 9);
        assert_eq!(watchdog.within(after(20), ready(1)).await, Some(1));
        assert_eq!(watchdog.within(after(12), pending::<()>()).await, None);
        assert_eq!(start.elapsed().as_secs(), 12);
    }
}
