//! Clients at service addresses that have no relay to an agent: those that wait for one, and those of backends. They
//! cannot go to another dispatcher. When their address leaves this node, they are reset.

use std::collections::HashMap;
use std::future::pending;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// The clients of all service addresses.
#[derive(Default)]
pub(crate) struct Unrelayed(Mutex<HashMap<IpAddr, Arc<Clients>>>);

/// The clients of an address, until it leaves this node.
#[derive(Default)]
pub(crate) struct Clients {
    leaves: CancellationToken,
    count: AtomicUsize,
}

/// Counts a client until it is dropped.
pub(crate) struct UnrelayedClient(Option<Arc<Clients>>);

impl Unrelayed {
    /// Counts a client. `is_service`: whether an address may leave this node.
    pub(crate) fn enter(&self, stream: &TcpStream, is_service: impl FnOnce(IpAddr) -> bool) -> UnrelayedClient {
        // Behind a relay, this is not the address that the client knows.
        let address = stream.local_addr().ok().map(|address| address.ip().to_canonical());
        let clients = address.filter(|address| is_service(*address)).map(|address| {
            let mut addresses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let clients = addresses.entry(address).or_default().clone();
            clients.count.fetch_add(1, Ordering::SeqCst);
            clients
        });
        UnrelayedClient(clients)
    }

    /// The address leaves this node. Its clients are asked to end. Returns them, and their number.
    pub(crate) fn leave(&self, address: IpAddr) -> (Arc<Clients>, usize) {
        let mut addresses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let clients = addresses.remove(&address.to_canonical()).unwrap_or_default();
        let count = clients.count();
        clients.leaves.cancel();
        (clients, count)
    }
}

impl Clients {
    /// The number of those that have not ended.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

impl UnrelayedClient {
    /// Waits until the client has to end, because its address leaves this node.
    pub(crate) fn leaves(&self) -> impl Future<Output = ()> + use<> {
        let clients = self.0.clone();
        async move {
            match clients {
                Some(clients) => clients.leaves.cancelled().await,
                None => pending().await,
            }
        }
    }
}

impl Drop for UnrelayedClient {
    fn drop(&mut self) {
        if let Some(clients) = &self.0 {
            clients.count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
