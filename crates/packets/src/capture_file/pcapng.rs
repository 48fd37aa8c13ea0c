//! pcapng (`draft-ietf-opsawg-pcapng`).

mod block;
mod clock;

use std::io::Read;

use super::error::{Part, ReadError};
use super::held::{FRAME_LEN_MAX, Held};
use super::input::Input;
use super::order::Order;
use crate::{LinkType, Timestamp};
use block::Block;
use clock::Clock;

/// A pcapng file, in one of its sections.
#[derive(Debug)]
pub(super) struct File {
    order: Order,
    interfaces: Vec<Interface>,
    /// Time of the last frame, for frames without one.
    time: Timestamp,
    /// The block of the last frame, whose rest is to be skipped.
    last: Option<Block>,
}

#[derive(Debug, Clone, Copy)]
struct Interface {
    link: LinkType,
    /// 0 if unlimited.
    snap_len: u32,
    clock: Clock,
}

/// Whether these are the first octets of a pcapng file.
pub(super) fn is_section_header(magic: [u8; 4]) -> bool {
    u32::from_be_bytes(magic) == SECTION_HEADER
}

impl Default for File {
    fn default() -> Self {
        Self { order: Order::Little, interfaces: Vec::new(), time: Timestamp(0), last: None }
    }
}

impl File {
    /// Reads blocks up to the next one with a frame (section 3.1), and skips those of unknown types.
    pub(super) fn next<R: Read>(&mut self, input: &mut Input<R>) -> Result<Option<Held>, ReadError> {
        loop {
            if let Some(block) = self.last.take() {
                block.close(self.order, input)?;
            }
            if input.is_at_end()? {
                return Ok(None);
            }
            let (kind, block) = self.open_block(input)?;
            let held = match kind {
                INTERFACE_DESCRIPTION => self.describe_interface(block, input).map(|()| None),
                ENHANCED_PACKET => self.enhanced_packet(block, input).map(Some),
                PACKET => self.packet(block, input).map(Some),
                SIMPLE_PACKET => self.simple_packet(block, input).map(Some),
                _ => {
                    self.last = Some(block);
                    Ok(None)
                }
            }?;
            if held.is_some() {
                return Ok(held);
            }
        }
    }

    /// Type and length. A section header has the byte order of its own magic number (section 4.1).
    fn open_block<R: Read>(&mut self, input: &mut Input<R>) -> Result<(u32, Block), ReadError> {
        let offset = input.offset();
        let [k1, k2, k3, k4, len @ ..] = input.take::<8>(Part::BlockHeader)?;
        let kind = self.order.u32([k1, k2, k3, k4]);
        if kind != SECTION_HEADER {
            return Ok((kind, Block::open(offset, self.order.u32(len))?));
        }
        let magic = input.peek(Part::Block)?;
        self.order = match u32::from_be_bytes(magic) {
            BYTE_ORDER => Order::Big,
            BYTE_ORDER_SWAPPED => Order::Little,
            _ => return Err(ReadError::ByteOrder { offset: input.offset(), magic }),
        };
        let mut block = Block::open(offset, self.order.u32(len))?;
        self.begin_section(&mut block, input)?;
        Ok((kind, block))
    }

    /// Section 4.1: magic, version, and length of the section, which is not needed.
    fn begin_section<R: Read>(&mut self, block: &mut Block, input: &mut Input<R>) -> Result<(), ReadError> {
        let offset = input.offset() + 4;
        let [_, _, _, _, a1, a2, i1, i2, ..] = block.take::<16, _>(input)?;
        let (major, minor) = (self.order.u16([a1, a2]), self.order.u16([i1, i2]));
        // Version 1.2 is the same as 1.0.
        if major != 1 || !matches!(minor, 0 | 2) {
            return Err(ReadError::Version { offset, major, minor, expected: "1.0" });
        }
        self.interfaces.clear();
        Ok(())
    }

    /// Section 4.2: link type, reserved, snap length, options.
    fn describe_interface<R: Read>(&mut self, mut block: Block, input: &mut Input<R>) -> Result<(), ReadError> {
        if self.interfaces.len() == INTERFACES_MAX {
            return Err(ReadError::Interfaces { offset: block.offset(), limit: INTERFACES_MAX });
        }
        let [l1, l2, _, _, snap_len @ ..] = block.take::<8, _>(input)?;
        let (link, snap_len) = (LinkType(self.order.u16([l1, l2])), self.order.u32(snap_len));
        let clock = self.clock(&mut block, input)?;
        self.interfaces.push(Interface { link, snap_len, clock });
        self.last = Some(block);
        Ok(())
    }

