//! Rendezvous hashing by client address or by another key.

use std::hash::Hasher;
use std::net::IpAddr;

use crate::Candidate;

/// The agent of `available` for `client`: [`by_key`] with the bytes of the address.
///
/// An IPv4 address and its IPv4-mapped IPv6 form count as one client. All dispatchers of a cluster use the same hash
/// and select the same agent.
pub fn by_client_address<N: Ord + AsRef<str>>(client: IpAddr, available: &[Candidate<N>]) -> Option<&Candidate<N>> {
    match client.to_canonical() {
        IpAddr::V4(address) => by_key(&address.octets(), available),
        IpAddr::V6(address) => by_key(&address.octets(), available),
    }
}

/// The candidate of `available` for `key`, by weighted rendezvous hashing:
///
/// * Each candidate gets a share of the keys in proportion to its weight.
/// * If a candidate leaves, only its own keys move, spread over the others.
/// * If it returns, exactly these keys move back. During slow start they move back one after the other.
pub fn by_key<'a, N: Ord + AsRef<str> + 'a>(
    key: &[u8],
    available: impl IntoIterator<Item = &'a Candidate<N>>,
) -> Option<&'a Candidate<N>> {
    let mut keyed = Fnv1a::default();
    keyed.write(key);
    let drawn = available.into_iter().map(|candidate| (candidate, draw(&keyed, candidate.name.as_ref())));
    let scored = drawn.map(|(candidate, drawn)| (candidate, drawn, score(candidate.share(), drawn)));
    let best = scored.max_by(|(a, drawn_a, score_a), (b, drawn_b, score_b)| {
        score_a
            .total_cmp(score_b)
            // Scores of equal shares have the order of the draws, except for draws that floating point cannot
            // distinguish.
            .then(drawn_a.cmp(drawn_b))
            .then_with(|| a.name.cmp(&b.name))
    });
    best.map(|(candidate, ..)| candidate)
}

/// An exponentially distributed number with the share as its mean. The probability that a candidate has the largest of
/// several is its share of the sum ("Weighted distributed hash tables", Schindelhauer and Schomaker, SPAA 2005: the
/// logarithmic method).
fn score(share: u64, drawn: u64) -> f64 {
    /// Bits that a float holds exactly.
    const BITS: u32 = f64::MANTISSA_DIGITS;
    #[allow(clippy::cast_precision_loss, reason = "53 bits are exact, and shares are small")]
    let (uniform, share) = (((drawn >> (u64::BITS - BITS)) as f64 + 0.5) / (1_u64 << BITS) as f64, share as f64);
    // A number just below 1 would round to 1, whose logarithm is 0.
    share / -uniform.min(1.0 - f64::EPSILON / 2.0).ln()
}

fn draw(keyed: &Fnv1a, name: &str) -> u64 {
    let mut hasher = keyed.clone();
    hasher.write(name.as_bytes());
    hasher.finish()
}

/// 64-bit FNV-1a, finished with the mixer of `SplitMix64`: FNV alone spreads its last bytes too little over the high
/// bits, which decide here.
#[derive(Clone)]
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
