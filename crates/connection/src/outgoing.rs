//! What a connection has to write next.

use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// A piece of a response: its head or the start of its frame, its data, and what follows the data. All of it goes to
/// the stream in one vectored write, if there is room.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// Heads of responses, sizes of chunks, trailers.
    before: Vec<u8>,
    /// Bytes of `before` that are written.
    written: usize,
    data: Bytes,
    after: &'static [u8],
}

impl Outgoing {
    /// Framed bytes, with nothing after them.
    pub(crate) fn of(before: Vec<u8>) -> Self {
        Self { before, ..Self::default() }
    }

    /// All framed bytes that are not written.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        self.before.drain(..self.written);
        self.before.extend_from_slice(&self.data);
        self.before.extend_from_slice(self.after);
        self.before
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.before.is_empty() && self.data.is_empty() && self.after.is_empty()
    }

    /// Whether a piece of data may follow: only one is held at a time.
    pub(crate) fn takes_data(&self) -> bool {
        self.data.is_empty() && self.after.is_empty()
    }

    /// For bytes that precede the next data. Only while it takes data.
    pub(crate) fn before(&mut self) -> &mut Vec<u8> {
        debug_assert!(self.takes_data());
        &mut self.before
    }

    pub(crate) fn set_data(&mut self, data: Bytes, after: &'static [u8]) {
        debug_assert!(self.takes_data());
        (self.data, self.after) = (data, after);
    }

    pub(crate) fn slices(&self) -> [IoSlice<'_>; 3] {
        [IoSlice::new(&self.before[self.written..]), IoSlice::new(&self.data), IoSlice::new(self.after)]
    }

    /// Records that the first `len` bytes are written.
    pub(crate) fn advance(&mut self, mut len: usize) {
        let of_before = len.min(self.before.len() - self.written);
        self.written += of_before;
        len -= of_before;
        if self.written == self.before.len() && self.written > 0 {
            // An idle connection holds no buffer.
            (self.before, self.written) = (Vec::new(), 0);
        }
        let of_data = len.min(self.data.len());
        self.data.advance(of_data);
        self.after = &self.after[len - of_data..];
        if self.data.is_empty() {
            // Frees the memory that the data shares.
            self.data = Bytes::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_partial_write_leaves_the_rest() {
        for first in 0..=11 {
            let mut outgoing = Outgoing::default();
            outgoing.before().extend_from_slice(b"head");
            outgoing.set_data(Bytes::from_static(b"data!"), b"\r\n");
            outgoing.advance(first);
            let rest: Vec<u8> = outgoing.slices().iter().flat_map(|slice| slice.to_vec()).collect();
            assert_eq!(rest, b"headdata!\r\n"[first..]);
            assert_eq!(outgoing.takes_data(), first == 11);
            outgoing = Outgoing::of(outgoing.into_bytes());
            outgoing.advance(rest.len());
            assert!(outgoing.is_empty());
        }
    }
}
