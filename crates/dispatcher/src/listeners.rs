//! The listeners of a dispatcher, which come and go while it runs.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::threads::Threads;
use crate::{Shared, listen};

/// Where clients are accepted, by each of the threads.
pub(crate) struct Listeners {
    threads: Threads,
    accepting: Mutex<BTreeMap<SocketAddr, Accepting>>,
    shutdown: CancellationToken,
}

/// What accepts at one address: a task of each thread.
struct Accepting {
    end: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Listeners {
    /// Accepts on `groups` until `shutdown`.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        threads: &Threads,
        groups: Vec<Vec<TcpListener>>,
        shutdown: &CancellationToken,
    ) -> io::Result<Self> {
        let accepting = start_each(shared, threads, groups, shutdown)?;
        Ok(Self { threads: threads.clone(), accepting: Mutex::new(accepting), shutdown: shutdown.clone() })
    }

    /// The addresses among `wanted` that nobody accepts at yet.
    pub(crate) async fn missing(&self, wanted: &[SocketAddr]) -> Vec<SocketAddr> {
        let accepting = self.accepting.lock().await;
        wanted.iter().filter(|address| !accepting.contains_key(address)).copied().collect()
    }

    /// Accepts at `wanted` and nowhere else, with `added` for what is missing of it.
    pub(crate) async fn set(
        &self,
        shared: &Arc<Shared>,
        wanted: &[SocketAddr],
        added: Vec<Vec<TcpListener>>,
    ) -> io::Result<()> {
        let mut accepting = self.accepting.lock().await;
        accepting.extend(start_each(shared, &self.threads, added, &self.shutdown)?);
        let removed: Vec<_> = accepting.keys().filter(|address| !wanted.contains(address)).copied().collect();
        for Accepting { end, tasks } in removed.into_iter().filter_map(|address| accepting.remove(&address)) {
            end.cancel();
            for task in tasks {
                // A task that failed listens no more either.
                let _ = task.await;
            }
        }
        Ok(())
    }
}

/// Accepts on all of `groups`, or on none. A group is of one address, with a listener for each thread.
fn start_each(
    shared: &Arc<Shared>,
    threads: &Threads,
    groups: Vec<Vec<TcpListener>>,
    shutdown: &CancellationToken,
) -> io::Result<BTreeMap<SocketAddr, Accepting>> {
    let mut started: BTreeMap<_, Accepting> = BTreeMap::new();
    for group in groups {
        let Some(address) = group.first().map(TcpListener::local_addr).transpose()? else { continue };
        let end = shutdown.child_token();
        match threads.start_on_each(group, |listener| listen::start(shared, listener, &end)) {
            Ok(tasks) => started.insert(address, Accepting { end, tasks }),
            Err(error) => {
                end.cancel();
                for accepting in started.values() {
                    accepting.end.cancel();
                }
                return Err(error);
            }
        };
    }
    Ok(started)
}
