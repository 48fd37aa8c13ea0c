//! State of a proxy for operators, and their orders.

use std::sync::Arc;
use std::sync::Weak;

use watari_handover::governor::{Availability, Denied, TransferId};

use crate::exchange::address::OriginAddress;
use crate::observe::status::{OriginStatus, PoolStatus, ResourceStatus, TransferStatus};
use crate::proxy::Proxy;
use crate::transfer::resources::Known;
use crate::transfer::running::Running;
use crate::transfer::transfers::Transfers;

/// Why an order cannot be executed.
#[derive(Debug, thiserror::Error)]
pub enum Impossible {
    /// No pool has this origin.
    #[error("no pool has the origin {0}")]
    NoOrigin(OriginAddress),
    /// The transfer has ended, or the id was never used.
    #[error("there is no transfer {0}")]
    NoTransfer(u64),
    /// The governor denies the move.
    #[error("the transfer cannot move: {0}")]
    Stays(#[from] Denied),
}

impl Proxy {
    /// The state of all pools. Pools that a reload has replaced are included as long as they have transfers.
    pub fn status(&self) -> Vec<PoolStatus> {
        let retired = self.retired.iter().filter_map(Weak::upgrade).filter(|transfers| !transfers.all().is_empty());
        self.pools.iter().cloned().chain(retired).map(|transfers| transfers.status()).collect()
    }

    /// Drains an origin in all pools, or ends that. A draining origin gets no new requests while there are others, and
    /// transfers that can continue elsewhere do so.
    pub fn drain(&self, address: &OriginAddress, draining: bool) -> Result<(), Impossible> {
        let origins = self.pools().flat_map(|transfers| transfers.pool().origins().to_vec());
        let meant: Vec<_> = origins.filter(|origin| origin.address == *address).collect();
        for origin in &meant {
            origin.set_draining(draining);
        }
        if meant.is_empty() { Err(Impossible::NoOrigin(address.clone())) } else { Ok(()) }
    }

    /// Orders a transfer to another origin of its pool. Without `to`, that is the one with the least load. The result
    /// of the move is visible in [`Proxy::status`].
    pub fn move_transfer(&self, id: u64, to: Option<&OriginAddress>) -> Result<(), Impossible> {
        for transfers in self.pools() {
            let to = to.map(|to| transfers.pool().find(to).ok_or_else(|| Impossible::NoOrigin(to.clone()))).transpose();
            if let Some(running) = transfers.find(TransferId(id)) {
                return Ok(transfers.asked(&running, to?, &transfers.pool().views())?);
            }
        }
        Err(Impossible::NoTransfer(id))
    }
}

impl Transfers {
    fn status(&self) -> PoolStatus {
        let origins = self.pool().origins().iter().zip(self.pool().views()).map(|(origin, view)| OriginStatus {
            address: origin.address.clone(),
            available: view.availability == Availability::Up,
            draining: origin.is_draining(),
            requests: view.connections,
            response: view.response,
            bytes_per_s: view.rate,
        });
        let transfers = self.all().into_iter().map(|running| self.transfer_status(&running)).collect();
        let resources = self.resources().all().into_iter().map(|known| self.resource_status(known)).collect();
        let queue = self.pool().admission().map(|admission| admission.status()).unwrap_or_default();
        PoolStatus { name: self.pool().name().to_owned(), origins: origins.collect(), resources, transfers, queue }
    }

    fn resource_status(&self, known: Known) -> ResourceStatus {
        let elsewhere = known.elsewhere.into_iter().map(|(id, why)| (self.pool().origin(id).address.clone(), why));
        let mut elsewhere: Vec<_> = elsewhere.collect();
        elsewhere.sort_by_cached_key(|(address, _)| address.to_string());
        ResourceStatus { resource: known.name, stays: known.stays, elsewhere }
    }

    fn transfer_status(&self, running: &Arc<Running>) -> TransferStatus {
        let progress = running.progress();
        TransferStatus {
            id: running.id().0,
            origin: self.pool().origin(progress.origin).address.clone(),
            resource: running.resource().name().to_owned(),
            client: running.client(),
            delivered: progress.delivered,
            remaining: progress.remaining,
            moves: progress.moves,
        }
    }
}
