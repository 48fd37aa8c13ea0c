//! Runs the streams of an HTTP/2 connection in the task of the connection.
//!
//! hyper makes a future of each stream: it answers the request and passes on the response's body. In a task of its own,
//! it often runs on another thread than the connection. Each request and each filled buffer then costs two wakeups
//! across threads.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
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
pub(super) struct Begun(Arc<BegunStreams>);

#[derive(Default)]
struct BegunStreams {
    streams: Mutex<Vec<StreamTask>>,
    /// Whether there are any. The connection asks more often than streams begin.
    are_some: AtomicBool,
}

impl Begun {
    fn are_some(&self) -> bool {
        self.0.are_some.load(Ordering::Relaxed)
    }

    fn take(&self) -> Vec<StreamTask> {
        let mut streams = self.lock();
        self.0.are_some.store(false, Ordering::Relaxed);
        std::mem::take(&mut *streams)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<StreamTask>> {
        self.0.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Begun {
    fn execute(&self, task: F) {
        let task = Box::pin(task);
        self.lock().push(task);
        self.0.are_some.store(true, Ordering::Relaxed);
    }
}

impl StreamTasks {
    /// What hyper begins streams with.
    pub(super) fn executor(&self) -> Begun {
        self.begun.clone()
    }

    /// Polls all streams that can go on. One that has something for the connection wakes it.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) {
        if self.begun.are_some() {
            self.running.extend(self.begun.take());
        }
        while let Poll::Ready(Some(())) = Pin::new(&mut self.running).poll_next(cx) {}
    }

    /// Whether streams have begun that were not polled yet.
    pub(super) fn have_begun(&self) -> bool {
        self.begun.are_some()
    }
}
