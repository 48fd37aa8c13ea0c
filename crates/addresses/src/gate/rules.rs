//! The tables, sets and rules of the gate.
//!
//! ```text
//! table inet watari {
//!     set service4 { type ipv4_addr }                  # the service addresses of this node
//!     set lease4 { type ipv4_addr; flags timeout }     # those whose lease has not ended
//!     set shared4 { type ipv4_addr; flags timeout }    # those with flows in away4
//!     set expected4 { type ipv4_addr; flags timeout }  # those without a lease whose flows arrive here
//!     set away4 { type ipv4_addr . inet_service . ipv4_addr . inet_service; flags timeout }
//!     set arrived4 { type ipv4_addr . inet_service . ipv4_addr . inet_service; flags timeout }
//!     (service6 and so on: the same for IPv6)
//!     set fresh { type mark; flags timeout }           # see `Gate::open`
//!     chain output {
//!         type filter hook output priority 300
//!         ip saddr @shared4 ip saddr . tcp sport . ip daddr . tcp dport @away4 drop
//!         ip saddr @expected4 ip saddr . tcp sport . ip daddr . tcp dport @arrived4 accept
//!         ip saddr @service4 ip saddr != @lease4 drop
//!         (the same for IPv6)
//!     }
//! }
//! table netdev watari {
//!     (service4, lease4 and shared4 as above)
//!     set closing4 { type ipv4_addr; flags timeout }   # those that get no new connections
//!     map away4 { type ipv4_addr . inet_service . ipv4_addr . inet_service : ether_addr; flags timeout }
//!     chain egress0 {
//!         type filter hook egress device "eth0" priority 300
//!         arp saddr ip @service4 arp saddr ip != @lease4 drop
//!         icmpv6 type nd-neighbor-advert ip6 saddr @service6 ip6 saddr != @lease6 drop
//!     }
//!     chain ingress0 {
//!         type filter hook ingress device "eth0" priority 300
//!         ip daddr @shared4 ether daddr set ip daddr . tcp dport . ip saddr . tcp sport map @away4
//!             ether saddr set 02:00:00:00:00:01 fwd to iif
//!         ip daddr @closing4 tcp flags & (syn | ack) == syn drop
//!         (the same for IPv6)
//!     }
//! }
//! ```
//!
//! `inet` sees all IP packets of this machine, on every interface. `netdev` sees ARP, and the frames that a process
//! sends through a packet socket. Forwarded packets pass.
//!
//! Flows count only while their address is in `shared4` (away) or `expected4` (arrived). So the transaction that makes
//! this node the owner ends all exceptions of an address by two elements: see [`begin_ownership`].

use std::net::IpAddr;

use super::batch::{Batch, Family, Kind};
use super::expressions::{LINK, NETWORK, Register, SHORT, TRANSPORT, Verdict, rule};
use super::flows::{self, Version};
use crate::packets::Mac;

/// The name of both tables.
pub(super) const TABLE: &str = "watari";
const FRESH: &str = "fresh";
/// The only element of `fresh`.
const FRESH_KEY: [u8; 4] = [0, 0, 0, 1];

/// `NFT_SET_MAP`
const MAP: u32 = 0x8;
/// `NFT_SET_TIMEOUT`
const TIMEOUT: u32 = 0x10;
/// After the chains of other programs, which may change addresses.
const PRIORITY: u32 = 300;
/// `NF_INET_LOCAL_OUT`
const LOCAL_OUT: u32 = 3;
/// `NF_NETDEV_INGRESS`
const INGRESS: u32 = 0;
/// `NF_NETDEV_EGRESS`
const EGRESS: u32 = 1;
pub(super) const FAMILIES: [Family; 2] = [Family::Inet, Family::Netdev];

