//! Client networks: which addresses count as one client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;

/// The prefix lengths that identify a client. Addresses with the same prefix count as one client, so one agent serves
/// all connections of a client that come from several addresses of one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ClientPrefix {
    ipv4: u8,
    ipv6: u8,
}

/// A prefix length is 0 or longer than an address.
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
    /// `ipv4`: 1 to 32 bits. `ipv6`: 1 to 128 bits.
    pub fn new(ipv4: u8, ipv6: u8) -> Result<Self, InvalidPrefix> {
        for (len, max) in [(ipv4, 32), (ipv6, 128)] {
            if !(1..=max).contains(&len) {
                return Err(InvalidPrefix { len, max });
            }
        }
        Ok(Self { ipv4, ipv6 })
    }

    /// These lengths, except those that are passed. Errors as [`Self::new`].
    pub fn with(self, ipv4: Option<u8>, ipv6: Option<u8>) -> Result<Self, InvalidPrefix> {
        Self::new(ipv4.unwrap_or(self.ipv4), ipv6.unwrap_or(self.ipv6))
    }

    /// The address with all bits after the prefix cleared. An IPv4-mapped IPv6 address counts as an IPv4 address.
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
