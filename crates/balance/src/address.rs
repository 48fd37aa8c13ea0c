//! The agent that a client's address selects.

use std::hash::Hasher;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use watari_wire::NodeName;

use crate::Candidate;

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

/// The agent among `available` that `client` selects, by weighted rendezvous hashing: each has the share of all clients
/// that it has of all weights; when an agent goes, only its own clients are spread over the others; when it returns,
/// exactly they come back; and while it starts slowly, they come back one after the other.
///
/// An IPv4 address and its IPv4-mapped IPv6 form are the same client. The hash is part of the configuration of a
/// cluster: all its dispatchers agree.
pub fn by_client_address(client: IpAddr, available: &[Candidate]) -> Option<&Candidate> {
    let client = client.to_canonical();
    let drawn = available.iter().map(|agent| (agent, draw(client, &agent.name)));
    let best = drawn.max_by(|(a, drawn_a), (b, drawn_b)| {
        score(a, *drawn_a)
            .total_cmp(&score(b, *drawn_b))
            // Scores of equal shares are in the order of what was drawn, but for what floating point cannot tell apart.
            .then(drawn_a.cmp(drawn_b))
            .then_with(|| a.name.cmp(&b.name))
    });
    best.map(|(agent, _)| agent)
}

/// An exponentially distributed number with a mean of the share: the largest of several is that of each as often as its
/// share of the sum says ("Weighted distributed hash tables", Schindelhauer and Schomaker, SPAA 2005: the logarithmic
/// method).
fn score(agent: &Candidate, drawn: u64) -> f64 {
    /// Bits that a float holds exactly.
    const BITS: u32 = f64::MANTISSA_DIGITS;
    #[allow(clippy::cast_precision_loss, reason = "53 bits are exact, and shares are small")]
    let (uniform, share) =
        (((drawn >> (u64::BITS - BITS)) as f64 + 0.5) / (1_u64 << BITS) as f64, agent.share() as f64);
    // Just below 1 it would round to 1, whose logarithm is 0.
    share / -uniform.min(1.0 - f64::EPSILON / 2.0).ln()
}

fn draw(client: IpAddr, agent: &NodeName) -> u64 {
    let mut hasher = Fnv1a::default();
    match client {
        IpAddr::V4(address) => hasher.write(&address.octets()),
        IpAddr::V6(address) => hasher.write(&address.octets()),
    }
    hasher.write(agent.as_str().as_bytes());
    hasher.finish()
}

/// FNV-1a, 64 bits, finished with the mixer of `SplitMix64`: FNV alone spreads its last bytes too little over the high
/// bits, and those decide here.
struct Fnv1a(u64);

impl Default for Fnv1a {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv1a {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
