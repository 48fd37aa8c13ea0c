//! Counts of clients: in total, and for each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::DispatcherShared;

#[derive(Default)]
pub(crate) struct Clients {
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// Counts one client until it is dropped.
pub(crate) struct Presence {
    shared: Arc<DispatcherShared>,
    address: Option<IpAddr>,
}

impl Presence {
    /// Counts one more client. `None`: there are `max` already.
    pub(crate) fn enter(shared: &Arc<DispatcherShared>, max: usize) -> Option<Self> {
        let mut counts = shared.clients.counts();
        if counts.total >= max {
            return None;
        }
        counts.total += 1;
        drop(counts);
        shared.metrics.connections.inc();
        Some(Self { shared: shared.clone(), address: None })
    }

    /// Counts the client under its address; called once. `false`: `address` has `max` connections already.
    pub(crate) fn comes_from(&mut self, address: IpAddr, max: usize) -> bool {
        let address = address.to_canonical();
        let mut counts = self.shared.clients.counts();
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
        self.shared.metrics.connections.dec();
        let mut counts = self.shared.clients.counts();
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
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
