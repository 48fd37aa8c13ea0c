//! Puts together TCP headers that are split over IP fragments (RFC 791, section 3.2; RFC 8200, section 4.5).
//!
//! ```text
//!   first fragment with the whole header  -> Decoder alone: FirstFragment; later ones are Other::Fragment
//!   other fragments of TCP                -> Reassembly: the first OCTETS_MAX octets of the packet's payload, until
//!                                            they have the header
//! ```
//!
//! Only the header is put together, not the data:
//!
//! * A fragment that begins at or behind [`OCTETS_MAX`] is not stored. The last one gives the length, if others of its
//!   packet are stored.
//! * Fragments with extension headers behind the fragment header are not read: RFC 7112, section 5, requires the whole
//!   header chain in the first fragment.
//! * Fragments of a tunnel's outer packet are not put together.
//!
//! **Overlaps.** In IPv4 the octets that came first count. In IPv6 the packet is discarded, with its later fragments
//! (RFC 5722, section 4), except that an exact duplicate is ignored (RFC 8200, section 4.5). Overlaps behind
//! [`OCTETS_MAX`] are not detected.
//!
//! **Limits.** It stores [`PACKETS_MAX`] packets, each for [`KEPT_MAX`] of packet time. A new one replaces the oldest.
//! The first fragments allocate memory, at most 70 kB.

use std::net::IpAddr;
use std::time::Duration;

use super::ip::{self, Datagram, Fragment};
use super::octets::Octets;
use super::{Decoded, Decoder, Other, tcp};
use crate::{Frame, Segment, Timestamp};

/// The fragments of packets whose TCP header is not yet complete.
#[derive(Debug, Clone, Default)]
pub struct Reassembly {
    /// A ring: `None` if the packet's header is complete.
    keys: Vec<Option<Key>>,
    /// The stored part of the packet of each of `keys`.
    partials: Vec<Partial>,
    /// Index of the oldest, once the ring is full.
    oldest: usize,
    /// The packet whose header was completed last. The returned segment borrows from it.
    complete: Partial,
}

/// The common fields of a packet's fragments. IPv6 does not compare the protocol, which is always TCP here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    identification: u32,
}

/// The beginning of a packet's payload.
#[derive(Debug, Clone)]
struct Partial {
    /// Capture time of the first fragment that arrived.
    time: Timestamp,
    octets: [u8; OCTETS_MAX],
    /// The units of 8 octets that fragments have covered, and those of them in `octets`: one bit for each.
    covered: u16,
    kept: u16,
    /// The length of the fragment that begins with a unit; 0 if none does.
    lens: [u16; UNITS],
    /// The largest end of a fragment.
    end: usize,
    /// The length of the payload: the end of the last fragment.
    total: Option<usize>,
    is_routed: bool,
    /// IPv6 fragments overlapped.
    is_discarded: bool,
}

impl Reassembly {
    /// Takes a `frame` for which [`Decoder::decode`] returned [`Other::Fragment`]. It returns the segment once its
    /// header is complete, with the time of this frame, else [`Other::Fragment`]. If the last fragment is missing, it
    /// is [`Decoded::FirstFragment`]. Its data end at a missing fragment, and with the header at 128 octets at the
    /// latest.
    pub fn complete(&mut self, decoder: &Decoder, frame: &Frame<'_>) -> Decoded<'_> {
        let added = decoder.read_datagram(frame, |datagram| match datagram.fragment {
            Some(fragment) if usize::from(fragment.offset) < OCTETS_MAX || fragment.is_last => {
                self.add(datagram, fragment, frame.time, decoder.verify_checksums)
            }
            _ => Err(Other::Fragment),
        });
        added.unwrap_or_else(Decoded::Other)
    }

    /// Number of slots in the ring.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.partials.len()
    }

    fn add(
        &mut self,
        datagram: &Datagram<'_>,
        fragment: Fragment,
        time: Timestamp,
        verify_checksum: bool,
    ) -> Result<Decoded<'_>, Other> {
        let end = usize::from(fragment.offset) + datagram.payload.len();
        // Such a fragment belongs to no packet (RFC 8200, section 4.5).
        if datagram.payload.len() == 0 || end > PAYLOAD_MAX || !(fragment.is_last || end.is_multiple_of(8)) {
            return Err(Other::Malformed);
        }
        let &Datagram { source, destination, .. } = datagram;
        let key = Key { source, destination, identification: fragment.identification };
        let at = self.place(key, fragment, time).ok_or(Other::Fragment)?;
        let partial = &mut self.partials[at];
        partial.add(datagram, fragment);
        match (FirstFragments { partial, source, destination }).read(time, verify_checksum) {
            Err(Other::Truncated) => Err(Other::Fragment),
            Err(other) => {
                self.keys[at] = None;
                Err(other)
            }
            Ok(_) => {
                self.keys[at] = None;
                self.complete.clone_from(&self.partials[at]);
                FirstFragments { partial: &self.complete, source, destination }.read(time, verify_checksum)
            }
        }
    }

    /// The slot of this fragment's packet, which may be new.
    fn place(&mut self, key: Key, fragment: Fragment, time: Timestamp) -> Option<usize> {
        let known = self.keys.iter().position(|kept| *kept == Some(key));
        if let Some(at) = known.filter(|at| time.since(self.partials[*at].time) <= KEPT_MAX) {
            return Some(at);
        }
        if usize::from(fragment.offset) >= OCTETS_MAX {
            return None;
        }
        let partial = Partial { time, ..Partial::default() };
        let at = known.unwrap_or(self.oldest);
        if at == self.keys.len() {
            self.keys.push(Some(key));
            self.partials.push(partial);
        } else {
            (self.keys[at], self.partials[at]) = (Some(key), partial);
        }
        if known.is_none() {
            self.oldest = (at + 1) % PACKETS_MAX;
        }
        Some(at)
    }
}

