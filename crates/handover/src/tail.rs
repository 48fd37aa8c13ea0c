//! The last bytes that a client got.

use std::collections::VecDeque;

/// Stores the end of a stream, up to a limit.
#[derive(Debug)]
pub(crate) struct Tail {
    bytes: VecDeque<u8>,
    len_max: usize,
}

impl Tail {
    /// * `len_max`: the maximum number of stored bytes.
    /// * `stream_len`: the length of the stream in bytes. No more is ever allocated.
    pub(crate) fn new(len_max: usize, stream_len: u64) -> Self {
        let len_max = usize::try_from(stream_len).map_or(len_max, |len| len.min(len_max));
        Self { bytes: VecDeque::with_capacity(len_max), len_max }
    }

    /// The number of bytes that are stored at present.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The maximum number of stored bytes.
    pub(crate) fn len_max(&self) -> usize {
        self.len_max
    }

    /// Appends `piece` to the stream. Copies only the bytes that stay stored.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        let piece = &piece[piece.len().saturating_sub(self.len_max)..];
        let excess = (self.bytes.len() + piece.len()).saturating_sub(self.len_max);
        self.bytes.drain(..excess);
        self.bytes.extend(piece);
    }

    /// The index of the first byte of `piece` that differs from the stored bytes from index `start` on. Bytes after the
    /// stored ones are not compared.
    pub(crate) fn difference(&self, start: usize, piece: &[u8]) -> Option<usize> {
        self.bytes.iter().skip(start).zip(piece).position(|(kept, byte)| kept != byte)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_is_kept_where_nothing_is_asked_for() {
        let mut tail = Tail::new(0, u64::MAX);
        tail.push(b"piece");
        assert_eq!(tail.len(), 0);
        assert_eq!(Tail::new(4096, 3).bytes.capacity(), 3);
    }

    fn pieces() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..9)
    }

    proptest! {
        #[test]
        fn the_end_is_kept(pieces in pieces(), len_max in 0..20usize) {
            let stream = pieces.concat();
            let mut tail = Tail::new(len_max, stream.len() as u64);
            for piece in &pieces {
                tail.push(piece);
            }
            let end = &stream[stream.len().saturating_sub(len_max)..];
            prop_assert_eq!(tail.bytes.iter().copied().collect::<Vec<_>>(), end);
            for start in 0..end.len() {
                prop_assert_eq!(tail.difference(start, &end[start..]), None);
                let mut wrong = end.to_vec();
                wrong[start] = !wrong[start];
                prop_assert_eq!(tail.difference(0, &wrong), Some(start));
            }
        }
    }
}
