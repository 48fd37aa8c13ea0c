//! The TCP header (RFC 9293, section 3.1).

use std::net::SocketAddr;

use super::decoded::{Decoded, Other};
use super::ip::Datagram;
use crate::checksum;
use crate::{Flags, Segment, Timestamp};

/// Parses a segment. Truncated options do not matter. A fragment without the whole header is [`Other::Fragment`].
pub(super) fn read<'a>(time: Timestamp, datagram: &Datagram<'a>, verify_checksum: bool) -> Result<Decoded<'a>, Other> {
    let payload = datagram.payload;
    if datagram.is_later_fragment() {
        return Err(Other::Fragment);
    }
    let header = payload.first::<20>().map_err(|other| too_short(datagram, other))?;
    let header_len = usize::from(header[12] >> 4) * 4;
    if header_len < header.len() {
        return Err(Other::Malformed);
    }
    let data = payload.skip(header_len).map_err(|other| too_short(datagram, other))?;
    if verify_checksum && !is_good(datagram) {
        return Err(Other::Checksum);
    }
    let u16_at = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let u32_at = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let segment = Segment {
        time,
        source: SocketAddr::new(datagram.source, u16_at(0)),
        destination: SocketAddr::new(datagram.destination, u16_at(2)),
        sequence: u32_at(4),
        acknowledgment: u32_at(8),
        flags: Flags(header[13]),
        window: u16_at(14),
        len: data.len() as u32,
        data: data.captured(),
    };
    Ok(if datagram.fragment.is_some() { Decoded::FirstFragment(segment) } else { Decoded::Segment(segment) })
}

/// The rest of a fragment's header is in other fragments.
fn too_short(datagram: &Datagram<'_>, other: Other) -> Other {
    if other == Other::Malformed && datagram.fragment.is_some() { Other::Fragment } else { other }
}

/// Whether the checksum is valid, or cannot be verified: the capture lacks octets, or the address that it covers.
fn is_good(datagram: &Datagram<'_>) -> bool {
    let Some(octets) = datagram.payload.whole() else { return true };
    if datagram.fragment.is_some() || datagram.is_routed {
        return true;
    }
    let (pseudo_header, len) = checksum::pseudo_header(datagram.source, datagram.destination, octets.len());
    checksum::is_good(&[&pseudo_header[..len], octets])
}
