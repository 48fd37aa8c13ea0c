//! pcap (`draft-ietf-opsawg-pcap`).

use std::io::Read;

use super::error::{Part, ReadError};
use super::held::{FRAME_LEN_MAX, Held};
use super::input::Input;
use super::order::Order;
use crate::{LinkType, Timestamp};

/// The format by its magic number (section 4).
#[derive(Debug, Clone, Copy)]
pub(super) struct Variant {
    order: Order,
    /// Units of the fraction of a second, in nanoseconds.
    unit_ns: u32,
    /// Octets behind the usual header of a frame.
    more_header_len: u64,
}

/// A pcap file, behind its header.
#[derive(Debug)]
pub(super) struct File {
    variant: Variant,
    link: LinkType,
    minor: u16,
}

pub(super) const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
/// Alexey Kuznetzov's variant, in Linux distributions of about 2000: interface, protocol and packet type follow in each
/// header.
const MAGIC_MODIFIED: u32 = 0xa1b2_cd34;

pub(super) const VERSION_MAJOR: u16 = 2;
pub(super) const VERSION_MINOR: u16 = 4;
/// Before this version the two lengths of a frame were in reverse order, and in this one in either order.
const VERSION_MINOR_MIXED: u16 = 3;

impl Variant {
    pub(super) fn of(magic: [u8; 4]) -> Option<Self> {
        [Order::Big, Order::Little].into_iter().find_map(|order| {
            let (unit_ns, more_header_len) = match order.u32(magic) {
                MAGIC_MICROSECONDS => (1000, 0),
                MAGIC_NANOSECONDS => (1, 0),
                MAGIC_MODIFIED => (1000, 8),
                _ => return None,
            };
            Some(Self { order, unit_ns, more_header_len })
        })
    }
}

impl File {
    /// Section 4: magic, version, two reserved fields, snap length, link type with the length of a frame check
    /// sequence.
    pub(super) fn open<R: Read>(variant: Variant, input: &mut Input<R>) -> Result<Self, ReadError> {
        let offset = input.offset();
        let header: [u8; 24] = input.take(Part::FileHeader)?;
        let order = variant.order;
        let [major, minor] = [[header[4], header[5]], [header[6], header[7]]].map(|octets| order.u16(octets));
        if major != VERSION_MAJOR || minor > VERSION_MINOR {
            return Err(ReadError::Version { offset: offset + 4, major, minor, expected: "2.0 to 2.4" });
        }
        let [_, _, _, _, _, network] = order.words(header);
        let link = LinkType(network as u16).known();
        Ok(Self { variant, link: link.map_err(|source| ReadError::LinkType { offset: offset + 20, source })?, minor })
    }

    /// Section 5: seconds, their fraction, captured length, length on the wire.
    pub(super) fn next<R: Read>(&mut self, input: &mut Input<R>) -> Result<Option<Held>, ReadError> {
        if input.is_at_end()? {
            return Ok(None);
        }
        let offset = input.offset();
        let header: [u8; 16] = input.take(Part::RecordHeader)?;
        let [seconds, fraction, captured, len] = self.variant.order.words(header);
        let is_swapped = self.minor < VERSION_MINOR_MIXED || self.minor == VERSION_MINOR_MIXED && captured > len;
        let (captured, len) = if is_swapped { (len, captured) } else { (captured, len) };
        if captured as usize > FRAME_LEN_MAX {
            return Err(ReadError::FrameTooLong { offset, len: captured });
        }
        input.skip(self.variant.more_header_len, Part::RecordHeader)?;
        let captured = captured as usize;
        input.fill(captured, Part::Frame)?;
        let time = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * u64::from(self.variant.unit_ns);
        Ok(Some(Held { time: Timestamp(time), link: self.link, len, captured }))
    }
}
