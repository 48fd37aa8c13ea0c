//! Slots, and what a dispatcher does with the packets of each.

use std::net::{IpAddr, SocketAddr};

use watari_values::NodeName;

use crate::program::{ENTRY_LEN, Mac};

/// The number of slots. With 64 dispatchers, the slots of two differ by a quarter.
pub const SLOTS: u16 = 1024;

/// The factors of `mix`. The program computes the same.
pub(crate) const FACTORS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93];

/// The slot of a client's address and port, below [`SLOTS`]. All dispatchers compute the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(u16);

impl Slot {
    pub fn of(client: SocketAddr) -> Self {
        let address = match client.ip().to_canonical() {
            IpAddr::V4(address) => u64::from(address.to_bits()),
            IpAddr::V6(address) => {
                let bits = address.to_bits();
                mix((bits >> 64) as u64) ^ bits as u64
            }
        };
        Self((mix(mix(address) ^ u64::from(client.port())) % u64::from(SLOTS)) as u16)
    }

    /// All slots, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..SLOTS).map(Self)
    }

    pub(crate) fn number(self) -> u16 {
        self.0
    }
}

/// Spreads all bits over all others.
pub(crate) fn mix(mut bits: u64) -> u64 {
    for factor in FACTORS {
        bits = (bits ^ bits >> 32).wrapping_mul(factor);
    }
    bits ^ bits >> 32
}

/// The primaries of all slots. `None`: no dispatcher accepts connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Primaries(pub(crate) Vec<Option<NodeName>>);

impl Primaries {
    /// The primary of a client's connections.
    pub fn of(&self, client: SocketAddr) -> Option<&NodeName> {
        self.0[usize::from(Slot::of(client).0)].as_ref()
    }

    /// The number of slots of which `name` is the primary.
    pub fn count(&self, name: &NodeName) -> usize {
        self.0.iter().flatten().filter(|primary| *primary == name).count()
    }
}

/// What a dispatcher does with packets of a slot whose connection has no socket there. `None`: there is no such
/// dispatcher, or it is this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entry {
    /// The primary of the slot.
    pub first: Option<Mac>,
    /// The dispatcher that comes after this one in the order of a second chance.
    pub next: Option<Mac>,
    /// The dispatcher that comes after `next`, for a packet from there.
    pub after_next: Option<Mac>,
    /// The dispatcher that would be the primary without this one.
    pub fallback: Option<Mac>,
}

impl Entry {
    pub(crate) fn encode(&self) -> [u8; ENTRY_LEN] {
        let mut bytes = [0; ENTRY_LEN];
        for (place, mac) in bytes.chunks_exact_mut(8).zip([self.first, self.next, self.after_next, self.fallback]) {
            place[..6].copy_from_slice(&mac.unwrap_or_default());
        }
        bytes
    }
}

/// The entries of all slots, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table(pub(crate) Vec<Entry>);

impl Table {
    /// The entry of a slot.
    pub fn entry(&self, slot: Slot) -> Entry {
        self.0[usize::from(slot.0)]
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    /// Ports of one client, and clients that follow each other, spread evenly.
    #[test]
    fn clients_spread_over_the_slots() {
        let v4 = |number: u32, port| SocketAddr::new(Ipv4Addr::from_bits(0x0a00_0000 + number).into(), port);
        let v6 = |number: u32, port| {
            SocketAddr::new(Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(number)).into(), port)
        };
        let all: [Vec<SocketAddr>; 4] = [
            (0..20_480).map(|number| v4(1, 2 * number + 10_000)).collect(),
            (0..20_480).map(|number| v4(number, 40_000)).collect(),
            (0..20_480).map(|number| v6(1, 2 * number + 10_000)).collect(),
            (0..20_480).map(|number| v6(number, 40_000)).collect(),
        ];
        for clients in all {
            let mut counts = [0_u32; SLOTS as usize];
            for client in clients {
                counts[usize::from(Slot::of(client).number())] += 1;
            }
            // 20 on average.
            let (least, most) = (counts.iter().min(), counts.iter().max());
            assert!(least >= Some(&3) && most <= Some(&45), "{least:?} to {most:?}");
        }
    }

    #[test]
    fn an_ipv4_address_in_an_ipv6_one_is_the_same() {
        let plain = SocketAddr::from(([192, 0, 2, 1], 443));
        let mapped = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().into(), 443);
        assert_eq!(Slot::of(plain), Slot::of(mapped));
    }
}
