//! Answers about origins and transfers.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use watari_proxy::{OriginStatus, PoolStatus, QueueStatus, ResourceStatus, TransferStatus};

/// A pool of origins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) origins: Vec<Origin>,
    /// The requests of the whole pool, then those of each rule of its queue. Empty: the pool has no queue.
    pub(crate) queue: Vec<Queue>,
    /// Recently requested resources, the latest first.
    pub(crate) resources: Vec<Resource>,
    /// Transfers that could continue from another origin, the oldest first.
    pub(crate) transfers: Vec<Transfer>,
}

/// An origin of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    pub(crate) url: String,
    /// Whether the agent sends it requests.
    pub(crate) available: bool,
    /// Whether the agent drains it.
    pub(crate) draining: bool,
    /// Requests in progress.
    pub(crate) requests: usize,
    /// Mean response time, in microseconds.
    pub(crate) response_us: u64,
    pub(crate) bytes_per_s: u64,
}

/// Requests of a pool that are in progress at its origins or wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Queue {
    /// The requests that count here. `None`: all of the pool.
    pub(crate) pattern: Option<String>,
    pub(crate) in_progress: usize,
    pub(crate) waiting: usize,
}

/// Whether transfers of one resource could move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Resource {
    /// Host, path and query.
    pub(crate) name: String,
    pub(crate) movable: bool,
    /// The reason why transfers cannot move. Either the response does not allow it at any origin (`no_validator`, ..),
    /// or it is one of:
    /// * `no_other_origin`,
    /// * `not_compared`: no comparison with another origin was made yet,
    /// * `refused_elsewhere`: `elsewhere` has each refusal.
    pub(crate) stays: Option<String>,
    /// The other origins that a comparison was made with.
    pub(crate) elsewhere: Vec<Elsewhere>,
}

/// The result of a comparison with one origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Elsewhere {
    pub(crate) origin: String,
    pub(crate) same: bool,
    /// The reason why this origin could not continue a transfer.
    pub(crate) refusal: Option<String>,
}

/// A transfer that could continue from another origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Transfer {
    pub(crate) id: u64,
    /// The origin that delivers it at present.
    pub(crate) origin: String,
    /// Host, path and query.
    pub(crate) resource: String,
    pub(crate) client: IpAddr,
    /// In bytes; so is `remaining`.
    pub(crate) delivered: u64,
    pub(crate) remaining: u64,
    /// Handovers so far.
    pub(crate) moves: u32,
}

impl From<PoolStatus> for Pool {
    fn from(status: PoolStatus) -> Self {
        let alone = status.origins.len() < 2;
        Self {
            name: status.name,
            origins: status.origins.into_iter().map(Origin::from).collect(),
            queue: status.queue.into_iter().map(Queue::from).collect(),
            resources: status.resources.into_iter().map(|resource| Resource::of(resource, alone)).collect(),
            transfers: status.transfers.into_iter().map(Transfer::from).collect(),
        }
    }
}

impl From<OriginStatus> for Origin {
    fn from(status: OriginStatus) -> Self {
        let OriginStatus { address, available, draining, requests, response, bytes_per_s } = status;
        let response_us = u64::try_from(response.as_micros()).unwrap_or(u64::MAX);
        Self { url: address.to_string(), available, draining, requests, response_us, bytes_per_s }
    }
}

impl From<QueueStatus> for Queue {
    fn from(status: QueueStatus) -> Self {
        let QueueStatus { pattern, in_progress, waiting } = status;
        Self { pattern, in_progress, waiting }
    }
}

impl Resource {
    /// * `alone`: whether the pool has one origin only.
    fn of(status: ResourceStatus, alone: bool) -> Self {
        let elsewhere = status.elsewhere.into_iter().map(|(origin, refusal)| Elsewhere {
            origin: origin.to_string(),
            same: refusal.is_none(),
            refusal: refusal.map(str::to_owned),
        });
        let elsewhere: Vec<_> = elsewhere.collect();
        let stays = match status.stays {
            Some(stays) => Some(stays.as_str()),
            None if alone => Some("no_other_origin"),
            None if elsewhere.is_empty() => Some("not_compared"),
            None if elsewhere.iter().all(|origin| !origin.same) => Some("refused_elsewhere"),
            None => None,
        };
        Self { name: status.resource, movable: stays.is_none(), stays: stays.map(str::to_owned), elsewhere }
    }
}

impl From<TransferStatus> for Transfer {
    fn from(status: TransferStatus) -> Self {
        let TransferStatus { id, origin, resource, client, delivered, remaining, moves } = status;
        Self { id, origin: origin.to_string(), resource, client, delivered, remaining, moves }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn resource(elsewhere: &[Option<&'static str>], alone: bool) -> Resource {
        let origin = |(index, refusal): (usize, &Option<_>)| (format!("http://o{index}").parse().unwrap(), *refusal);
        let elsewhere = elsewhere.iter().enumerate().map(origin).collect();
        Resource::of(ResourceStatus { resource: "example.org/file".into(), stays: None, elsewhere }, alone)
    }

    #[test]
    fn what_is_not_movable_has_a_reason() {
        for (elsewhere, alone, expected) in [
            (&[][..], true, Some("no_other_origin")),
            (&[], false, Some("not_compared")),
            (&[Some("whole"), Some("not_found")], false, Some("refused_elsewhere")),
            (&[Some("whole"), None], false, None),
        ] {
            let resource = resource(elsewhere, alone);
            assert_eq!((resource.stays.as_deref(), resource.movable), (expected, expected.is_none()));
        }
    }
}
