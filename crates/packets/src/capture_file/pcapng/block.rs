//! A block of pcapng: type, length, body, length (`draft-ietf-opsawg-pcapng`, section 3.1).

use std::io::Read;

use crate::capture_file::error::{BlockLen, Part, ReadError};
use crate::capture_file::input::Input;
use crate::capture_file::order::Order;

/// A block, behind its type and first length.
#[derive(Debug)]
pub(super) struct Block {
    /// Offset in the file.
    offset: u64,
    len: u32,
    /// Octets of the body that have not been read.
    left: u32,
}

impl Block {
    pub(super) fn open(offset: u64, len: u32) -> Result<Self, ReadError> {
        match len.checked_sub(AROUND_BODY) {
            Some(left) if len.is_multiple_of(4) => Ok(Self { offset, len, left }),
            _ => Err(ReadError::BlockLen { offset, len, expected: BlockLen::Block }),
        }
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn left(&self) -> u32 {
        self.left
    }

    pub(super) fn take<const N: usize, R: Read>(&mut self, input: &mut Input<R>) -> Result<[u8; N], ReadError> {
        self.leave(N)?;
        input.take(Part::Block)
    }

    pub(super) fn skip<R: Read>(&mut self, len: u64, input: &mut Input<R>) -> Result<(), ReadError> {
        self.leave(len as usize)?;
        input.skip(len, Part::Block)
    }

    /// Leaves the next `len` octets in the input, for the caller to read.
    pub(super) fn leave(&mut self, len: usize) -> Result<(), ReadError> {
        let left = u32::try_from(len).ok().and_then(|len| self.left.checked_sub(len));
        let needed = u64::from(self.len - self.left) + len as u64;
        let expected = BlockLen::AtLeast(needed);
        self.left = left.ok_or(ReadError::BlockLen { offset: self.offset, len: self.len, expected })?;
        Ok(())
    }

    /// Skips the rest of the block, and its second length.
    pub(super) fn close<R: Read>(self, order: Order, input: &mut Input<R>) -> Result<(), ReadError> {
        input.skip(self.left.into(), Part::Block)?;
        let offset = input.offset();
        let trailing = order.u32(input.take(Part::Block)?);
        if trailing == self.len { Ok(()) } else { Err(ReadError::TrailingLen { offset, trailing, len: self.len }) }
    }
}

/// Length of a type and two lengths.
const AROUND_BODY: u32 = 12;
