//! Requests that are due, and wait for a client that is free.

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
    /// Adds a request by its number; true if there are fewer idle clients than requests that wait.
    pub(super) fn push(&self, due: Duration, number: u64) -> bool {
        let mut queue = self.lock();
        queue.waiting.push_back((due, number));
        self.changed.notify_one();
        queue.waiting.len() > queue.idle
    }

    /// Takes out what was due before this.
    pub(super) fn due_before(&self, time: Duration) -> Vec<(Duration, u64)> {
        let waiting = &mut self.lock().waiting;
        iter::from_fn(|| waiting.pop_front_if(|(due, _)| *due < time)).collect()
    }

    /// Nothing will be added.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_waiters();
    }

    /// The request that has waited longest; none when there are none and will be none.
    pub(super) async fn next(&self) -> Option<(Duration, u64)> {
        loop {
            // Before looking: a change between looking and waiting is not missed.
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
