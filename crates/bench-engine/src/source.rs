//! The source addresses of connections.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use crate::excerpt::excerpt;
use crate::round::{Round, RoundError};

/// Addresses of this machine that are used in turn. The socket of each connection is bound to the next address
/// (anma-enma, section 2). The family of the address decides the family of the connection, so the mix in the list is
/// the mix of the load.
///
/// Written as [`AddressRange`]s with commas between: `10.0.0.1,10.0.1.0/24,10.0.2.1-10.0.2.9,2001:db8::/120`.
/// * An address that is named twice is used twice as often.
/// * If a range has more than 65,536 addresses, the first 65,536 are used.
/// * The ranges take turns in proportion to their sizes, so that the mix is correct from the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    addresses: Vec<IpAddr>,
}

impl Sources {
    /// The address of connection `i`, counted from 0. Begins again after the last address.
    pub fn nth(&self, i: u64) -> IpAddr {
        self.addresses[(i % self.addresses.len() as u64) as usize]
    }

    /// All addresses in the order in which they are used. At least one.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// These addresses in this order. `None` if there are none.
    pub fn of(addresses: Vec<IpAddr>) -> Option<Self> {
        (!addresses.is_empty()).then_some(Self { addresses })
    }

    fn new(ranges: &[AddressRange]) -> Result<Self, SourceError> {
        let counts: Vec<_> = ranges.iter().map(|range| (range.beyond.min(RANGE_USED_MAX - 1) + 1) as u32).collect();
        let total: u64 = counts.iter().map(|count| u64::from(*count)).sum();
        if total > ADDRESSES_MAX {
            return Err(SourceError::TooMany { addresses: total });
        }
        let order = Round::new(&counts)?;
        let mut used = vec![0; ranges.len()];
        let mut next = |turn| {
            let at = order.nth(turn);
            used[at] += 1;
            ranges[at].nth(used[at] - 1)
        };
        Ok(Self { addresses: (0..total).map(&mut next).collect() })
    }
}

impl FromStr for Sources {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        let ranges: Vec<_> = text.split(',').map(|part| part.trim().parse()).collect::<Result<_, _>>()?;
        Self::new(&ranges)
    }
}

/// Consecutive addresses: `10.0.0.1`, `10.0.2.1-10.0.2.9`, or the hosts of a network, `10.0.1.0/24`.
///
/// The first and the last address of an IPv4 network, and the first address of an IPv6 network, are not host addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    first: IpAddr,
    /// Number of addresses after the first.
    beyond: u128,
}

impl AddressRange {
    /// The address `offset` after the first. Begins again after the last address.
    pub fn nth(&self, offset: u128) -> IpAddr {
        let offset = self.beyond.checked_add(1).map_or(offset, |count| offset % count);
        match self.first {
            IpAddr::V4(first) => IpAddr::V4((u32::from(first) + offset as u32).into()),
            IpAddr::V6(first) => IpAddr::V6((u128::from(first) + offset).into()),
        }
    }

    /// The offset of the last address.
    pub fn last_offset(&self) -> u128 {
        self.beyond
    }

    fn new(first: IpAddr, last: IpAddr) -> Result<Self, SourceError> {
        if let Some(address) = [first, last].into_iter().find(|end| end.is_unspecified() || end.is_multicast()) {
            return Err(SourceError::NoSource { address });
        }
        let beyond = match (first, last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => u32::from(last).checked_sub(u32::from(first)).map(u128::from),
            (IpAddr::V6(first), IpAddr::V6(last)) => u128::from(last).checked_sub(u128::from(first)),
            _ => None,
        };
        let beyond = beyond.ok_or(SourceError::Order { first, last })?;
        Ok(Self { first, beyond })
    }

    fn of_hosts(net: IpNet) -> Result<Self, SourceError> {
        let (first, last) = (net.network(), net.broadcast());
        match (first, last) {
            // A network of two addresses is a link between two hosts (RFC 3021, RFC 6164).
            _ if net.max_prefix_len() - net.prefix_len() < 2 => Self::new(first, last),
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                Self::new(IpAddr::V4((u32::from(first) + 1).into()), IpAddr::V4((u32::from(last) - 1).into()))
            }
            // The first address is the subnet-router anycast address (RFC 4291, section 2.6.1).
            (IpAddr::V6(first), last) => Self::new(IpAddr::V6((u128::from(first) + 1).into()), last),
            (first, last) => Err(SourceError::Order { first, last }),
        }
    }
}

impl FromStr for AddressRange {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        let bad = || SourceError::Unreadable { text: excerpt(text) };
        if text.contains('/') {
            return Self::of_hosts(text.parse().map_err(|_| bad())?);
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Self::new(first.trim().parse().map_err(|_| bad())?, last.trim().parse().map_err(|_| bad())?)
    }
}

