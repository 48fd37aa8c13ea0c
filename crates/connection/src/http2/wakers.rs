//! Wakers of the exchanges of one connection.
//!
//! The connection polls an exchange only if it was woken. A wake while the connection is being polled does not wake its
//! task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Wake, Waker};

use futures_util::task::AtomicWaker;

use super::slots::Slots;

#[derive(Debug, Default)]
pub(super) struct Wakers {
    task: Arc<Task>,
    wakers: Vec<Waker>,
}

#[derive(Debug, Default)]
struct Task {
    /// Slots that were woken.
    woken: AtomicU64,
    /// The task is polling, and looks at `woken` before it stops.
    is_polling: AtomicBool,
    waker: AtomicWaker,
}

struct SlotWaker {
    slot: usize,
    task: Arc<Task>,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Either this sees that the task has stopped, or the task sees the slot: both are in one order of all threads.
        self.task.woken.fetch_or(1 << self.slot, Ordering::SeqCst);
        if !self.task.is_polling.load(Ordering::SeqCst) {
            self.task.waker.wake();
        }
    }
}

impl Wakers {
    /// The task begins to poll.
    pub(super) fn begin(&self, cx: &Context<'_>) {
        self.task.waker.register(cx.waker());
        self.task.is_polling.store(true, Ordering::SeqCst);
    }

    /// The task stops. Returns whether it has to poll once more.
    pub(super) fn end(&self) -> bool {
        self.task.is_polling.store(false, Ordering::SeqCst);
        self.are_woken()
    }

    pub(super) fn are_woken(&self) -> bool {
        self.task.woken.load(Ordering::SeqCst) != 0
    }

    /// Takes the slots that were woken.
    pub(super) fn take(&self) -> Slots {
        if self.are_woken() { Slots(self.task.woken.swap(0, Ordering::SeqCst)) } else { Slots::default() }
    }

    /// Wakes a slot from within the task.
    pub(super) fn wake(&self, slot: usize) {
        self.task.woken.fetch_or(1 << slot, Ordering::SeqCst);
    }

    /// The waker of a slot.
    pub(super) fn waker(&mut self, slot: usize) -> &Waker {
        while self.wakers.len() <= slot {
            let waker = SlotWaker { slot: self.wakers.len(), task: self.task.clone() };
            self.wakers.push(Arc::new(waker).into());
        }
        &self.wakers[slot]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    /// Counts its wakes.
    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_wake_within_a_poll_does_not_wake_the_task() {
        let (mut wakers, task) = (Wakers::default(), Arc::<Counting>::default());
        let waker = Waker::from(task.clone());
        wakers.begin(&Context::from_waker(&waker));
        wakers.waker(3).wake_by_ref();
        assert_eq!((wakers.take(), wakers.take()), (Slots(1 << 3), Slots(0)));
        assert!(!wakers.end());
        assert_eq!(task.0.load(Ordering::SeqCst), 0);
        wakers.waker(0).wake_by_ref();
        assert_eq!(task.0.load(Ordering::SeqCst), 1);
        wakers.begin(&Context::from_waker(&waker));
        assert_eq!(wakers.take(), Slots(1));
        wakers.waker(63).wake_by_ref();
        assert!(wakers.end());
    }

    #[test]
    fn no_wake_of_another_thread_is_lost() {
        let (mut wakers, task) = (Wakers::default(), Arc::<Counting>::default());
        let (slot, waker) = (wakers.waker(1).clone(), Waker::from(task.clone()));
        for _ in 0..2_000 {
            wakers.take();
            let before = task.0.load(Ordering::SeqCst);
            wakers.begin(&Context::from_waker(&waker));
            let polls_again = thread::scope(|scope| {
                let waking = scope.spawn(|| slot.wake_by_ref());
                let polls_again = wakers.end();
                waking.join().is_ok().then_some(polls_again)
            });
            assert!(polls_again == Some(true) || task.0.load(Ordering::SeqCst) > before);
        }
    }
}
