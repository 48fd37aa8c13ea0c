//! The part of a node in decisions about addresses, whether it may own them or not.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use watari_values::NodeName;
use watari_wire::{LeaseGranted, LeaseNumber, LeaseRefused, LeaseReturned, LeaseWanted, TakeoverMessage};

use crate::terms::{LEASE_MAX, Time};

/// Addresses with a lease at a time. A hostile dispatcher could ask for leases of any address.
const LEASES_MAX: usize = 1024;

/// Grants leases: for each address, to one candidate at a time.
///
/// A voter needs no configuration. It stores nothing: a voter that has just started grants nothing for the length of
/// the lease that it is asked for, because it may have granted such a lease before it ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Voter {
    started: Time,
    leases: BTreeMap<IpAddr, GrantedLease>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct GrantedLease {
    holder: NodeName,
    /// The last request that was granted.
    number: LeaseNumber,
    end: Time,
}

impl Voter {
    /// A voter whose process started at `now`.
    pub fn new(now: Time) -> Self {
        Self { started: now, leases: BTreeMap::new() }
    }

    /// Answers the request of a candidate.
    pub fn wanted(&mut self, from: &NodeName, wanted: &LeaseWanted, now: Time) -> TakeoverMessage {
        self.leases.retain(|_, lease| lease.end > now);
        if let Some(before) = wanted.after.as_ref().filter(|_| !wanted.inquiry) {
            self.end_lease(wanted.address, &before.node, before.lease);
        }
        let (address, lease) = (wanted.address, wanted.lease);
        let length = Duration::from_millis(wanted.lease_ms.into());
        let may_be_granted_before = (self.started + length).saturating_sub(now);
        let refused = |holder: Option<NodeName>, remaining: Duration| {
            // Rounded up, so that a candidate does not ask too early.
            let remaining_ms = u32::try_from(remaining.as_micros().div_ceil(1000)).unwrap_or(u32::MAX);
            TakeoverMessage::LeaseRefused(LeaseRefused { address, lease, holder, remaining_ms })
        };
        match self.leases.get(&address) {
            Some(other) if other.holder != *from || other.number.incarnation != lease.incarnation => {
                return refused(Some(other.holder.clone()), other.end.saturating_sub(now));
            }
            // A late copy of a request that was answered.
            Some(own) if own.number.round > lease.round => return refused(None, Duration::ZERO),
            None if !may_be_granted_before.is_zero() => return refused(None, may_be_granted_before),
            None if self.leases.len() >= LEASES_MAX || length > LEASE_MAX => return refused(None, LEASE_MAX),
            Some(_) | None => {}
        }
        if wanted.inquiry {
            return refused(None, Duration::ZERO);
        }
        self.leases.insert(address, GrantedLease { holder: from.clone(), number: lease, end: now + length });
        TakeoverMessage::LeaseGranted(LeaseGranted { address, lease })
    }

    /// Ends the lease that a candidate gives back.
    pub fn returned(&mut self, from: &NodeName, returned: &LeaseReturned) {
        self.end_lease(returned.address, from, returned.lease);
    }

    /// Ends the lease of `holder` unless it was granted, or renewed, for a later request.
    fn end_lease(&mut self, address: IpAddr, holder: &NodeName, number: LeaseNumber) {
        let is_meant = |lease: &GrantedLease| {
            lease.holder == *holder
                && lease.number.incarnation == number.incarnation
                && lease.number.round <= number.round
        };
        if self.leases.get(&address).is_some_and(is_meant) {
            self.leases.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests;
