//! What operators see of a proxy, and what they can order.

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

/// How a pool is.
#[derive(Debug, Clone)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its origins.
    pub origins: Vec<OriginStatus>,
    /// What was asked for lately, the latest first.
    pub resources: Vec<ResourceStatus>,
    /// Its transfers that could go on at another origin, the eldest first.
    pub transfers: Vec<TransferStatus>,
    /// The requests of all of it, and then those of each rule of its queue; nothing where it has none.
    pub queue: Vec<QueueStatus>,
}

/// How an origin is.
#[derive(Debug, Clone)]
pub struct OriginStatus {
    /// Where it is.
    pub address: OriginAddress,
    /// Whether it gets requests at the moment.
    pub available: bool,
    /// Whether an operator wants it to be left.
    pub draining: bool,
    /// Requests in progress.
    pub requests: usize,
    /// How soon it answers, on average.
    pub response: Duration,
    /// What it sends, in bytes per second.
    pub bytes_per_s: u64,
}

/// Whether transfers of a resource could go on at another origin.
#[derive(Debug, Clone)]
pub struct ResourceStatus {
    /// Host, path and query.
    pub resource: String,
    /// Why they could not, wherever that were.
    pub stays: Option<Stays>,
    /// The other origins that were asked, and why they could not go on, if so.
    pub elsewhere: Vec<(OriginAddress, Option<&'static str>)>,
}

/// A transfer that could go on at another origin.
#[derive(Debug, Clone)]
pub struct TransferStatus {
    /// Its number, which no other transfer of this proxy has.
    pub id: u64,
    /// Where its bytes come from.
    pub origin: OriginAddress,
    /// Host, path and query.
    pub resource: String,
    /// Whose it is.
    pub client: IpAddr,
    /// Bytes that the client was given.
    pub delivered: u64,
    /// Bytes that are left.
    pub remaining: u64,
    /// How often it went on at another origin.
    pub moves: u32,
}

/// An order cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum Impossible {
    /// No pool has it.
    #[error("{0} is no origin here")]
    NoOrigin(OriginAddress),
    /// It has ended, or never was.
    #[error("there is no transfer {0}")]
    NoTransfer(u64),
    /// Why it stays.
    #[error("the transfer stays: {0}")]
    Stays(#[from] Denied),
}

impl Proxy {
    /// How all pools are; also those that a reload has put others in the place of, as long as they have transfers.
    pub fn status(&self) -> Vec<PoolStatus> {
        let retired = self.retired.iter().filter_map(Weak::upgrade).filter(|pool| !pool.transfers().all().is_empty());
        self.pools.iter().cloned().chain(retired).map(|pool| pool.status()).collect()
    }

    /// Has an origin left, in all pools: nothing new goes there while there are others, and transfers that can go on elsewhere
    /// do. Or takes that back.
    pub fn drain(&self, address: &OriginAddress, draining: bool) -> Result<(), Impossible> {
        let origins = self.pools().flat_map(|pool| pool.origins().to_vec());
        let meant: Vec<_> = origins.filter(|origin| origin.address == *address).collect();
        for origin in &meant {
            origin.set_draining(draining);
        }
        if meant.is_empty() { Err(Impossible::NoOrigin(address.clone())) } else { Ok(()) }
    }

    /// Has a transfer go on at another origin of its pool; without `to`, at the one that has least to do. Whether it does, the
    /// status shows.
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
