//! IEEE 802.11: data frames that are not encrypted.

use super::decoded::Other;
use super::ether::snap;
use super::octets::Octets;
use super::packet::Packet;

/// An AVS header with its cookie, or a Prism header with a message code; then its length. AVS has network byte order,
/// Prism that of the capturing host. The length is a small number, so the order with the smaller value is right.
pub(super) fn prism(frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    let [c0, c1, c2, _, len @ ..] = frame.first::<8>()?;
    let is_avs = [*c0, *c1, *c2 & 0xf0] == AVS_COOKIE;
    let (big, little) = (u32::from_be_bytes(*len), u32::from_le_bytes(*len));
    let len = if is_avs { big } else { big.min(little) };
    if len < 8 { Err(Other::Malformed) } else { self::frame(frame.skip(len as usize)?, false) }
}

/// A radiotap header (<https://www.radiotap.org/>) with its length. Only one field is needed: whether there is padding
/// between the 802.11 header and the data.
pub(super) fn radiotap(frame: Octets<'_>) -> Result<Packet<'_>, Other> {
    let [version, _, l0, l1, present @ ..] = frame.first::<8>()?;
    let len = usize::from(u16::from_le_bytes([*l0, *l1]));
    if *version != 0 || len < 8 {
        return Err(Other::Malformed);
    }
    let first = u32::from_le_bytes(*present);
    let is_padded = first & HAS_FLAGS != 0 && flags(frame, first)? & DATA_PAD != 0;
    self::frame(frame.skip(len)?, is_padded)
}

/// The field `Flags`. Only a timestamp may precede it: 8 octets, at a multiple of 8, behind all presence words.
fn flags(frame: Octets<'_>, first: u32) -> Result<u8, Other> {
    let (mut at, mut present) = (8, first);
    while present & HAS_MORE != 0 {
        if at > PRESENT_MAX {
            return Err(Other::TooDeep);
        }
        present = u32::from_le_bytes(*frame.skip(at)?.first()?);
        at += 4;
    }
    if first & HAS_TIME != 0 {
        at = at.next_multiple_of(8) + 8;
    }
    let [flags] = frame.skip(at)?.first()?;
    Ok(*flags)
}

/// IEEE 802.11, clause 9.2 and 9.3.2: frame control, duration, three or four addresses, sequence control, and quality
/// of service. Several packets in one frame (A-MSDU) are not read.
pub(super) fn frame(frame: Octets<'_>, is_padded: bool) -> Result<Packet<'_>, Other> {
    let [kind, flags] = frame.first()?;
    let is_data = kind & (VERSION | TYPE) == TYPE_DATA && kind & SUBTYPE_NULL == 0;
    if !is_data || flags & PROTECTED != 0 {
        return Err(Other::NotIp);
    }
    let [.., sequence, _] = frame.first::<24>()?;
    if sequence & FRAGMENT_NUMBER != 0 {
        return Err(Other::Fragment);
    }
    let mut len = 24 + if flags & BOTH_DS == BOTH_DS { 6 } else { 0 };
    if kind & SUBTYPE_QOS != 0 {
        let [control, _] = frame.skip(len)?.first()?;
        if control & A_MSDU != 0 {
            return Err(Other::NotIp);
        }
        len += 2 + if flags & ORDER == 0 { 0 } else { 4 };
    }
    snap(frame.skip(if is_padded { len.next_multiple_of(4) } else { len })?)
}

/// Bits of the first word of radiotap, and of its flags.
const HAS_TIME: u32 = 1;
const HAS_FLAGS: u32 = 2;
const HAS_MORE: u32 = 1 << 31;
const DATA_PAD: u8 = 0x20;
/// Presence words are read up to this offset of the header.
const PRESENT_MAX: usize = 64;

/// The version follows, in 12 bits.
const AVS_COOKIE: [u8; 3] = [0x80, 0x21, 0x10];

/// Frame control.
const VERSION: u8 = 0x03;
const TYPE: u8 = 0x0c;
const TYPE_DATA: u8 = 0x08;
/// The frame has no data.
const SUBTYPE_NULL: u8 = 0x40;
const SUBTYPE_QOS: u8 = 0x80;
/// From one access point to another: the frame has a fourth address.
const BOTH_DS: u8 = 0x03;
const PROTECTED: u8 = 0x40;
const ORDER: u8 = 0x80;
/// Sequence control.
const FRAGMENT_NUMBER: u8 = 0x0f;
/// Quality of service control.
const A_MSDU: u8 = 0x80;