const ETHERTYPE_ARP: u16 = 0x0806;
const NEXT_HEADER_ICMPV6: u8 = 58;
/// RFC 4861, section 4.4.
const NEIGHBOR_ADVERTISEMENT: u8 = 136;
/// RFC 9293, section 3.1.
const TCP_FLAGS_OFFSET: u32 = 13;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// A type of nft(8). The kernel only needs the length.
#[derive(Clone, Copy)]
struct DataType {
    number: u32,
    len: u32,
}

const MARK: DataType = DataType { number: 19, len: 4 };
const ETHER_ADDR: DataType = DataType { number: 9, len: 6 };

/// Service addresses, by what holds for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressSet {
    Service,
    Lease,
    Shared,
    Expected,
    Closing,
}

impl AddressSet {
    const ALL: [Self; 5] = [Self::Service, Self::Lease, Self::Shared, Self::Expected, Self::Closing];

    fn families(self) -> &'static [Family] {
        match self {
            Self::Service | Self::Lease | Self::Shared => &FAMILIES,
            Self::Expected => &[Family::Inet],
            Self::Closing => &[Family::Netdev],
        }
    }

    fn name(self, version: Version) -> &'static str {
        match (self, version) {
            (Self::Service, Version::V4) => "service4",
            (Self::Service, Version::V6) => "service6",
            (Self::Lease, Version::V4) => "lease4",
            (Self::Lease, Version::V6) => "lease6",
            (Self::Shared, Version::V4) => "shared4",
            (Self::Shared, Version::V6) => "shared6",
            (Self::Expected, Version::V4) => "expected4",
            (Self::Expected, Version::V6) => "expected6",
            (Self::Closing, Version::V4) => "closing4",
            (Self::Closing, Version::V6) => "closing6",
        }
    }
}

/// Makes the tables anew. All gates are closed then. The interfaces are given with their link-layer addresses.
pub(super) fn make(batch: &mut Batch, addresses: &[IpAddr], interfaces: &[(String, Mac)]) {
    remove(batch);
    for family in FAMILIES {
        batch.push(family, Kind::NewTable, |table| table.text(1, TABLE));
    }
    make_sets(batch);
    for address in addresses {
        for family in FAMILIES {
            let set = AddressSet::Service.name(Version::of(*address));
            element(batch, family, Kind::NewElement, set, &flows::octets(*address), None);
        }
    }
    chain(batch, Family::Inet, "output", LOCAL_OUT, None);
    for version in Version::ALL {
        output_rules(batch, version);
    }
    for (number, (interface, mac)) in interfaces.iter().enumerate() {
        let (egress, ingress) = (format!("egress{number}"), format!("ingress{number}"));
        chain(batch, Family::Netdev, &egress, EGRESS, Some(interface));
        egress_rules(batch, &egress);
        chain(batch, Family::Netdev, &ingress, INGRESS, Some(interface));
        for version in Version::ALL {
            ingress_rules(batch, &ingress, version, *mac);
        }
    }
}

fn make_sets(batch: &mut Batch) {
    // Within a batch, numbers name the sets.
    let mut numbers = 1..;
    let mut make = |family, name: &str, key: DataType, value: Option<DataType>, flags: u32| {
        batch.push(family, Kind::NewSet, |set| {
            set.text(1, TABLE);
            set.text(2, name);
            set.number(3, flags | if value.is_some() { MAP } else { 0 });
            set.number(4, key.number);
            set.number(5, key.len);
            if let Some(value) = value {
                set.number(6, value.number);
                set.number(7, value.len);
            }
            set.number(10, numbers.next().expect("a few sets"));
        });
    };
    for version in Version::ALL {
        let address = DataType { number: version.address_type(), len: version.address_len() };
        let flow = DataType { number: version.flow_type(), len: version.flow_len() };
        for set in AddressSet::ALL {
            let flags = if set == AddressSet::Service { 0 } else { TIMEOUT };
            for family in set.families() {
                make(*family, set.name(version), address, None, flags);
            }
        }
        make(Family::Inet, version.away(), flow, None, TIMEOUT);
        make(Family::Netdev, version.away(), flow, Some(ETHER_ADDR), TIMEOUT);
        make(Family::Inet, version.arrived(), flow, None, TIMEOUT);
    }
    make(Family::Inet, FRESH, MARK, None, TIMEOUT);
}

