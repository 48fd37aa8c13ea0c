//! How packets of a connection go to another dispatcher, by the kind of its address.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use watari_addresses::{Addresses, Flow, FlowsError, Multipath};
use watari_values::NodeName;

/// How long packets of a connection pass the gate before this node owns the address: longer than a switch takes.
const LET_IN: Duration = Duration::from_mins(2);

/// The addresses whose connections may change their dispatcher.
#[derive(Clone)]
pub(crate) enum Places {
    /// One dispatcher has an address at a time.
    Takeover(Addresses),
    /// Several dispatchers have an address at the same time.
    Multipath(Multipath),
}

impl Places {
    /// The addresses whose connections may leave this node.
    pub(super) fn addresses(&self) -> HashSet<IpAddr> {
        match self {
            Self::Takeover(addresses) => {
                addresses.statuses().iter().map(|shown| shown.service.address.addr().to_canonical()).collect()
            }
            Self::Multipath(multipath) => multipath.addresses().iter().copied().collect(),
        }
    }

    /// At the next dispatcher: `from` announces connections of the address. Returns the link-layer address to which it
    /// forwards their packets, or why it must not.
    pub(super) async fn expect(&self, from: &NodeName, address: IpAddr) -> Result<[u8; 6], String> {
        match self {
            Self::Takeover(addresses) => {
                if !is_owner(addresses, from, address) {
                    return Err("it does not own the address".to_owned());
                }
                addresses.expect(address).await.map_err(|error| error.to_string())
            }
            Self::Multipath(multipath) => {
                let mac = multipath.mac_for(from).filter(|_| multipath.has(address));
                mac.ok_or_else(|| {
                    "it does not have the address together with this node, which has to accept connections".to_owned()
                })
            }
        }
    }

    /// At the next dispatcher, in order with the other messages of `from`: it is about to send the flows away.
    pub(super) fn expect_flows(&self, flows: &[Flow], from: &NodeName) -> Result<(), FlowsError> {
        match self {
            Self::Takeover(_) => Ok(()),
            Self::Multipath(multipath) => multipath.flows().expect(flows, from),
        }
    }

    /// After that: stores packets of the flows. If they come earlier, the clients repeat them.
    pub(super) async fn hold(&self, flows: &[Flow]) -> Result<(), FlowsError> {
        match self {
            Self::Takeover(addresses) => addresses.flows().hold(flows).await,
            Self::Multipath(multipath) => multipath.flows().hold(flows).await,
        }
    }

    /// Passes packets of the flows on to the next dispatcher.
    pub(super) async fn send_away(&self, flows: &[Flow], mac: [u8; 6], ttl: Duration) -> Result<(), FlowsError> {
        match self {
            Self::Takeover(addresses) => addresses.flows().send_away(flows, mac, ttl).await,
            Self::Multipath(multipath) => multipath.flows().send_away(flows, mac, ttl),
        }
    }

    /// The next dispatcher has the flow. Its packets are still forwarded, as long as clients and routers send them here.
    pub(super) fn given(&self, flow: Flow) {
        let Self::Multipath(multipath) = self else { return };
        // Without a socket here, the table says where they go. An entry would name this one dispatcher for longer.
        if let Err(error) = multipath.flows().keep(&[flow]) {
            tracing::warn!(%flow, %error, "cannot end the order for a flow");
        }
    }

    /// This machine has the flows again.
    pub(super) async fn bring_back(&self, flows: &[Flow]) -> Result<(), FlowsError> {
        match self {
            Self::Takeover(addresses) => addresses.flows().bring_back(flows).await,
            Self::Multipath(multipath) => multipath.flows().keep(flows),
        }
    }

    /// At the next dispatcher, which has the connections now.
    pub(super) async fn let_in(&self, flows: &[Flow]) -> Result<(), FlowsError> {
        match self {
            Self::Takeover(addresses) => addresses.flows().let_in(flows, LET_IN).await,
            Self::Multipath(multipath) => multipath.flows().keep(flows),
        }
    }

    /// Delivers the packets that were held. Returns their number.
    pub(super) async fn deliver(&self, flows: &[Flow]) -> Result<usize, FlowsError> {
        match self {
            Self::Takeover(addresses) => addresses.flows().deliver(flows).await,
            Self::Multipath(multipath) => multipath.flows().deliver(flows).await,
        }
    }

    /// Turns new clients away for `ttl`, and they repeat their first packet. With several dispatchers, another one
    /// accepts them already.
    pub(super) async fn close_to_new(&self, address: IpAddr, ttl: Duration) -> Result<(), FlowsError> {
        match self {
            Self::Takeover(addresses) => addresses.flows().close_to_new(address, ttl).await,
            Self::Multipath(_) => Ok(()),
        }
    }

    /// Ends that.
    pub(super) async fn open_to_new(&self, address: IpAddr) -> Result<(), FlowsError> {
        match self {
            Self::Takeover(addresses) => addresses.flows().open_to_new(address).await,
            Self::Multipath(_) => Ok(()),
        }
    }
}

/// Whether this node has heard that the dispatcher owns the address.
fn is_owner(addresses: &Addresses, from: &NodeName, address: IpAddr) -> bool {
    let statuses = addresses.statuses();
    let shown = statuses.iter().find(|shown| shown.service.address.addr() == address);
    shown.is_some_and(|shown| shown.status.owner.as_ref() == Some(from))
}
