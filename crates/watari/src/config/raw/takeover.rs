//! `[dispatcher.takeover]`

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use watari_values::NodeName;
use watari_values::setting::{As, Span, Within};

use crate::config::spanned::{Spanned, Texts};
use crate::config::value::{FilePath, Priority, ServiceAddress};

/// The default length of a lease. New connections are answered within a second after the owner was killed.
pub(crate) const LEASE: Duration = Duration::from_millis(600);
/// The default interval of adverts: a quarter of the lease, so that three may be lost.
pub(crate) const ADVERT_INTERVAL: Duration = Duration::from_millis(150);

/// Service addresses that move between dispatchers: one of them has the address, the others stand by (as with
/// keepalived). The node needs the capabilities `CAP_NET_ADMIN` and `CAP_NET_RAW`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawTakeover {
    /// The addresses that this node can have. Other dispatchers list them, too.
    pub(crate) addresses: Spanned<Vec<RawServiceAddress>>,
    /// The nodes that decide by majority who has an address: one node, or an odd number from 3 to 15. Each is this node
    /// or a peer, a dispatcher or an agent. It has to be the same at all dispatchers with the addresses.
    #[schemars(with = "Vec<NodeName>")]
    pub(crate) voters: Texts,
    /// Whether this node takes an address over from an owner with a lower priority.
    #[serde(default = "preempt")]
    pub(crate) preempt: bool,
    /// The time after the last renewal until another node can have the address, from 200ms to 30s. It has to be the
    /// same at all dispatchers with the addresses.
    #[schemars(extend("default" = Span::try_from(LEASE).ok()))]
    pub(crate) lease: Option<Spanned<Span>>,
    /// The interval of adverts and of renewals of the lease. At most a third of the lease.
    #[schemars(extend("default" = Span::try_from(ADVERT_INTERVAL).ok()))]
    pub(crate) advert_interval: Option<Spanned<Span>>,
    /// Announcements after an address has become active, one every 500 ms: gratuitous ARP requests, or unsolicited
    /// neighbour advertisements.
    #[serde(default = "garp_repeat", with = "As::<Within<1, 100>>")]
    pub(crate) garp_repeat: usize,
    /// The interval of announcements after those. Without it, there are no more.
    pub(crate) garp_refresh: Option<Span>,
    /// A program that runs as `PROGRAM active ADDRESS INTERFACE` when an address has become active, and with `standby`
    /// when it was removed.
    pub(crate) notify: Option<Spanned<FilePath>>,
}

/// A service address.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawServiceAddress {
    /// The address. The length of the prefix is that of the link if this node has no other address of it, else 32 or
    /// 128.
    pub(crate) address: Spanned<ServiceAddress>,
    /// The interface that gets the address.
    pub(crate) interface: Spanned<String>,
    /// Of the nodes that can serve clients, the one with the highest priority gets an address without an owner first.
    #[serde(default)]
    pub(crate) priority: Priority,
}

fn preempt() -> bool {
    true
}

fn garp_repeat() -> usize {
    5
}
