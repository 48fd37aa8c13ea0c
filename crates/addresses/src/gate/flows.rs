//! Single TCP connections to a service address, which belong to another dispatcher than the address does for a while.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::batch::{Batch, Family, Kind};
use super::expressions::{Expressions, NETWORK, Register, TRANSPORT};
use super::rules::{Element, elements};
use crate::packets::Mac;

/// Flows in one order. A message to the kernel has a limited size.
pub const FLOWS_MAX: usize = 256;

/// A TCP connection of a client to a service address, by its addresses and ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow {
    pub client: SocketAddr,
    /// The service address, and the port of its listener.
    pub server: SocketAddr,
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.client, self.server)
    }
}

impl Flow {
    /// The same flow, without IPv4 addresses in IPv6.
    #[must_use]
    pub fn plain(self) -> Self {
        let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        Self { client: plain(self.client), server: plain(self.server) }
    }

    /// The key of the flow in its sets: each part begins at a multiple of four bytes.
    fn key(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(40);
        for end in [self.server, self.client] {
            key.extend_from_slice(&octets(end.ip()));
            key.extend_from_slice(&end.port().to_be_bytes());
            key.extend_from_slice(&[0; 2]);
        }
        key
    }
}

/// IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V4,
    V6,
}

impl Version {
    pub(super) const ALL: [Self; 2] = [Self::V4, Self::V6];

    pub(super) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    pub(super) fn ethertype(self) -> u16 {
        match self {
            Self::V4 => 0x0800,
            Self::V6 => 0x86dd,
        }
    }

    /// The number of nft(8)'s type of an address.
    pub(super) fn address_type(self) -> u32 {
        match self {
            Self::V4 => 7,
            Self::V6 => 8,
        }
    }

    pub(super) fn address_len(self) -> u32 {
        match self {
            Self::V4 => 4,
            Self::V6 => 16,
        }
    }

    /// The number of nft(8)'s type of a flow: six bits for each of address, port, address and port.
    pub(super) fn flow_type(self) -> u32 {
        const INET_SERVICE: u32 = 13;
        let end = self.address_type() << 6 | INET_SERVICE;
        end << 12 | end
    }

    /// Two addresses, and two ports with padding.
    pub(super) fn flow_len(self) -> u32 {
        2 * self.address_len() + 8
    }

    /// Of the source and the destination, in the network header.
    pub(super) fn address_offsets(self) -> (u32, u32) {
        match self {
            Self::V4 => (12, 16),
            Self::V6 => (8, 24),
        }
    }

    /// The set, and the map, of flows that another dispatcher has.
    pub(super) fn away(self) -> &'static str {
        match self {
            Self::V4 => "away4",
            Self::V6 => "away6",
        }
    }

    /// The set of flows that this node has before it owns their address.
    pub(super) fn arrived(self) -> &'static str {
        match self {
            Self::V4 => "arrived4",
            Self::V6 => "arrived6",
        }
    }

    /// Loads the flow of a packet to the client.
    pub(super) fn load_flow_of_answer(self, packet: &mut Expressions<'_, '_>) {
        let (source, destination) = self.address_offsets();
        self.load_flow(packet, [(source, SOURCE_PORT), (destination, DESTINATION_PORT)]);
    }

    /// Loads the flow of a packet from the client.
    pub(super) fn load_flow_of_request(self, packet: &mut Expressions<'_, '_>) {
        let (source, destination) = self.address_offsets();
        self.load_flow(packet, [(destination, DESTINATION_PORT), (source, SOURCE_PORT)]);
    }

    /// Loads the address and the port of the server, then those of the client, from their offsets.
    fn load_flow(self, packet: &mut Expressions<'_, '_>, ends: [(u32, u32); 2]) {
        let address_words = self.address_len() / 4;
        for (number, (address, port)) in (0..).zip(ends) {
            let words = number * (address_words + 1);
            packet.load(Register::word(words), NETWORK, address, self.address_len());
            packet.load(Register::word(words + address_words), TRANSPORT, port, 2);
        }
    }
}

/// Offsets in the TCP header.
const SOURCE_PORT: u32 = 0;
const DESTINATION_PORT: u32 = 2;

/// The dispatchers that have flows which are away, as this process has ordered it. The kernel may have others, of an
/// earlier process.
#[derive(Default)]
pub(super) struct AwayMacs {
    macs: HashMap<Flow, (Mac, Instant)>,
    /// The size at which entries that have expired are dropped.
    full_len: usize,
}

