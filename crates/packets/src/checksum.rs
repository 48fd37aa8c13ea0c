//! The Internet checksum (RFC 1071).

use std::net::IpAddr;

/// Whether the checksum in these parts is valid: their sum is all ones. Each part except the last has an even number of
/// octets.
pub(crate) fn is_good(parts: &[&[u8]]) -> bool {
    sum(parts) == 0xffff
}

/// The pseudo-header of TCP: RFC 9293, section 3.1, and RFC 8200, section 8.1. Fields that are zero do not change the
/// sum.
pub(crate) fn pseudo_header(source: IpAddr, destination: IpAddr, len: usize) -> ([u8; 38], usize) {
    let mut header = [0; 38];
    let mut end = 0;
    let mut put = |octets: &[u8]| {
        header[end..end + octets.len()].copy_from_slice(octets);
        end += octets.len();
    };
    for address in [source, destination] {
        match address {
            IpAddr::V4(address) => put(&address.octets()),
            IpAddr::V6(address) => put(&address.octets()),
        }
    }
    put(&(len as u32).to_be_bytes());
    put(&[0, TCP]);
    (header, end)
}

/// The one's complement sum.
pub(crate) fn sum(parts: &[&[u8]]) -> u16 {
    let of_pairs = |pairs: &[u8]| -> u64 {
        let (pairs, odd) = pairs.as_chunks();
        let whole: u64 = pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum();
        whole + odd.first().map_or(0, |octet| u64::from(*octet) << 8)
    };
    let mut sum = parts.iter().map(|part| of_pairs(part)).sum::<u64>();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

/// TCP's protocol number.
const TCP: u8 = 6;
