//! Due requests that wait for an idle client.

use std::collections::VecDeque;
use std::iter;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// A queue between the schedule and the clients of one thread.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    queue: Mutex<Queue>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(Duration, u64)>,
    idle: usize,
    closed: bool,
}

impl Arrivals {
    /// Adds a request by its number; true if more requests wait than clients are idle.
    pub(super) fn push(&self, due: Duration, number: u64) -> bool {
        let mut queue = self.lock();
        queue.waiting.push_back((due, number));
        self.changed.notify_one();
        queue.waiting.len() > queue.idle
    }

    /// Removes the requests that were due before `time`.
    pub(super) fn due_before(&self, time: Duration) -> Vec<(Duration, u64)> {
        let waiting = &mut self.lock().waiting;
        iter::from_fn(|| waiting.pop_front_if(|(due, _)| *due < time)).collect()
    }

    /// Marks the end of the schedule.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_waiters();
    }

    /// The request that has waited longest; `None` when the queue is empty and closed.
    pub(super) async fn next(&self) -> Option<(Duration, u64)> {
        loop {
            // Registers before it checks the queue, so that no change in between is missed.
            let changed = self.changed.notified();
            {
                let mut queue = self.lock();
                if let Some(next) = queue.waiting.pop_front() {
                    return Some(next);
                }
                if queue.closed {
                    return None;
                }
                queue.idle += 1;
            }
            changed.await;
            self.lock().idle -= 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
