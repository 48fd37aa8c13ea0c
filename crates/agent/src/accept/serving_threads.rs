//! The threads that serve connections, and the number of legs on each.

use std::iter;
use std::net::TcpStream as StdStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpStream;
use tokio::runtime::Handle;
use watari_sys::Threads;

/// Assigns each leg to the thread with the fewest. All connections on the leg are served there.
pub(crate) struct ServingThreads {
    threads: Vec<ServingThread>,
}

struct ServingThread {
    runtime: Handle,
    legs: Arc<AtomicUsize>,
}

/// A leg counts on its thread until this is dropped.
struct CountedLeg(Arc<AtomicUsize>);

impl ServingThreads {
    /// The thread of this runtime, and `others`.
    pub(crate) fn new(others: &Threads) -> Self {
        let runtimes = iter::once(Handle::current()).chain(others.runtimes().iter().cloned());
        Self { threads: runtimes.map(|runtime| ServingThread { runtime, legs: Arc::default() }).collect() }
    }

    /// Runs `attend` with the leg on the thread with the fewest legs. The leg must not be registered with a runtime.
    pub(crate) fn assign<F>(&self, leg: StdStream, attend: impl FnOnce(TcpStream) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send,
    {
        let fewest = self.threads.iter().min_by_key(|thread| thread.legs.load(Ordering::Relaxed));
        let ServingThread { runtime, legs } = fewest.expect("there is at least the thread of this runtime");
        legs.fetch_add(1, Ordering::Relaxed);
        let counted = CountedLeg(legs.clone());
        runtime.spawn(async move {
            let _counted = counted;
            match TcpStream::from_std(leg) {
                Ok(leg) => attend(leg).await,
                Err(error) => tracing::warn!(%error, "cannot serve a leg"),
            }
        });
    }
}

impl Drop for CountedLeg {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::thread;
    use std::time::Duration;

    use tokio::net::TcpListener;
    use tokio::sync::{mpsc, oneshot};
    use tokio::time::timeout;
    use tokio_util::sync::CancellationToken;

    use super::*;

    const WAIT_MAX: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_leg_goes_to_the_thread_with_the_fewest() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let shutdown = CancellationToken::new();
        let _end = shutdown.clone().drop_guard();
        let serving = ServingThreads::new(&Threads::start("test", 1, &shutdown).unwrap());
        let here = thread::current().id();
        let (show, mut shown) = mpsc::unbounded_channel();
        let mut assigned = async || {
            let (leg, _) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
            let (show, (end, ended)) = (show.clone(), oneshot::channel::<()>());
            serving.assign(leg.unwrap().into_std().unwrap(), move |_| async move {
                show.send(thread::current().id() == here).unwrap();
                let _ = ended.await;
            });
            (timeout(WAIT_MAX, shown.recv()).await.unwrap().unwrap(), end)
        };
        let (first, second, third) = (assigned().await, assigned().await, assigned().await);
        assert_eq!([first.0, second.0, third.0], [true, false, true]);
        drop((first, third));
        while serving.threads[0].legs.load(Ordering::Relaxed) > 0 {
            tokio::task::yield_now().await;
        }
        let (fourth, fifth) = (assigned().await, assigned().await);
        // With as many legs on both, the first thread gets the next.
        assert!(fourth.0 && fifth.0);
    }
}
