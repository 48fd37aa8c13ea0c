//! Clients as their addresses tell them apart.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How many of the first bits of an address tell clients apart: those that share them are served by the same agent, as
/// where a client's connections come from several addresses of one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientPrefix {
    ipv4: u8,
    ipv6: u8,
}

/// A prefix is longer than addresses are, or no prefix at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a prefix has 1 to {max} bits, not {len}")]
pub struct InvalidPrefix {
    len: u8,
    max: u8,
}

impl Default for ClientPrefix {
    /// Each address is a client.
    fn default() -> Self {
        Self { ipv4: 32, ipv6: 128 }
    }
}

impl ClientPrefix {
    /// 1 to 32 bits of IPv4 addresses, 1 to 128 of IPv6 addresses.
    pub fn new(ipv4: u8, ipv6: u8) -> Result<Self, InvalidPrefix> {
        for (len, max) in [(ipv4, 32), (ipv6, 128)] {
            if !(1..=max).contains(&len) {
                return Err(InvalidPrefix { len, max });
            }
        }
        Ok(Self { ipv4, ipv6 })
    }

    /// The address that stands for the network of `client`. An IPv4-mapped IPv6 address is an IPv4 address.
    pub fn network(self, client: IpAddr) -> IpAddr {
        match client.to_canonical() {
            IpAddr::V4(address) => {
                Ipv4Addr::from_bits(address.to_bits() & u32::MAX << (32 - u32::from(self.ipv4))).into()
            }
            IpAddr::V6(address) => {
                Ipv6Addr::from_bits(address.to_bits() & u128::MAX << (128 - u32::from(self.ipv6))).into()
            }
        }
    }
}
