//! The tables, sets and rules of the gate.
//!
//! ```text
//! table inet watari {
//!     set service4 { type ipv4_addr }                  # the service addresses of this node
//!     set lease4 { type ipv4_addr; flags timeout }     # those whose lease has not ended
//!     (service6 and lease6: the same for IPv6)
//!     set fresh { type mark; flags timeout }           # see `Gate::open`
//!     chain output {
//!         type filter hook output priority 300
//!         ip saddr @service4 ip saddr != @lease4 drop
//!         ip6 saddr @service6 ip6 saddr != @lease6 drop
//!     }
//! }
//! table netdev watari {
//!     (the same sets, without fresh)
//!     chain egress0 {
//!         type filter hook egress device "eth0" priority 300
//!         arp saddr ip @service4 arp saddr ip != @lease4 drop
//!         icmpv6 type nd-neighbor-advert ip6 saddr @service6 ip6 saddr != @lease6 drop
//!     }
//! }
//! ```
//!
//! `inet` sees all IP packets of this machine, on every interface. `netdev` sees ARP, and the frames that a process
//! sends through a packet socket. Forwarded packets pass.

use std::net::IpAddr;

use super::batch::{Attributes, Batch, Family, Kind};

/// The name of both tables.
pub(super) const TABLE: &str = "watari";
const FRESH: &str = "fresh";
/// The only element of `fresh`.
const FRESH_KEY: [u8; 4] = [0, 0, 0, 1];

/// `NFT_SET_TIMEOUT`
const TIMEOUT: u32 = 0x10;
/// After the chains of other programs, which may change addresses.
const PRIORITY: u32 = 300;
/// `NF_INET_LOCAL_OUT`
const LOCAL_OUT: u32 = 3;
/// `NF_NETDEV_EGRESS`
const EGRESS: u32 = 1;
const FAMILIES: [Family; 2] = [Family::Inet, Family::Netdev];

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const NEXT_HEADER_ICMPV6: u8 = 58;
/// RFC 4861, section 4.4.
const NEIGHBOR_ADVERTISEMENT: u8 = 136;

/// The header at which an offset starts: `NFT_PAYLOAD_NETWORK_HEADER` and the next.
const NETWORK: u32 = 1;
const TRANSPORT: u32 = 2;

