//! Parts of one task that wake each other: h2, the streams of its connection, and events such as timers.
//!
//! The task polls a part only if the part was woken, and goes on until none is. So a wake during that does not make the
//! runtime poll the whole task once more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// The most polls of all parts before the task lets others run.
const ROUNDS_MAX: usize = 16;

/// The wakers of `N` parts of a task.
pub(super) struct PartWakers<const N: usize> {
    task: Arc<TaskWaker>,
    parts: [(Arc<PartWaker>, Waker); N],
}

#[derive(Default)]
struct TaskWaker {
    /// The task is polling its parts, and looks at all of them before it stops.
    is_polling: AtomicBool,
    waker: AtomicWaker,
}

struct PartWaker {
    is_woken: AtomicBool,
    task: Arc<TaskWaker>,
}

impl Wake for PartWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Either this sees that the task has stopped, or the task sees the flag: both are in one order of all threads.
        self.is_woken.store(true, Ordering::SeqCst);
        if !self.task.is_polling.load(Ordering::SeqCst) {
            self.task.waker.wake();
        }
    }
}

impl<const N: usize> PartWakers<N> {
    pub(super) fn new() -> Self {
        let task = Arc::<TaskWaker>::default();
        let parts = std::array::from_fn(|_| {
            let part = Arc::new(PartWaker { is_woken: AtomicBool::new(true), task: task.clone() });
            (part.clone(), Waker::from(part))
        });
        Self { task, parts }
    }

    /// Makes the next [`Self::poll`] begin with this part.
    pub(super) fn wake(&self, part: usize) {
        self.parts[part].1.wake_by_ref();
    }

    /// The waker of this part.
    pub(super) fn waker(&self, part: usize) -> &Waker {
        &self.parts[part].1
    }

    /// Polls each part that was woken by `poll`, until none is. `poll` gets the number of the part, and a context that
    /// wakes it.
    pub(super) fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(usize, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.task.waker.register(cx.waker());
        self.task.is_polling.store(true, Ordering::SeqCst);
        for _ in 0..ROUNDS_MAX {
            for (number, (part, waker)) in self.parts.iter().enumerate() {
                if part.is_woken.swap(false, Ordering::SeqCst)
                    && let Poll::Ready(result) = poll(number, &mut Context::from_waker(waker))
                {
                    self.task.is_polling.store(false, Ordering::SeqCst);
                    return Poll::Ready(result);
                }
            }
            if self.is_quiet() {
                self.task.is_polling.store(false, Ordering::SeqCst);
                if self.is_quiet() {
                    return Poll::Pending;
                }
                self.task.is_polling.store(true, Ordering::SeqCst);
            }
        }
        self.task.is_polling.store(false, Ordering::SeqCst);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn is_quiet(&self) -> bool {
        !self.parts.iter().any(|(part, _)| part.is_woken.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

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

    impl Counting {
        fn wakes(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    /// Polls once. `woken_by` returns the part that a part wakes. Returns the parts that were polled.
    fn polled(
        wakers: &PartWakers<2>,
        task: &Arc<Counting>,
        mut woken_by: impl FnMut(usize) -> Option<usize>,
    ) -> Vec<usize> {
        let mut polled = Vec::new();
        let waker = Waker::from(task.clone());
        let result = wakers.poll(&mut Context::from_waker(&waker), |part, _| {
            polled.push(part);
            if let Some(other) = woken_by(part) {
                wakers.wake(other);
            }
            Poll::<()>::Pending
        });
        assert!(result.is_pending());
        polled
    }

    #[test]
    fn only_what_is_woken_is_polled() {
        let (wakers, task) = (PartWakers::<2>::new(), Arc::<Counting>::default());
        assert_eq!(polled(&wakers, &task, |_| None), [0, 1]);
        assert!(polled(&wakers, &task, |_| None).is_empty());
        assert_eq!(task.wakes(), 0);
        wakers.wake(1);
        assert_eq!(task.wakes(), 1);
        assert_eq!(polled(&wakers, &task, |_| None), [1]);
    }

    #[test]
    fn parts_that_wake_each_other_do_not_wake_the_task() {
        let (wakers, task) = (PartWakers::<2>::new(), Arc::<Counting>::default());
        let mut left = 5;
        let there_and_back = |part| {
            left -= 1;
            (left > 0).then_some(1 - part)
        };
        assert_eq!(polled(&wakers, &task, there_and_back), [0, 1, 0, 1, 0]);
        assert_eq!(task.wakes(), 0);
        // Parts that never stop let other tasks run.
        wakers.wake(0);
        assert_eq!(polled(&wakers, &task, |part| Some(1 - part)).len(), 2 * ROUNDS_MAX);
        assert_eq!(task.wakes(), 2);
    }

    #[test]
    fn a_part_that_is_ready_ends_the_poll() {
        let (wakers, task) = (PartWakers::<2>::new(), Arc::<Counting>::default());
        let waker = Waker::from(task.clone());
        let first = wakers.poll(&mut Context::from_waker(&waker), |part, _| Poll::Ready(part));
        assert_eq!(first, Poll::Ready(0));
        wakers.wake(0);
        assert_eq!(task.wakes(), 1, "the task is not polling any more");
    }

    /// Another thread wakes a part at any moment. No wake is lost: the task is woken, or polls the part.
    #[test]
    fn no_wake_of_another_thread_is_lost() {
        const WAKES: usize = 100_000;
        let (wakers, task) = (Arc::new(PartWakers::<2>::new()), Arc::<Counting>::default());
        let (sent, seen) = (Arc::<AtomicUsize>::default(), AtomicUsize::new(0));
        let other = thread::spawn({
            let (wakers, sent) = (wakers.clone(), sent.clone());
            move || {
                for _ in 0..WAKES {
                    sent.fetch_add(1, Ordering::SeqCst);
                    wakers.wake(0);
                }
            }
        });
        let waker = Waker::from(task.clone());
        while seen.load(Ordering::SeqCst) < WAKES {
            let before = task.wakes();
            let _ = wakers.poll(&mut Context::from_waker(&waker), |part, _| {
                if part == 0 {
                    seen.store(sent.load(Ordering::SeqCst), Ordering::SeqCst);
                }
                Poll::<()>::Pending
            });
            // If all was sent and not all was seen, the task has been woken since.
            if other.is_finished() && seen.load(Ordering::SeqCst) < WAKES {
                assert!(task.wakes() > before);
            }
        }
        other.join().unwrap();
    }
}