/// Drops packets of flows that are away, and packets from addresses without a lease, except those of arrived flows.
fn output_rules(batch: &mut Batch, version: Version) {
    let (source, _) = version.address_offsets();
    let exceptions = [
        (AddressSet::Shared, version.away(), Verdict::Drop),
        (AddressSet::Expected, version.arrived(), Verdict::Accept),
    ];
    for (addresses, flows, verdict) in exceptions {
        rule(batch, Family::Inet, TABLE, "output", |packet| {
            packet.is_protocol(version.ethertype());
            packet.load(SHORT, NETWORK, source, version.address_len());
            packet.is_in(addresses.name(version), SHORT);
            packet.is_tcp();
            version.load_flow_of_answer(packet);
            packet.is_in(flows, Register::word(0));
            packet.verdict(verdict);
        });
    }
    rule(batch, Family::Inet, TABLE, "output", |packet| {
        packet.is_protocol(version.ethertype());
        packet.load(SHORT, NETWORK, source, version.address_len());
        packet.is_in(AddressSet::Service.name(version), SHORT);
        packet.is_not_in(AddressSet::Lease.name(version), SHORT);
        packet.verdict(Verdict::Drop);
    });
}

/// Drops ARP packets and neighbour advertisements from addresses without a lease.
fn egress_rules(batch: &mut Batch, chain: &str) {
    const ARP_SENDER_OFFSET: u32 = 14;
    const NEXT_HEADER_OFFSET: u32 = 6;
    rule(batch, Family::Netdev, TABLE, chain, |packet| {
        packet.is_protocol(ETHERTYPE_ARP);
        packet.load(SHORT, NETWORK, ARP_SENDER_OFFSET, Version::V4.address_len());
        packet.is_in(AddressSet::Service.name(Version::V4), SHORT);
        packet.is_not_in(AddressSet::Lease.name(Version::V4), SHORT);
        packet.verdict(Verdict::Drop);
    });
    rule(batch, Family::Netdev, TABLE, chain, |packet| {
        packet.is_protocol(Version::V6.ethertype());
        packet.is_byte(NETWORK, NEXT_HEADER_OFFSET, NEXT_HEADER_ICMPV6);
        packet.is_byte(TRANSPORT, 0, NEIGHBOR_ADVERTISEMENT);
        packet.load(SHORT, NETWORK, Version::V6.address_offsets().0, Version::V6.address_len());
        packet.is_in(AddressSet::Service.name(Version::V6), SHORT);
        packet.is_not_in(AddressSet::Lease.name(Version::V6), SHORT);
        packet.verdict(Verdict::Drop);
    });
}

/// Forwards packets of flows that are away, and drops the first packets of new connections to closing addresses.
fn ingress_rules(batch: &mut Batch, chain: &str, version: Version, own: Mac) {
    let (_, destination) = version.address_offsets();
    rule(batch, Family::Netdev, TABLE, chain, |packet| {
        let key = Register::word(0);
        let [there, here, interface] = [0, 2, 4].map(|words| Register::word(version.flow_len() / 4 + words));
        packet.is_protocol(version.ethertype());
        packet.load(SHORT, NETWORK, destination, version.address_len());
        packet.is_in(AddressSet::Shared.name(version), SHORT);
        packet.is_tcp();
        version.load_flow_of_request(packet);
        packet.map(version.away(), key, there);
        packet.store(there, LINK, 0, ETHER_ADDR.len);
        packet.set(here, &own);
        packet.store(here, LINK, ETHER_ADDR.len, ETHER_ADDR.len);
        packet.send_back(interface);
    });
    rule(batch, Family::Netdev, TABLE, chain, |packet| {
        packet.is_protocol(version.ethertype());
        packet.load(SHORT, NETWORK, destination, version.address_len());
        packet.is_in(AddressSet::Closing.name(version), SHORT);
        packet.is_tcp();
        packet.is_masked(TRANSPORT, TCP_FLAGS_OFFSET, SYN | ACK, SYN);
        packet.verdict(Verdict::Drop);
    });
}

