//! The settings of addresses that several dispatchers have, and what is checked before a node starts with them.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::LIFETIME_S;
use crate::link::Interface;
use crate::netlink::Netlink;
use crate::prepare::{self, Cause};

/// `[dispatcher.multipath]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MultipathSettings {
    pub addresses: BTreeSet<IpAddr>,
    /// Where packets of routers arrive, and where the other dispatchers are.
    pub interface: String,
    /// How long routers may take until they send nothing any more to a node that leaves.
    pub withdraw: Duration,
    /// The program that runs when this node begins to accept connections at an address, and when it leaves.
    pub notify: Option<PathBuf>,
}

/// The settings that an upgrade in place cannot change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixedMultipath {
    addresses: BTreeSet<IpAddr>,
    interface: String,
}

impl MultipathSettings {
    /// The settings that an upgrade in place cannot change.
    pub fn fixed(&self) -> FixedMultipath {
        FixedMultipath { addresses: self.addresses.clone(), interface: self.interface.clone() }
    }
}

/// Settings with which a node can start.
pub struct PreparedMultipath {
    pub(super) settings: MultipathSettings,
    pub(super) netlink: Netlink,
    pub(super) interface: Interface,
    pub(super) loopback: u32,
    /// Addresses that the operator has given to this machine. They stay.
    pub(super) permanent: BTreeSet<IpAddr>,
}

impl PreparedMultipath {
    /// Checks all that can fail, and changes nothing. Must be called in a tokio runtime.
    pub async fn check(settings: MultipathSettings) -> Result<Self, Cause> {
        let interface = Interface::find(&settings.interface)?;
        let loopback = Interface::loopback()?;
        prepare::check_capabilities(prepare::Needs::Bpf)?;
        prepare::check_notify(settings.notify.as_deref())?;
        Interface::try_sockets().map_err(Cause::Sockets)?;
        let netlink = Netlink::open().await.map_err(Cause::Netlink)?;
        let present = netlink.addresses().await.map_err(Cause::Netlink)?;
        let permanent = present.iter().filter(|present| present.is_permanent).map(|present| present.address);
        let permanent = permanent.filter(|address| settings.addresses.contains(address)).collect();
        Ok(Self { settings, netlink, interface, loopback, permanent })
    }
}

/// Makes the checks of a start, and describes what the node would do to this machine.
pub async fn dry_run_shared(settings: MultipathSettings) -> Result<String, Cause> {
    let PreparedMultipath { settings, interface, permanent, .. } = PreparedMultipath::check(settings).await?;
    let MultipathSettings { addresses, withdraw, notify, .. } = settings;
    let mut text = String::new();
    let mac = interface.mac.map(|octet| format!("{octet:02x}")).join(":");
    let _ = writeln!(text, "at the start:");
    for address in addresses.difference(&permanent) {
        let _ = writeln!(text, "  ip route add local {} dev lo table local", IpNet::from(*address));
    }
    let _ = writeln!(text, "  tc: attach a BPF program to the ingress of {} ({mac})", interface.name);
    let _ = writeln!(text, "when an agent is available, and the other dispatchers know this node:");
    for address in addresses {
        let net = IpNet::from(address);
        if permanent.contains(&address) {
            let _ = writeln!(text, "  {address} is on an interface already, and stays there");
        } else {
            let _ = writeln!(text, "  ip address add {net} dev lo valid_lft {LIFETIME_S} preferred_lft 0 nodad");
        }
        if let Some(program) = &notify {
            let _ = writeln!(text, "  run {} active {address} {}", program.display(), interface.name);
        }
    }
    let _ = writeln!(
        text,
        "at the end: remove the addresses; give the connections to other dispatchers, for {withdraw:?} at least;"
    );
    let _ = writeln!(text, "  then remove the routes and the program");
    Ok(text)
}