/// Source addresses are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The text is neither an address, nor a network, nor a range.
    #[error("{text:?} is not an address (10.0.0.1), network (10.0.1.0/24) or range (10.0.2.1-10.0.2.9)")]
    Unreadable { text: String },
    /// The range goes from a larger address to a smaller one, or from one family to the other.
    #[error("{first}-{last} is not a range from the smaller address to the larger of one family")]
    Order { first: IpAddr, last: IpAddr },
    /// The address is unspecified or multicast.
    #[error("no connection can come from {address}")]
    NoSource { address: IpAddr },
    /// They would use too much memory.
    #[error("{addresses} source addresses are over the maximum of {ADDRESSES_MAX}")]
    TooMany {
        /// Number of addresses that would be used.
        addresses: u64,
    },
    /// No order of turns can be computed for the ranges.
    #[error(transparent)]
    Round(#[from] RoundError),
}

/// At most so many addresses of one range are used. Together they have ports for a billion connections.
const RANGE_USED_MAX: u128 = 1 << 16;
/// 8 MiB of addresses.
const ADDRESSES_MAX: u64 = 1 << 18;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Vec<String> {
        text.parse::<Sources>().unwrap().addresses().iter().map(ToString::to_string).collect()
    }

    fn error(text: &str) -> String {
        text.parse::<Sources>().unwrap_err().to_string()
    }

    #[test]
    fn addresses_networks_and_ranges_are_read() {
        assert_eq!(parsed("10.0.0.1"), ["10.0.0.1"]);
        assert_eq!(parsed("10.0.0.7/30"), ["10.0.0.5", "10.0.0.6"]);
        assert_eq!(parsed("10.0.0.6/31"), ["10.0.0.6", "10.0.0.7"]);
        assert_eq!(parsed("10.0.0.6/32"), ["10.0.0.6"]);
        assert_eq!(parsed("10.0.0.255-10.0.1.1"), ["10.0.0.255", "10.0.1.0", "10.0.1.1"]);
        assert_eq!(parsed("2001:db8::/126"), ["2001:db8::1", "2001:db8::2", "2001:db8::3"]);
        assert_eq!(parsed("2001:db8::6/127"), ["2001:db8::6", "2001:db8::7"]);
        assert_eq!(parsed("::1, ::1, 127.0.0.1"), ["::1", "::1", "127.0.0.1"]);
    }

    #[test]
    fn they_go_round_and_round() {
        let sources: Sources = "10.0.0.1-10.0.0.3".parse().unwrap();
        let used: Vec<_> = [0, 1, 2, 3, u64::MAX].iter().map(|i| sources.nth(*i).to_string()).collect();
        assert_eq!(used, ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.1", "10.0.0.1"]);
    }

    #[test]
    fn of_a_large_network_a_part_is_used() {
        let sources: Sources = "2001:db8::/64".parse().unwrap();
        assert_eq!(sources.addresses().len() as u128, RANGE_USED_MAX);
        assert_eq!(sources.nth(65_535).to_string(), "2001:db8::1:0");
        assert_eq!(parsed("10.0.0.0/8").last().unwrap(), "10.1.0.0");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, message) in [
            ("", r#""" is not an address (10.0.0.1), network (10.0.1.0/24) or range (10.0.2.1-10.0.2.9)"#),
            ("10.0.0.1,x", r#""x" is not an address (10.0.0.1), network (10.0.1.0/24) or range (10.0.2.1-10.0.2.9)"#),
            (
                "10.0.0.2-10.0.0.1",
                "10.0.0.2-10.0.0.1 is not a range from the smaller address to the larger of one family",
            ),
            ("10.0.0.2-::5", "10.0.0.2-::5 is not a range from the smaller address to the larger of one family"),
            ("0.0.0.0", "no connection can come from 0.0.0.0"),
            ("ff02::/120", "no connection can come from ff02::1"),
        ] {
            assert_eq!(error(text), message);
        }
        assert!(error("10.0.0.0/33").contains("10.0.0.0/33"));
        assert_eq!(error(&["10.0.0.0/8"; 5].join(",")), "327680 source addresses are over the maximum of 262144");
    }

    #[test]
    fn offsets_go_round_in_a_range() {
        let range: AddressRange = "10.0.0.0/30".parse().unwrap();
        assert_eq!((range.last_offset(), range.nth(3).to_string()), (1, "10.0.0.2".to_owned()));
        let all: AddressRange = "::1-feff::".parse().unwrap();
        assert_eq!(all.nth(all.last_offset()).to_string(), "feff::");
    }

    proptest! {
        #[test]
        fn families_are_mixed_in_proportion_from_the_beginning(v4 in 1_u32..200, v6 in 1_u32..200, used in 1_u64..1000) {
            let text = format!("10.0.0.1-10.0.0.{v4},2001:db8::1-2001:db8::{v6:x}");
            let sources: Sources = text.parse().unwrap();
            let had = (0..used).filter(|i| sources.nth(*i).is_ipv4()).count() as u64;
            let (share, total) = (used * u64::from(v4), u64::from(v4 + v6));
            prop_assert!(share / total <= had && had <= share.div_ceil(total));
        }

        #[test]
        fn no_text_panics(text in any::<String>(), likely in "[0-9a-f.:,/-]{0,30}") {
            let _ = text.parse::<Sources>();
            let _ = likely.parse::<Sources>();
        }
    }
}
