//! The listeners of a dispatcher. A reload can add and remove them.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use watari_sys::{Acceptor, Threads};

use crate::listen::{self, AcceptFrom};
use crate::shared::DispatcherShared;

/// The addresses on which clients are accepted: for each address one listener for each thread, or only the addresses.
#[derive(Debug)]
pub struct Listeners<L = Vec<TcpListener>> {
    /// For direct connections of clients.
    pub clients: Vec<L>,
    /// For relays, which report client addresses by the PROXY protocol.
    pub relays: Vec<L>,
}

impl<L> Default for Listeners<L> {
    fn default() -> Self {
        Self { clients: Vec::new(), relays: Vec::new() }
    }
}

impl<L> Listeners<L> {
    fn each(self) -> impl Iterator<Item = (AcceptFrom, L)> {
        let clients = self.clients.into_iter().map(|listener| (AcceptFrom::Clients, listener));
        clients.chain(self.relays.into_iter().map(|listener| (AcceptFrom::Relays, listener)))
    }
}

impl Listeners {
    /// All listeners.
    pub fn all(&self) -> impl Iterator<Item = &TcpListener> {
        self.clients.iter().chain(&self.relays).flatten()
    }

    /// The addresses of the listeners.
    pub fn addresses(&self) -> io::Result<Listeners<SocketAddr>> {
        let each = |groups: &[Vec<TcpListener>]| {
            groups.iter().filter_map(|group| group.first()).map(TcpListener::local_addr).collect::<io::Result<_>>()
        };
        Ok(Listeners { clients: each(&self.clients)?, relays: each(&self.relays)? })
    }
}

type Place = (AcceptFrom, SocketAddr);

/// The accept loops of all addresses and threads. The kernel distributes clients to the listeners of an address
/// (`SO_REUSEPORT`). A connection stays on its thread from accept to end, and only messages of the mesh wake another.
pub(crate) struct Accepting {
    threads: Threads,
    groups: Mutex<BTreeMap<Place, Group>>,
    shutdown: CancellationToken,
}

/// The accept loops of one address, one for each thread.
struct Group {
    end: CancellationToken,
    acceptors: Vec<Acceptor>,
}

impl Accepting {
    /// Accepts nowhere yet, and nowhere after `shutdown`.
    pub(crate) fn new(threads: &Threads, shutdown: &CancellationToken) -> Self {
        Self { threads: threads.clone(), groups: Mutex::default(), shutdown: shutdown.clone() }
    }

    /// The addresses of `wanted` without an accept loop.
    pub(crate) async fn missing(&self, wanted: &Listeners<SocketAddr>) -> Listeners<SocketAddr> {
        let groups = self.groups.lock().await;
        let missing = |from, addresses: &[SocketAddr]| {
            addresses.iter().filter(|address| !groups.contains_key(&(from, **address))).copied().collect()
        };
        Listeners {
            clients: missing(AcceptFrom::Clients, &wanted.clients),
            relays: missing(AcceptFrom::Relays, &wanted.relays),
        }
    }

    /// Further handles of all listeners.
    pub(crate) async fn listeners(&self) -> io::Result<Listeners> {
        let mut listeners = Listeners::default();
        for ((from, _), group) in &*self.groups.lock().await {
            let handles = group.acceptors.iter().filter_map(Acceptor::listener).collect::<io::Result<_>>()?;
            match from {
                AcceptFrom::Clients => listeners.clients.push(handles),
                AcceptFrom::Relays => listeners.relays.push(handles),
            }
        }
        Ok(listeners)
    }

    /// Accepts on exactly the `wanted` addresses. `added` has the listeners for those that are missing so far.
    pub(crate) async fn set(
        &self,
        shared: &Arc<DispatcherShared>,
        wanted: &Listeners<SocketAddr>,
        added: Listeners,
    ) -> io::Result<()> {
        let mut groups = self.groups.lock().await;
        groups.extend(start_each(shared, &self.threads, added, &self.shutdown)?);
        let is_wanted = |(from, address): &Place| match from {
            AcceptFrom::Clients => wanted.clients.contains(address),
            AcceptFrom::Relays => wanted.relays.contains(address),
        };
        let removed: Vec<_> = groups.keys().filter(|place| !is_wanted(place)).copied().collect();
        for Group { end, acceptors } in removed.into_iter().filter_map(|place| groups.remove(&place)) {
            end.cancel();
            for acceptor in acceptors {
                acceptor.ended().await;
            }
        }
        Ok(())
    }

    /// Sets the `TCP_USER_TIMEOUT` of clients that are accepted from now on.
    pub(crate) async fn set_user_timeout(&self, timeout: Duration) {
        for acceptor in self.groups.lock().await.values().flat_map(|group| &group.acceptors) {
            if let Err(error) = acceptor.set_user_timeout(timeout) {
                tracing::warn!(%error, "cannot set user_timeout on a listener: it keeps the previous value");
            }
        }
    }
}

/// Accepts on all of `listeners`, or on none if one fails.
fn start_each(
    shared: &Arc<DispatcherShared>,
    threads: &Threads,
    listeners: Listeners,
    shutdown: &CancellationToken,
) -> io::Result<BTreeMap<Place, Group>> {
    let mut started: BTreeMap<_, Group> = BTreeMap::new();
    for (from, group) in listeners.each() {
        let Some(address) = group.first().map(TcpListener::local_addr).transpose()? else { continue };
        let end = shutdown.child_token();
        // A predecessor of this process may have had more threads.
        let mut acceptors = Vec::new();
        let mut group = group.into_iter().peekable();
        let mut started_each = Ok(());
        while group.peek().is_some() && started_each.is_ok() {
            let some = group.by_ref().take(threads.runtimes().len()).collect();
            let each = threads.start_on_each(some, |listener| listen::start(shared, listener, from, &end));
            started_each = each.map(|each| acceptors.extend(each));
        }
        match started_each.map(|()| acceptors) {
            Ok(acceptors) => started.insert((from, address), Group { end, acceptors }),
            Err(error) => {
                end.cancel();
                for group in started.values() {
                    group.end.cancel();
                }
                return Err(error);
            }
        };
    }
    Ok(started)
}
