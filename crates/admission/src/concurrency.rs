//! Limits the number of requests of a client that are in progress.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts the requests in progress of each client. Clients that have none take no memory.
#[derive(Debug, Clone, Default)]
pub struct Concurrency {
    clients: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
}

/// A request in progress. Dropping it frees its slot.
#[derive(Debug)]
pub struct InProgress {
    concurrency: Concurrency,
    client: IpAddr,
}

impl Concurrency {
    /// Counts a request of `client`. Returns `None` if `max` of its requests are in progress.
    pub fn enter(&self, client: IpAddr, max: usize) -> Option<InProgress> {
        let mut clients = self.lock();
        if clients.get(&client).copied().unwrap_or(0) >= max {
            return None;
        }
        *clients.entry(client).or_default() += 1;
        Some(InProgress { concurrency: self.clone(), client })
    }

    fn leave(&self, client: IpAddr) {
        let mut clients = self.lock();
        if let Some(count) = clients.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                clients.remove(&client);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, usize>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.concurrency.leave(self.client);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn each_client_has_so_many_places() {
        let concurrency = Concurrency::default();
        let [one, other] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(IpAddr::from);
        let first = concurrency.enter(one, 2).unwrap();
        let second = concurrency.enter(one, 2).unwrap();
        assert!(concurrency.enter(one, 2).is_none());
        assert!(concurrency.enter(other, 2).is_some());
        drop(first);
        let third = concurrency.enter(one, 2).unwrap();
        drop((second, third));
        assert!(concurrency.lock().is_empty(), "nothing is kept of clients that have gone");
        assert!(concurrency.enter(one, 0).is_none() && concurrency.lock().is_empty());
    }
}
