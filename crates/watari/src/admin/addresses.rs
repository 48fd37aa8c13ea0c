//! Service addresses in answers.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use watari_addresses::{AddressStatus, MultipathStatus};
use watari_steering::SteeringState;
use watari_takeover::Status;

/// A service address, as the answering node sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AddressEntry {
    /// With the length of its prefix.
    pub(crate) address: String,
    pub(crate) interface: String,
    /// `active`, `standby`, `asking` or `leaving`; of an address that several dispatchers have, `joining`, `serving` or
    /// `leaving`.
    pub(crate) role: String,
    /// The node that has the address. `None`: this node has heard of none.
    pub(crate) owner: Option<String>,
    /// How long the node has had its role.
    pub(crate) since_s: u64,
    /// Whether the node prepares to leave the address: connections go to the next dispatcher.
    #[serde(default)]
    pub(crate) preparing: bool,
    /// How long the lease of the node still lasts, in milliseconds. `None`: it has none.
    pub(crate) lease_ms: Option<u64>,
    pub(crate) priority: u8,
    /// Whether the node can serve clients at the address.
    pub(crate) ready: bool,
    /// Why the node has its role.
    pub(crate) why: String,
}

impl From<AddressStatus> for AddressEntry {
    fn from(AddressStatus { service, status, for_time, lease_left, is_preparing }: AddressStatus) -> Self {
        let Status { role, reason, owner, ready, other_terms, .. } = status;
        let why = match other_terms {
            Some(node) => format!("{node} has other voters or another lease: make them the same"),
            None => reason.to_string(),
        };
        Self {
            address: service.address.to_string(),
            interface: service.interface,
            role: role.as_str().to_owned(),
            owner: owner.map(|owner| owner.to_string()),
            preparing: is_preparing,
            since_s: for_time.as_secs(),
            lease_ms: lease_left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
            priority: service.priority,
            ready,
            why,
        }
    }
}

impl AddressEntry {
    /// Entries for addresses that several dispatchers have.
    pub(crate) fn of_shared(status: &MultipathStatus) -> Vec<Self> {
        let MultipathStatus { addresses, interface, state, slots: (own, all), strays, others, is_agreed, .. } = status;
        let state_of = |state: Option<SteeringState>| state.map_or("silent", SteeringState::as_str);
        let others: Vec<_> = others.iter().map(|(name, state)| format!("{name} {}", state_of(*state))).collect();
        let others = if others.is_empty() { "no other dispatcher".to_owned() } else { others.join(", ") };
        let agreed = if *is_agreed { "" } else { ", not agreed" };
        let entry = |address: &IpAddr| Self {
            address: IpNet::from(*address).to_string(),
            interface: interface.clone(),
            role: state.as_str().to_owned(),
            owner: None,
            since_s: status.for_time.as_secs(),
            preparing: *state == SteeringState::Leaving && *strays > 0,
            lease_ms: None,
            priority: 0,
            ready: *state == SteeringState::Serving,
            why: format!("primary of {own} of {all} slots, {strays} strays; {others}{agreed}"),
        };
        addresses.iter().map(entry).collect()
    }

    /// The address without its prefix.
    pub(crate) fn ip(&self) -> &str {
        self.address.split('/').next().unwrap_or_default()
    }
}