    /// The options of an interface that define its clock (section 4.2): `if_tsresol`, `if_tsoffset`.
    fn clock<R: Read>(&self, block: &mut Block, input: &mut Input<R>) -> Result<Clock, ReadError> {
        let mut clock = Clock::default();
        while block.left() >= 4 {
            let [c1, c2, l1, l2] = block.take(input)?;
            let (code, len) = (self.order.u16([c1, c2]), self.order.u16([l1, l2]));
            let offset = input.offset();
            match (code, len) {
                (END_OF_OPTIONS, _) => break,
                (RESOLUTION, 1) => {
                    let [resolution, ..] = block.take::<4, _>(input)?;
                    clock.resolve(resolution).ok_or(ReadError::Resolution { offset, resolution })?;
                }
                (OFFSET, 8) => clock.offset_s = self.order.i64(block.take(input)?),
                _ => block.skip(padded(len.into()), input)?,
            }
        }
        Ok(clock)
    }

    /// Section 4.3: interface, time (high, low), captured length, length on the wire.
    fn enhanced_packet<R: Read>(&mut self, mut block: Block, input: &mut Input<R>) -> Result<Held, ReadError> {
        let [interface, high, low, captured, len] = self.order.words(block.take::<20, _>(input)?);
        self.timed_frame(block, input, interface, [high, low], captured, len)
    }

    /// The obsolete packet block (appendix A): its interface is shorter, and a count of drops follows.
    fn packet<R: Read>(&mut self, mut block: Block, input: &mut Input<R>) -> Result<Held, ReadError> {
        let octets = block.take::<20, _>(input)?;
        let interface = self.order.u16([octets[0], octets[1]]);
        let [_, high, low, captured, len] = self.order.words(octets);
        self.timed_frame(block, input, interface.into(), [high, low], captured, len)
    }

    /// Section 4.4: a packet of the first interface, cut to its snap length, without a time.
    fn simple_packet<R: Read>(&mut self, mut block: Block, input: &mut Input<R>) -> Result<Held, ReadError> {
        let [len] = self.order.words(block.take::<4, _>(input)?);
        let Interface { link, snap_len, .. } = self.interface(0, &block)?;
        let captured = if snap_len == 0 { len } else { len.min(snap_len) };
        self.frame(block, input, Held { time: self.time, link, len, captured: captured as usize })
    }

    fn timed_frame<R: Read>(
        &mut self,
        block: Block,
        input: &mut Input<R>,
        interface: u32,
        [high, low]: [u32; 2],
        captured: u32,
        len: u32,
    ) -> Result<Held, ReadError> {
        let Interface { link, clock, .. } = self.interface(interface, &block)?;
        self.time = clock.time(u64::from(high) << 32 | u64::from(low));
        self.frame(block, input, Held { time: self.time, link, len, captured: captured as usize })
    }

    fn frame<R: Read>(&mut self, mut block: Block, input: &mut Input<R>, held: Held) -> Result<Held, ReadError> {
        if held.captured > FRAME_LEN_MAX {
            return Err(ReadError::FrameTooLong { offset: block.offset(), len: held.captured as u32 });
        }
        block.leave(held.captured)?;
        input.fill(held.captured, Part::Frame)?;
        self.last = Some(block);
        Ok(held)
    }

    fn interface(&self, interface: u32, block: &Block) -> Result<Interface, ReadError> {
        let count = self.interfaces.len();
        let described = self.interfaces.get(interface as usize).copied();
        described.ok_or(ReadError::Interface { offset: block.offset(), interface, count })
    }
}

/// The next multiple of 4 (section 3.5).
fn padded(len: u64) -> u64 {
    len.next_multiple_of(4)
}

/// The same in either byte order (section 4.1).
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const BYTE_ORDER_SWAPPED: u32 = BYTE_ORDER.swap_bytes();
const INTERFACE_DESCRIPTION: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

const END_OF_OPTIONS: u16 = 0;
const RESOLUTION: u16 = 9;
const OFFSET: u16 = 14;

/// As many as 16 bits can number, as in the first version of the format.
const INTERFACES_MAX: usize = 65_536;
