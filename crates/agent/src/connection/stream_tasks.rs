//! Runs the streams of an HTTP/2 connection in the task of the connection.
//!
//! hyper makes a future of each stream: it answers the request and passes on the response's body. In a task of its own,
//! it often runs on another thread than the connection. Each request and each filled buffer then costs two wakeups
//! across threads.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::stream::{FuturesUnordered, Stream as _};
use hyper::rt::Executor;

type StreamTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The streams of one connection. Their futures end with it.
#[derive(Default)]
pub(super) struct StreamTasks {
    begun: Begun,
    running: FuturesUnordered<StreamTask>,
}

/// The streams that have begun and do not run yet.
#[derive(Clone, Default)]
pub(super) struct Begun(Arc<Mutex<Vec<StreamTask>>>);

impl Begun {
    fn take(&self) -> Vec<StreamTask> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<StreamTask>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Begun {
    fn execute(&self, task: F) {
        self.lock().push(Box::pin(task));
    }
}

impl StreamTasks {
    /// What hyper begins streams with.
    pub(super) fn executor(&self) -> Begun {
        self.begun.clone()
    }

    /// Polls all streams that can go on. Returns whether any began or ended, so that the connection has to be polled.
    /// One that went on wakes the connection.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let begun = self.begun.take();
        let mut changed = !begun.is_empty();
        self.running.extend(begun);
        while let Poll::Ready(Some(())) = Pin::new(&mut self.running).poll_next(cx) {
            changed = true;
        }
        // A stream that becomes a tunnel begins another future.
        changed || !self.begun.lock().is_empty()
    }
}
