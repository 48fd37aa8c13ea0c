//! State of a proxy for operators, and their orders.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::Weak;
use std::time::Duration;

use watari_handover::Stays;
use watari_handover::governor::{Availability, Denied, OriginId, TransferId};

use crate::admission::QueueStatus;
use crate::pool::Pool;
use crate::resources::Known;
use crate::transfers::Running;
use crate::{OriginAddress, Proxy};

/// The state of a pool.
#[derive(Debug, Clone)]
pub struct PoolStatus {
    pub name: String,
    pub origins: Vec<OriginStatus>,
    /// The resources of recent requests, the latest first.
    pub resources: Vec<ResourceStatus>,
    /// The transfers that could continue at another origin, the oldest first.
    pub transfers: Vec<TransferStatus>,
    /// The requests of the whole pool, and then those of each rule of its queue. Empty if it has no queue.
    pub queue: Vec<QueueStatus>,
}

/// The state of an origin.
#[derive(Debug, Clone)]
pub struct OriginStatus {
    pub address: OriginAddress,
    /// Whether it gets requests at present.
    pub available: bool,
    /// Whether an operator drains it.
    pub draining: bool,
    /// The number of requests in progress.
    pub requests: usize,
    /// The average time until it responds.
    pub response: Duration,
    /// The rate at which it sends, in bytes per second.
    pub bytes_per_s: u64,
}

/// Whether transfers of a resource could continue at another origin.
#[derive(Debug, Clone)]
pub struct ResourceStatus {
    /// Host, path and query.
    pub resource: String,
    /// Why its transfers cannot move to any origin.
    pub stays: Option<Stays>,
    /// The other origins that were asked. `None`: the transfer could continue there.
    pub elsewhere: Vec<(OriginAddress, Option<&'static str>)>,
}

/// A transfer that could continue at another origin.
#[derive(Debug, Clone)]
pub struct TransferStatus {
    /// The id, which is unique in this proxy.
    pub id: u64,
    /// The origin that delivers it.
    pub origin: OriginAddress,
    /// Host, path and query.
    pub resource: String,
    /// The address of its client.
    pub client: IpAddr,
    /// Bytes that the client got.
    pub delivered: u64,
    /// Bytes that are left.
    pub remaining: u64,
    /// How often it continued at another origin.
    pub moves: u32,
}

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
        let retired = self.retired.iter().filter_map(Weak::upgrade).filter(|pool| !pool.transfers().all().is_empty());
        self.pools.iter().cloned().chain(retired).map(|pool| pool.status()).collect()
    }

    /// Drains an origin in all pools, or ends that. A draining origin gets no new requests while there are others, and
    /// transfers that can continue elsewhere do so.
    pub fn drain(&self, address: &OriginAddress, draining: bool) -> Result<(), Impossible> {
        let origins = self.pools().flat_map(|pool| pool.origins().to_vec());
        let meant: Vec<_> = origins.filter(|origin| origin.address == *address).collect();
        for origin in &meant {
            origin.set_draining(draining);
        }
        if meant.is_empty() { Err(Impossible::NoOrigin(address.clone())) } else { Ok(()) }
    }

    /// Orders a transfer to another origin of its pool. Without `to`, that is the one with the least load. The result
    /// of the move is visible in [`Proxy::status`].
    pub fn move_transfer(&self, id: u64, to: Option<&OriginAddress>) -> Result<(), Impossible> {
        for pool in self.pools() {
            let to = to.map(|to| pool.find(to).ok_or_else(|| Impossible::NoOrigin(to.clone()))).transpose();
            if let Some(running) = pool.transfers().find(TransferId(id)) {
                return Ok(pool.transfers().asked(&running, to?, &pool.views())?);
            }
        }
        Err(Impossible::NoTransfer(id))
    }
}

impl Pool {
    fn status(&self) -> PoolStatus {
        let origins = self.origins().iter().zip(self.views()).map(|(origin, view)| OriginStatus {
            address: origin.address.clone(),
            available: view.availability == Availability::Up,
            draining: origin.is_draining(),
            requests: view.connections,
            response: view.response,
            bytes_per_s: view.rate,
        });
        let transfers = self.transfers().all().into_iter().map(|running| self.transfer_status(&running)).collect();
        let resources = self.resources().all().into_iter().map(|known| self.resource_status(known)).collect();
        let queue = self.admission().map(|admission| admission.status()).unwrap_or_default();
        PoolStatus { name: self.name().to_owned(), origins: origins.collect(), resources, transfers, queue }
    }

    fn resource_status(&self, known: Known) -> ResourceStatus {
        let elsewhere = known.elsewhere.into_iter().map(|(id, why)| (self.origin(id).address.clone(), why));
        let mut elsewhere: Vec<_> = elsewhere.collect();
        elsewhere.sort_by_cached_key(|(address, _)| address.to_string());
        ResourceStatus { resource: known.name, stays: known.stays, elsewhere }
    }

    fn transfer_status(&self, running: &Arc<Running>) -> TransferStatus {
        let progress = running.progress();
        TransferStatus {
            id: running.id().0,
            origin: self.origin(progress.origin).address.clone(),
            resource: running.resource().name().to_owned(),
            client: running.client(),
            delivered: progress.delivered,
            remaining: progress.remaining,
            moves: progress.moves,
        }
    }

    fn find(&self, address: &OriginAddress) -> Option<OriginId> {
        let index = self.origins().iter().position(|origin| origin.address == *address)?;
        Some(crate::pool::origin_id(index))
    }
}
