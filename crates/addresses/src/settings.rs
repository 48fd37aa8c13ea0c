//! The settings of candidates.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use watari_takeover::Terms;
use watari_values::NodeName;

/// `[dispatcher.takeover]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub addresses: Vec<ServiceAddress>,
    /// The voters, the lease and the interval of adverts. They are the same at all candidates.
    pub terms: Terms,
    pub preempt: bool,
    /// Announcements after an address has become active.
    pub garp_repeat: u32,
    /// The interval of announcements after those. `None`: there are none.
    pub garp_refresh: Option<Duration>,
    /// The program that runs when an address becomes active or standby.
    pub notify: Option<PathBuf>,
}

/// A service address for which this node is a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAddress {
    /// The address, and the length of the prefix that the interface gets with it.
    pub address: IpNet,
    pub interface: String,
    /// 1 to 254.
    pub priority: u8,
}

/// The settings that an upgrade in place cannot change. Others could, but only a process that has left its addresses
/// may have other voters or another lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixedSettings {
    /// Each with the length of its prefix and its interface.
    addresses: Vec<(IpAddr, u8, String)>,
    voters: BTreeSet<NodeName>,
    lease: Duration,
}

impl Settings {
    /// The settings that an upgrade in place cannot change.
    pub fn fixed(&self) -> FixedSettings {
        let fixed = |service: &ServiceAddress| {
            (service.address.addr(), service.address.prefix_len(), service.interface.clone())
        };
        let mut addresses: Vec<_> = self.addresses.iter().map(fixed).collect();
        addresses.sort_unstable();
        FixedSettings { addresses, voters: self.terms.voters.clone(), lease: self.terms.lease }
    }

    /// The names of the interfaces, each once.
    pub(crate) fn interfaces(&self) -> BTreeSet<&str> {
        self.addresses.iter().map(|address| address.interface.as_str()).collect()
    }

    pub(crate) fn voters(&self) -> impl Iterator<Item = &NodeName> {
        self.terms.voters.iter()
    }

    /// How long the kernel keeps an address that is not renewed, in seconds. Longer than a lease, because the gate ends
    /// that, and the kernel has only whole seconds. It removes the address of a node that was killed.
    pub(crate) fn lifetime_s(&self) -> u32 {
        u32::try_from(self.terms.lease.as_secs()).unwrap_or(u32::MAX).saturating_add(3)
    }
}
