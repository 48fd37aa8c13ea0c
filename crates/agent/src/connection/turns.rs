//! Turns of handshakes, so that they leave time for the other tasks of their thread.
//!
//! Before the server's flight, a handshake computes a signature: up to some milliseconds of CPU time. A runtime runs its
//! tasks in the order in which they became ready. So each `ClientHello` would make all other tasks wait, those of the
//! mesh and of health checks too: after some hundreds of them, dispatchers would take the agent for dead.
//!
//! *Invariant:* between two such steps on a thread, the runtime looks for I/O, and runs all tasks that are ready.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;

thread_local! {
    /// Has one permit, the turn. A connection stays on its thread, so all handshakes of a thread share it.
    static TURN: Arc<Semaphore> = Arc::new(Semaphore::new(1));
}

/// The turn of a handshake. Dropping it gives the turn to the handshake that has waited longest.
pub(crate) struct Turn {
    _permit: OwnedSemaphorePermit,
}

impl Turn {
    /// Waits for a turn on this thread. The caller does one step, and drops the turn without waiting for anything else.
    pub(crate) async fn wait() -> Self {
        let permit = TURN.with(Arc::clone).acquire_owned().await.expect("the semaphore is never closed");
        // The handshakes that wait for the turn are not ready now. The runtime continues this one after it has run all
        // tasks that are, and has looked for I/O.
        yield_now().await;
        Self { _permit: permit }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write;
    use std::os::unix::net::UnixStream as StdStream;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::AsyncReadExt;
    use tokio::net::UnixStream;
    use tokio::task::JoinSet;

    use super::*;

    const STEPS: usize = 200;

    /// Many more steps are due than tasks run before a runtime looks for I/O by itself.
    #[tokio::test]
    async fn what_arrives_is_read_before_the_next_step() {
        let (writer, reader) = StdStream::pair().unwrap();
        reader.set_nonblocking(true).unwrap();
        let mut reader = UnixStream::from_std(reader).unwrap();
        let (writer, read) = (Arc::new(writer), Arc::new(AtomicUsize::new(0)));
        let mut steps = JoinSet::new();
        for _ in 0..STEPS {
            let (writer, read) = (writer.clone(), read.clone());
            steps.spawn(async move {
                let _turn = Turn::wait().await;
                (&*writer).write_all(&[0]).unwrap();
                read.load(Ordering::Relaxed)
            });
        }
        let reading = async {
            while reader.read_u8().await.is_ok() {
                read.fetch_add(1, Ordering::Relaxed);
            }
        };
        let mut read_before_each = tokio::select! {
            biased;
            counts = steps.join_all() => counts,
            () = reading => unreachable!("the writer is open"),
        };
        read_before_each.sort_unstable();
        assert_eq!(read_before_each, (0..STEPS).collect::<Vec<_>>());
    }
}
