//! The key of a connection.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The two ends of a connection, in the same order for both directions. An IPv4 address and its IPv4-mapped IPv6
/// address are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    addresses: [[u64; 2]; 2],
    ports: [u16; 2],
}

impl Key {
    /// The key, and whether the source is its first end.
    pub(crate) fn new(source: SocketAddr, destination: SocketAddr) -> (Self, bool) {
        let (from, to) = (bits(source.ip()), bits(destination.ip()));
        let (from_port, to_port) = (source.port(), destination.port());
        if (from, from_port) <= (to, to_port) {
            (Self { addresses: [from, to], ports: [from_port, to_port] }, true)
        } else {
            (Self { addresses: [to, from], ports: [to_port, from_port] }, false)
        }
    }

    pub(crate) fn end(&self, is_first: bool) -> SocketAddr {
        let end = usize::from(!is_first);
        let [high, low] = self.addresses[end];
        let address = Ipv6Addr::from(u128::from(high) << 64 | u128::from(low));
        SocketAddr::new(IpAddr::V6(address).to_canonical(), self.ports[end])
    }

    /// A hash that a peer cannot predict without `seed`.
    pub(crate) fn hash(&self, seed: u64) -> u64 {
        let [[a, b], [c, d]] = self.addresses;
        // IPv4 addresses begin with zeros. With a seed of 0 their factor must not be 0.
        let seed = seed ^ ODD[3];
        let ports = u64::from(self.ports[0]) << 16 | u64::from(self.ports[1]);
        let first = fold(a ^ seed, b ^ ODD[0]);
        let second = fold(c ^ seed.rotate_left(32), d ^ ODD[1]);
        fold(first ^ ports ^ ODD[2], second ^ seed)
    }
}

/// Digits of pi after the point.
const ODD: [u64; 4] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0, 0x082e_fa98_ec4e_6c89];

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

fn bits(address: IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_are_one_connection() {
        let ends: [SocketAddr; 3] =
            ["10.0.0.1:80", "10.0.0.2:80", "[2001:db8::1]:443"].map(|end| end.parse().unwrap_or_else(|_| panic!()));
        for source in ends {
            for destination in ends {
                let (there, from_first) = Key::new(source, destination);
                let (back, to_first) = Key::new(destination, source);
                assert_eq!(there, back);
                assert_eq!(there.hash(7), back.hash(7));
                assert_ne!(there.hash(7), there.hash(8));
                assert_ne!(there.hash(0), 0);
                assert_eq!(there.end(from_first), source);
                assert_eq!(back.end(to_first), destination);
            }
        }
    }
}