impl AwayMacs {
    /// The flows are at the dispatcher `mac` until then.
    pub(super) fn note(&mut self, flows: &BTreeSet<Flow>, mac: Mac, now: Instant, until: Instant) {
        self.macs.extend(flows.iter().map(|flow| (*flow, (mac, until))));
        if self.macs.len() > self.full_len {
            self.macs.retain(|_, (_, until)| *until > now);
            self.full_len = 2 * self.macs.len() + FLOWS_MAX;
        }
    }

    pub(super) fn forget(&mut self, flows: &BTreeSet<Flow>) {
        for flow in flows {
            self.macs.remove(flow);
        }
    }
}

/// The elements of flows, by version.
pub(super) struct Elements([Vec<FlowElement>; 2]);

struct FlowElement {
    key: Vec<u8>,
    /// The value of the element that the map may have.
    mac: Mac,
}

impl Elements {
    /// Of flows whose addresses are both IPv4, or both IPv6.
    pub(super) fn of(flows: &BTreeSet<Flow>, away: &AwayMacs) -> Self {
        let mut all = Self([Vec::new(), Vec::new()]);
        for flow in flows {
            let mac = away.macs.get(flow).map(|(mac, _)| *mac).unwrap_or_default();
            all.0[usize::from(flow.server.is_ipv6())].push(FlowElement { key: flow.key(), mac });
        }
        all
    }

    /// Another dispatcher has the flows for this time. If an element has another value than is known, the batch fails by
    /// `EEXIST`, or by `EBUSY` in older kernels.
    pub(super) fn put_away(&self, batch: &mut Batch, mac: Mac, ms: u64) {
        self.replace(batch, Family::Inet, Version::away, None, Some(ms));
        self.replace(batch, Family::Netdev, Version::away, Some(&mac), Some(ms));
    }

    /// No other dispatcher has the flows. The batch may fail as for [`put_away`](Self::put_away).
    pub(super) fn end_away(&self, batch: &mut Batch) {
        self.replace(batch, Family::Inet, Version::away, None, None);
        self.replace(batch, Family::Netdev, Version::away, Some(&Mac::default()), None);
    }

    /// This node has the flows for this time, or not.
    pub(super) fn put_arrived(&self, batch: &mut Batch, ms: Option<u64>) {
        self.replace(batch, Family::Inet, Version::arrived, None, ms);
    }

    /// Deletes elements of the map of flows that are away, one by one. A batch fails if it does not have the element.
    pub(super) fn each_away(&self) -> impl Iterator<Item = impl Fn(&mut Batch)> {
        Version::ALL.into_iter().zip(&self.0).flat_map(|(version, all)| {
            all.iter().map(move |FlowElement { key, .. }| {
                move |batch: &mut Batch| {
                    let element = Element { key, value: None, timeout_ms: None };
                    elements(batch, Family::Netdev, Kind::DelElement, version.away(), [element]);
                }
            })
        })
    }

    /// Has the elements for this time, or not, whether they exist or not. `mac`: of a map, the value.
    fn replace(
        &self,
        batch: &mut Batch,
        family: Family,
        set: impl Fn(Version) -> &'static str,
        mac: Option<&Mac>,
        ms: Option<u64>,
    ) {
        for (version, all) in Version::ALL.into_iter().zip(&self.0).filter(|(_, all)| !all.is_empty()) {
            let set = set(version);
            // As in `rules::put`. What is deleted again has the value of the existing element.
            let any_ms = Some(ms.unwrap_or(1000));
            let existing = all.iter().map(|FlowElement { key, mac: existing }| {
                let value = mac.map(|_| existing.as_slice());
                Element { key, value, timeout_ms: any_ms }
            });
            elements(batch, family, Kind::NewElement, set, existing);
            let deleted = all.iter().map(|FlowElement { key, .. }| Element { key, value: None, timeout_ms: None });
            elements(batch, family, Kind::DelElement, set, deleted);
            if ms.is_some() {
                let value = mac.map(<[u8; 6]>::as_slice);
                let wanted = all.iter().map(|FlowElement { key, .. }| Element { key, value, timeout_ms: ms });
                elements(batch, family, Kind::NewElement, set, wanted);
            }
        }
    }
}

pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
