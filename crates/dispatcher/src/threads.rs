//! The threads that relay.
//!
//! Each has a runtime and listeners of its own, among which the system distributes the clients (`SO_REUSEPORT`). A connection
//! stays on its thread from its acceptance to its end: nothing is stolen from another thread, and only a message of the mesh wakes one.

use std::future::pending;
use std::io;
use std::thread;

use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use crate::Listener;

/// The running threads. They end at the shutdown they were started with, and reset their clients.
#[derive(Clone)]
pub(crate) struct Threads {
    /// Cancelled when a thread ends, however it does.
    one_ended: CancellationToken,
    shutdown: CancellationToken,
}

impl Threads {
    /// Starts a thread for each of `listeners`. `accept` is called for each listener, in the runtime of its thread.
    pub(crate) fn start(
        listeners: Vec<Vec<Listener>>,
        shutdown: &CancellationToken,
        accept: impl Fn(Listener) -> io::Result<()>,
    ) -> io::Result<Self> {
        let threads = Self { one_ended: CancellationToken::new(), shutdown: shutdown.clone() };
        for (number, listeners) in listeners.into_iter().enumerate() {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            {
                let _entered = runtime.enter();
                listeners.into_iter().try_for_each(&accept)?;
            }
            let shutdown = shutdown.clone();
            threads.spawn(number, runtime, async move { shutdown.cancelled().await })?;
        }
        Ok(threads)
    }

    fn spawn(&self, number: usize, runtime: Runtime, end: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        let ended = self.one_ended.clone().drop_guard();
        let relay = move || {
            // Dropped also where this unwinds.
            let _ended = ended;
            runtime.block_on(end);
        };
        thread::Builder::new().name(format!("relay-{number}")).spawn(relay).map(drop)
    }

    /// Waits until a thread has ended that was not asked to.
    pub(crate) async fn lost(&self) {
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
    use tokio::time::timeout;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn listener() -> Listener {
        Listener::Clients(std::net::TcpListener::bind("127.0.0.1:0").unwrap())
    }

    #[tokio::test]
    async fn each_set_of_listeners_has_a_thread_of_its_own() {
        let shutdown = CancellationToken::new();
        let (said, mut names) = tokio::sync::mpsc::unbounded_channel();
        let threads = Threads::start(vec![vec![listener(), listener()], vec![listener()]], &shutdown, |_| {
            let said = said.clone();
            tokio::spawn(async move { said.send(thread::current().name().unwrap().to_owned()) });
            Ok(())
        });
        let mut heard = Vec::new();
        for _ in 0..3 {
            heard.push(timeout(PATIENCE, names.recv()).await.unwrap().unwrap());
        }
        heard.sort();
        assert_eq!(heard, ["relay-0", "relay-0", "relay-1"]);
        shutdown.cancel();
        timeout(PATIENCE, threads.unwrap().one_ended.cancelled()).await.unwrap();
    }

    #[tokio::test]
    async fn a_thread_that_panics_is_missed_and_one_that_was_asked_to_end_is_not() {
        let shutdown = CancellationToken::new();
        let threads = Threads::start(vec![vec![], vec![]], &shutdown, |_| Ok(())).unwrap();
        let runtime = Builder::new_current_thread().build().unwrap();
        threads.spawn(2, runtime, async { panic!("on purpose") }).unwrap();
        timeout(PATIENCE, threads.lost()).await.unwrap();
        shutdown.cancel();
        assert!(timeout(Duration::ZERO, threads.lost()).await.is_err());
    }
}