/// Removes the tables, whether they exist or not.
pub(super) fn remove(batch: &mut Batch) {
    for family in FAMILIES {
        batch.push(family, Kind::NewTable, |table| table.text(1, TABLE));
        batch.push(family, Kind::DelTable, |table| table.text(1, TABLE));
    }
}

/// Notes the time in the kernel. [`spend_freshness`] fails later than `ms` after it.
pub(super) fn note_freshness(batch: &mut Batch, ms: u64) {
    for (kind, timeout) in [(Kind::NewElement, Some(ms)), (Kind::DelElement, None), (Kind::NewElement, Some(ms))] {
        element(batch, Family::Inet, kind, FRESH, &FRESH_KEY, timeout);
    }
}

/// Fails, and with it the whole batch, if too much time has passed since [`note_freshness`].
pub(super) fn spend_freshness(batch: &mut Batch) {
    element(batch, Family::Inet, Kind::DelElement, FRESH, &FRESH_KEY, None);
}

/// Has the address in the set for this time, or not. It fails only if the set does not exist.
pub(super) fn put(batch: &mut Batch, set: AddressSet, address: IpAddr, ms: Option<u64>) {
    let (name, key) = (set.name(Version::of(address)), flows::octets(address));
    for family in set.families() {
        // An existing element would keep its time limit in older kernels, and one that has expired cannot be deleted.
        element(batch, *family, Kind::NewElement, name, &key, Some(1));
        element(batch, *family, Kind::DelElement, name, &key, None);
        if ms.is_some() {
            element(batch, *family, Kind::NewElement, name, &key, ms);
        }
    }
}

/// Ends what an earlier change of the owner has left: this node answers for all flows of the address again, or now.
pub(super) fn begin_ownership(batch: &mut Batch, address: IpAddr) {
    for set in [AddressSet::Shared, AddressSet::Expected, AddressSet::Closing] {
        put(batch, set, address, None);
    }
}

fn element(batch: &mut Batch, family: Family, kind: Kind, set: &str, key: &[u8], timeout_ms: Option<u64>) {
    elements(batch, family, kind, set, [Element { key, value: None, timeout_ms }]);
}

/// An element of a set, or of a map.
pub(super) struct Element<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: Option<&'a [u8]>,
    pub(super) timeout_ms: Option<u64>,
}

/// One message with several elements.
pub(super) fn elements<'a>(
    batch: &mut Batch,
    family: Family,
    kind: Kind,
    set: &str,
    all: impl IntoIterator<Item = Element<'a>>,
) {
    batch.push(family, kind, |list| {
        list.text(1, TABLE);
        list.text(2, set);
        list.nested(3, |elements| {
            for Element { key, value, timeout_ms } in all {
                elements.element(|element| {
                    element.data(1, key);
                    if let Some(value) = value {
                        element.data(2, value);
                    }
                    if let Some(ms) = timeout_ms {
                        element.bytes(4, &ms.to_be_bytes());
                    }
                });
            }
        });
    });
}

fn chain(batch: &mut Batch, family: Family, name: &str, hook: u32, interface: Option<&str>) {
    batch.push(family, Kind::NewChain, |chain| {
        chain.text(1, TABLE);
        chain.text(3, name);
        chain.nested(4, |attributes| {
            attributes.number(1, hook);
            attributes.number(2, PRIORITY);
            if let Some(interface) = interface {
                attributes.text(3, interface);
            }
        });
        chain.text(7, "filter");
    });
}
