//! Waits for due times more precisely than the runtime's timers, which have a resolution of a millisecond.

use std::sync::Arc;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::time::sleep_until;

use crate::run::RunShared;

/// A kernel timer (timerfd), or the runtime's timer if the kernel refuses one.
#[derive(Debug)]
pub(super) struct Pacer {
    shared: Arc<RunShared>,
    timer: Option<AsyncFd<OwnedFd>>,
}

impl Pacer {
    pub(super) fn new(shared: &Arc<RunShared>) -> Self {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC);
        #[expect(
            deprecated,
            reason = "its successor is unsafe, for types that may change their file; this one owns it"
        )]
        let timer = timer.ok().and_then(|timer| AsyncFd::new(timer).ok());
        Self { shared: Arc::clone(shared), timer }
    }

    /// Waits until `due`, counted from the start of the run.
    pub(super) async fn wait(&self, due: Duration) {
        loop {
            let left = due.saturating_sub(self.shared.now());
            if left.is_zero() {
                return;
            }
            if self.expire(left).await.is_none() {
                sleep_until(self.shared.instant(due)).await;
            }
        }
    }

    async fn expire(&self, left: Duration) -> Option<()> {
        let timer = self.timer.as_ref()?;
        let value = Timespec { tv_sec: left.as_secs().try_into().ok()?, tv_nsec: left.subsec_nanos().into() };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(timer, TimerfdTimerFlags::empty(), &once).ok()?;
        let mut ready = timer.readable().await.ok()?;
        let mut count = [0; 8];
        // Setting a timer again makes it unready. The read clears the readiness if tokio had not noticed that.
        if rustix::io::read(timer, &mut count) == Err(rustix::io::Errno::AGAIN) {
            ready.clear_ready();
        }
        Some(())
    }
}