impl Partial {
    fn add(&mut self, datagram: &Datagram<'_>, fragment: Fragment) {
        let len = datagram.payload.len();
        let offset = usize::from(fragment.offset);
        let (first, end) = (offset / 8, offset + len);
        let units = units(offset, end);
        if datagram.source.is_ipv6() && self.covered & units != 0 {
            let is_duplicate = self.lens.get(first).is_some_and(|known| usize::from(*known) == len);
            self.is_discarded |= !is_duplicate;
            return;
        }
        if fragment.offset == 0 {
            self.is_routed = datagram.is_routed;
        }
        if fragment.is_last && self.total.is_none() {
            self.total = Some(end);
        }
        self.end = self.end.max(end);
        let captured = datagram.payload.captured();
        for unit in (first..UNITS).take_while(|unit| units >> unit & 1 != 0) {
            let from = (unit - first) * 8;
            let Some(octets) = captured.get(from..len.min(from + 8)) else { break };
            if self.kept >> unit & 1 == 0 {
                self.octets[unit * 8..][..octets.len()].copy_from_slice(octets);
                self.kept |= 1 << unit;
            }
        }
        self.covered |= units;
        if let Some(known) = self.lens.get_mut(first) {
            *known = len as u16;
        }
    }

    /// The stored octets up to the first gap.
    fn beginning(&self) -> &[u8] {
        let kept = self.kept.trailing_ones() as usize * 8;
        &self.octets[..kept.min(self.total.unwrap_or(PAYLOAD_MAX))]
    }

    /// Whether fragments of the first `len` octets are missing. Octets that only the capture lacks do not count.
    fn lacks(&self, len: usize) -> bool {
        let covered = self.covered.trailing_ones() as usize * 8;
        covered < len && self.total.is_none_or(|total| covered < total)
    }
}

impl Default for Partial {
    fn default() -> Self {
        Self {
            time: Timestamp(0),
            octets: [0; OCTETS_MAX],
            covered: 0,
            kept: 0,
            lens: [0; UNITS],
            end: 0,
            total: None,
            is_routed: false,
            is_discarded: false,
        }
    }
}

/// The beginning of a packet, with its addresses.
struct FirstFragments<'a> {
    partial: &'a Partial,
    source: IpAddr,
    destination: IpAddr,
}

impl<'a> FirstFragments<'a> {
    /// [`Other::Truncated`]: more fragments are needed.
    fn read(&self, time: Timestamp, verify_checksum: bool) -> Result<Decoded<'a>, Other> {
        let &Self { partial, source, destination } = self;
        let beginning = partial.beginning();
        let header_len = beginning.get(12).map_or(0, |octet| usize::from(octet >> 4) * 4);
        if partial.is_discarded || partial.lacks(header_len) {
            return Err(Other::Truncated);
        }
        let more = Fragment { identification: 0, offset: 0, is_last: false };
        let datagram = Datagram {
            source,
            destination,
            protocol: ip::TCP,
            payload: Octets::new(beginning, partial.total.unwrap_or(PAYLOAD_MAX)),
            fragment: partial.total.is_none().then_some(more),
            is_routed: partial.is_routed,
        };
        Ok(match tcp::read(time, &datagram, verify_checksum)? {
            Decoded::FirstFragment(segment) => {
                let to_come = (PAYLOAD_MAX - partial.end) as u32;
                Decoded::FirstFragment(Segment { len: segment.len - to_come, ..segment })
            }
            decoded => decoded,
        })
    }
}

/// One bit for each stored unit of 8 octets in this range.
fn units(from: usize, to: usize) -> u16 {
    (from / 8..to.div_ceil(8).min(UNITS)).fold(0, |units, unit| units | 1 << unit)
}

/// Stored octets of a packet's payload. The longest TCP header has 60.
const OCTETS_MAX: usize = 128;
const UNITS: usize = OCTETS_MAX / 8;
/// Stored packets.
const PACKETS_MAX: usize = 256;
/// How long a packet is stored. RFC 8200, section 4.5, allows 60 s. Linux waits 30 s in IPv4, where the 16-bit
/// identification repeats soon.
const KEPT_MAX: Duration = Duration::from_secs(30);
/// The largest payload of a packet.
const PAYLOAD_MAX: usize = 65_535;
