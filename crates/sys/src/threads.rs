//! Threads with a runtime each.
//!
//! A connection stays on one thread from its start to its end. There is no work stealing: a runtime that shares its
//! tasks among threads wakes another thread for most requests.

use std::future::pending;
use std::io;
use std::thread;

use tokio::runtime::{Handle, Runtime};
use tokio_util::sync::CancellationToken;

use crate::memory::build_runtime;

/// The running threads. They end at the shutdown token given at the start, and drop their tasks. Clones share them.
#[derive(Clone)]
pub struct Threads {
    /// Cancelled when a thread ends, also by a panic.
    one_ended: CancellationToken,
    shutdown: CancellationToken,
    runtimes: Vec<Handle>,
}

impl Threads {
    /// Starts `count` threads, called `name` with a number.
    pub fn start(name: &str, count: usize, shutdown: &CancellationToken) -> io::Result<Self> {
        let mut threads =
            Self { one_ended: CancellationToken::new(), shutdown: shutdown.clone(), runtimes: Vec::new() };
        for number in 0..count {
            let runtime = build_runtime()?;
            threads.runtimes.push(runtime.handle().clone());
            let shutdown = shutdown.clone();
            threads.run(format!("{name}-{number}"), runtime, async move { shutdown.cancelled().await })?;
        }
        Ok(threads)
    }

    /// Calls `start` with one of `parts` for each thread, in the context of that thread's runtime.
    pub fn start_on_each<P, T>(&self, parts: Vec<P>, start: impl Fn(P) -> io::Result<T>) -> io::Result<Vec<T>> {
        let each = self.runtimes.iter().zip(parts).map(|(runtime, part)| {
            let _entered = runtime.enter();
            start(part)
        });
        each.collect()
    }

    /// The runtimes of the threads.
    pub fn runtimes(&self) -> &[Handle] {
        &self.runtimes
    }

    fn run(&self, name: String, runtime: Runtime, end: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        let ended = self.one_ended.clone().drop_guard();
        let serve = move || {
            // Dropped also if this panics.
            let _ended = ended;
            runtime.block_on(end);
        };
        thread::Builder::new().name(name).spawn(serve).map(drop)
    }

    /// Waits until a thread has ended before the shutdown.
    pub async fn lost(&self) {
        self.one_ended.cancelled().await;
        if self.shutdown.is_cancelled() {
            pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::time::Duration;
    use tokio::runtime::Builder;
    use tokio::time::timeout;

    const WAIT_MAX: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn each_part_is_started_on_a_thread_of_its_own() {
        let shutdown = CancellationToken::new();
        let (sender, mut names) = tokio::sync::mpsc::unbounded_channel();
        let threads = Threads::start("test", 2, &shutdown).unwrap();
        for _ in 0..2 {
            let send = |part: &str| {
                let (sender, part) = (sender.clone(), part.to_owned());
                tokio::spawn(async move { sender.send((part, thread::current().name().unwrap().to_owned())) });
                Ok(())
            };
            assert_eq!(threads.start_on_each(vec!["first", "second"], send).unwrap().len(), 2);
        }
        let mut received = Vec::new();
        for _ in 0..4 {
            received.push(timeout(WAIT_MAX, names.recv()).await.unwrap().unwrap());
        }
        received.sort();
        let (first, second) = (("first".into(), "test-0".into()), ("second".into(), "test-1".into()));
        assert_eq!(received, [first.clone(), first, second.clone(), second]);
        shutdown.cancel();
        timeout(WAIT_MAX, threads.one_ended.cancelled()).await.unwrap();
    }

    #[tokio::test]
    async fn a_thread_that_panics_is_missed_and_one_that_was_asked_to_end_is_not() {
        let shutdown = CancellationToken::new();
        let threads = Threads::start("test", 2, &shutdown).unwrap();
        let runtime = Builder::new_current_thread().build().unwrap();
        threads.run("test-2".to_owned(), runtime, async { panic!("on purpose") }).unwrap();
        timeout(WAIT_MAX, threads.lost()).await.unwrap();
        shutdown.cancel();
        assert!(timeout(Duration::ZERO, threads.lost()).await.is_err());
    }
}
