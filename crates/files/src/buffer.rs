//! Buffers for long reads, which are used again: a new one has to be filled with zeros.

use std::cell::RefCell;
use std::io;
use std::mem;

use bytes::Bytes;

use crate::body::CHUNK_LEN;

/// Shorter buffers are allocated with their length, and freed. Files that stay in memory are shorter.
pub(crate) const POOLED_LEN_MIN: usize = 24 * 1024;

/// The free buffers of a thread.
const FREE_MAX: usize = 4;

thread_local! {
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer for one read.
pub(crate) struct Buffer {
    /// Of [`CHUNK_LEN`] bytes, if it comes from the free buffers.
    bytes: Vec<u8>,
    /// The bytes of `bytes` that are in use.
    len: usize,
}

impl Buffer {
    /// A buffer of `len` bytes, at most [`CHUNK_LEN`]. Its content is arbitrary.
    pub(crate) fn new(len: usize) -> Self {
        debug_assert!(len <= CHUNK_LEN);
        let bytes = if len < POOLED_LEN_MIN {
            vec![0; len]
        } else {
            FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten().unwrap_or_else(|| vec![0; CHUNK_LEN])
        };
        Self { bytes, len }
    }

    /// Fills the buffer by `read`, which returns the number of bytes that it has written.
    pub(crate) fn fill(&mut self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<()> {
        self.len = read(&mut self.bytes[..self.len])?.min(self.len);
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes that were read. When the last clone is dropped, the buffer is free again.
    pub(crate) fn into_bytes(mut self) -> Bytes {
        if self.bytes.len() == CHUNK_LEN {
            return Bytes::from_owner(self);
        }
        let mut bytes = mem::take(&mut self.bytes);
        bytes.truncate(self.len);
        Bytes::from(bytes)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.bytes.len() != CHUNK_LEN {
            return;
        }
        let bytes = mem::take(&mut self.bytes);
        // At the end of a thread, its free buffers are gone.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < FREE_MAX {
                free.push(bytes);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn free() -> usize {
        FREE.with(|free| free.borrow().len())
    }

    fn filled(len: usize, with: u8) -> Bytes {
        let mut buffer = Buffer::new(len);
        buffer
            .fill(|bytes| {
                bytes.fill(with);
                Ok(bytes.len())
            })
            .unwrap();
        buffer.into_bytes()
    }

    #[test]
    fn a_long_buffer_is_free_when_its_last_clone_is_dropped() {
        let first = filled(CHUNK_LEN, 1);
        let (part, address) = (first.slice(5..10), first.as_ptr());
        drop(first);
        assert_eq!(free(), 0);
        assert_eq!(part, [1; 5][..]);
        drop(part);
        assert_eq!(free(), 1);
        let second = filled(POOLED_LEN_MIN, 2);
        assert_eq!((second.as_ptr(), second.len(), free()), (address, POOLED_LEN_MIN, 0));
        assert!(second.iter().all(|byte| *byte == 2));
    }

    #[test]
    fn few_buffers_are_kept_and_short_ones_are_not() {
        drop(filled(POOLED_LEN_MIN - 1, 1));
        assert_eq!(free(), 0);
        let many: Vec<_> = (0..10).map(|with| filled(CHUNK_LEN, with)).collect();
        drop(many);
        assert_eq!(free(), FREE_MAX);
    }

    #[test]
    fn a_short_read_leaves_less() {
        let mut buffer = Buffer::new(CHUNK_LEN);
        buffer.fill(|_| Err(io::ErrorKind::WouldBlock.into())).unwrap_err();
        buffer
            .fill(|bytes| {
                bytes[..3].copy_from_slice(b"abc");
                Ok(3)
            })
            .unwrap();
        assert_eq!(buffer.into_bytes(), b"abc"[..]);
    }
}
