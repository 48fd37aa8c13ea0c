//! The state of a proxy, as operators see it.

use std::net::IpAddr;
use std::time::Duration;

use watari_admission::Load;
use watari_handover::Stays;

use crate::exchange::address::OriginAddress;

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

/// The number of requests, by state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueStatus {
    /// The pattern of the rule that they match. `None`: all of the pool.
    pub pattern: Option<String>,
    /// Requests at the origins.
    pub in_progress: usize,
    /// Requests that wait for a slot.
    pub waiting: usize,
}

impl QueueStatus {
    pub(crate) fn of(pattern: Option<String>, load: Load) -> Self {
        Self { pattern, in_progress: load.in_progress, waiting: load.waiting }
    }
}