/// Makes the tables anew. All gates are closed then.
pub(super) fn make(batch: &mut Batch, addresses: &[IpAddr], interfaces: &[&str]) {
    remove(batch);
    for family in FAMILIES {
        batch.push(family, Kind::NewTable, |table| table.text(1, TABLE));
        for (number, (name, len)) in
            [("service4", 4), ("lease4", 4), ("service6", 16), ("lease6", 16)].iter().enumerate()
        {
            let timeout = if name.starts_with("lease") { TIMEOUT } else { 0 };
            set(batch, family, name, *len, timeout, number);
        }
    }
    set(batch, Family::Inet, FRESH, 4, TIMEOUT, 4);
    for address in addresses {
        for family in FAMILIES {
            element(batch, family, Kind::NewElement, name("service", *address), &octets(*address), None);
        }
    }
    chain(batch, Family::Inet, "output", LOCAL_OUT, None);
    rule(batch, Family::Inet, "output", ETHERTYPE_IPV4, &[], (12, 4), "4");
    rule(batch, Family::Inet, "output", ETHERTYPE_IPV6, &[], (8, 16), "6");
    for (number, interface) in interfaces.iter().enumerate() {
        let egress = format!("egress{number}");
        chain(batch, Family::Netdev, &egress, EGRESS, Some(interface));
        rule(batch, Family::Netdev, &egress, ETHERTYPE_ARP, &[], (14, 4), "4");
        let advertisement = [(NETWORK, 6, NEXT_HEADER_ICMPV6), (TRANSPORT, 0, NEIGHBOR_ADVERTISEMENT)];
        rule(batch, Family::Netdev, &egress, ETHERTYPE_IPV6, &advertisement, (8, 16), "6");
    }
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

/// Opens the gate of `address` for this time, or closes it.
pub(super) fn lease(batch: &mut Batch, address: IpAddr, ms: Option<u64>) {
    let key = octets(address);
    for family in FAMILIES {
        let set = name("lease", address);
        // An existing element would keep its time limit in older kernels, and one that has expired cannot be deleted.
        element(batch, family, Kind::NewElement, set, &key, Some(1));
        element(batch, family, Kind::DelElement, set, &key, None);
        if ms.is_some() {
            element(batch, family, Kind::NewElement, set, &key, ms);
        }
    }
}

fn name(set: &str, address: IpAddr) -> &'static str {
    match (set, address) {
        ("lease", IpAddr::V4(_)) => "lease4",
        ("lease", IpAddr::V6(_)) => "lease6",
        (_, IpAddr::V4(_)) => "service4",
        (_, IpAddr::V6(_)) => "service6",
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn set(batch: &mut Batch, family: Family, name: &str, len: u32, flags: u32, number: usize) {
    // Only for the output of nft(8): `mark`, `ipv4_addr`, `ipv6_addr`.
    let key_type = match (name, len) {
        (FRESH, _) => 19,
        (_, 4) => 7,
        _ => 8,
    };
    batch.push(family, Kind::NewSet, |set| {
        set.text(1, TABLE);
        set.text(2, name);
        set.number(3, flags);
        set.number(4, key_type);
        set.number(5, len);
        set.number(10, u32::try_from(number).expect("a few sets") + 1);
    });
}

fn element(batch: &mut Batch, family: Family, kind: Kind, set: &str, key: &[u8], timeout_ms: Option<u64>) {
    batch.push(family, kind, |list| {
        list.text(1, TABLE);
        list.text(2, set);
        list.nested(3, |elements| {
            elements.element(|element| {
                element.data(1, key);
                if let Some(ms) = timeout_ms {
                    element.bytes(4, &ms.to_be_bytes());
                }
            });
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

/// Drops packets of `protocol` with the bytes `fields` (base, offset, value) whose address at `address` (offset and
/// length in the network header) is a service address without a lease.
fn rule(
    batch: &mut Batch,
    family: Family,
    chain: &str,
    protocol: u16,
    fields: &[(u32, u32, u8)],
    address: (u32, u32),
    version: &str,
) {
    batch.push(family, Kind::NewRule, |rule| {
        rule.text(1, TABLE);
        rule.text(2, chain);
        rule.nested(4, |list| {
            // `NFT_META_PROTOCOL` into register 1
            expression(list, "meta", |meta| {
                meta.number(1, 1);
                meta.number(2, 1);
            });
            is_equal(list, &protocol.to_be_bytes());
            for (base, offset, value) in fields {
                load(list, *base, *offset, 1);
                is_equal(list, &[*value]);
            }
            load(list, NETWORK, address.0, address.1);
            lookup(list, &format!("service{version}"), false);
            lookup(list, &format!("lease{version}"), true);
            // `NF_DROP` into the register of the verdict
            expression(list, "immediate", |immediate| {
                immediate.number(1, 0);
                immediate.nested(2, |data| data.nested(2, |verdict| verdict.number(1, 0)));
            });
        });
    });
}

fn expression(list: &mut Attributes<'_>, name: &str, data: impl FnOnce(&mut Attributes<'_>)) {
    list.element(|expression| {
        expression.text(1, name);
        expression.nested(2, data);
    });
}

/// Goes on only if register 1 has this value.
fn is_equal(list: &mut Attributes<'_>, value: &[u8]) {
    expression(list, "cmp", |cmp| {
        cmp.number(1, 1);
        cmp.number(2, 0);
        cmp.data(3, value);
    });
}

/// Loads bytes of the packet into register 1.
fn load(list: &mut Attributes<'_>, base: u32, offset: u32, len: u32) {
    expression(list, "payload", |payload| {
        payload.number(1, 1);
        payload.number(2, base);
        payload.number(3, offset);
        payload.number(4, len);
    });
}

/// Goes on only if the set has the value of register 1, or only if not.
fn lookup(list: &mut Attributes<'_>, set: &str, inverted: bool) {
    expression(list, "lookup", |lookup| {
        lookup.text(1, set);
        lookup.number(2, 1);
        if inverted {
            lookup.number(5, 1);
        }
    });
}
