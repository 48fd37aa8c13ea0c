//! Clients: those that were accepted, and counts of them in total and for each address.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::gauge::Gauge;
use tokio::net::TcpStream;

/// A client that was accepted.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) address: SocketAddr,
    /// The address that the client connected to.
    pub(crate) server: SocketAddr,
    /// The bytes that were already read from the client.
    pub(crate) read_ahead: Vec<u8>,
}

/// The counts of clients.
pub(crate) struct Clients {
    counts: Mutex<Counts>,
    connections: Gauge,
}

#[derive(Default)]
struct Counts {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// Counts one client until it is dropped.
pub(crate) struct Presence {
    clients: Arc<Clients>,
    address: Option<IpAddr>,
}

impl Presence {
    /// Counts one more client. `None`: there are `max` already.
    pub(crate) fn enter(clients: &Arc<Clients>, max: usize) -> Option<Self> {
        let mut counts = clients.counts();
        if counts.total >= max {
            return None;
        }
        counts.total += 1;
        drop(counts);
        clients.connections.inc();
        Some(Self { clients: clients.clone(), address: None })
    }

    /// Counts a client of this process's predecessor, whatever the limits are.
    pub(crate) fn restore(clients: &Arc<Clients>, address: IpAddr) -> Self {
        let address = address.to_canonical();
        let mut counts = clients.counts();
        counts.total += 1;
        *counts.by_address.entry(address).or_default() += 1;
        drop(counts);
        clients.connections.inc();
        Self { clients: clients.clone(), address: Some(address) }
    }

    /// Counts the client under its address; called once. `false`: `address` has `max` connections already.
    pub(crate) fn comes_from(&mut self, address: IpAddr, max: usize) -> bool {
        let address = address.to_canonical();
        let mut counts = self.clients.counts();
        let count = counts.by_address.entry(address).or_default();
        if *count >= max {
            return false;
        }
        *count += 1;
        self.address = Some(address);
        true
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.clients.connections.dec();
        let mut counts = self.clients.counts();
        counts.total -= 1;
        let Some(address) = self.address else { return };
        if let Some(count) = counts.by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                counts.by_address.remove(&address);
            }
        }
    }
}

impl Clients {
    /// `connections`: the metric of the total.
    pub(crate) fn new(connections: Gauge) -> Self {
        Self { counts: Mutex::default(), connections }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
