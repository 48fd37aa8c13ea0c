//! What a connection has to write next.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// The most slices of one write.
const SLICES_MAX: usize = 16;
/// No responses are framed while this many bytes wait.
const OUTPUT_LEN_MAX: usize = 64 * 1024;
/// Data up to this length are copied behind their frame's header, in bytes.
const COPIED_LEN_MAX: usize = 1024;

/// Frames that are not written: their headers, control frames and short data in one buffer, and long data between.
#[derive(Debug, Default)]
pub(super) struct Output {
    framing: Vec<u8>,
    /// Bytes of `framing` that are written.
    written: usize,
    /// Long data, each with the number of bytes of `framing` that precede it.
    data: VecDeque<(usize, Bytes)>,
    data_len: usize,
}

impl Output {
    /// Bytes that are not written.
    pub(super) fn len(&self) -> usize {
        self.framing.len() - self.written + self.data_len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether more may be framed.
    pub(super) fn has_room(&self) -> bool {
        self.len() < OUTPUT_LEN_MAX
    }

    /// The buffer to append frames to.
    pub(super) fn framing(&mut self) -> &mut Vec<u8> {
        &mut self.framing
    }

    /// Appends the data of a frame whose header was appended last.
    pub(super) fn push(&mut self, data: Bytes) {
        if data.len() <= COPIED_LEN_MAX {
            self.framing.extend_from_slice(&data);
        } else {
            self.data_len += data.len();
            self.data.push_back((self.framing.len(), data));
        }
    }

    /// The next bytes to write, and the number of slices.
    pub(super) fn slices(&self) -> ([IoSlice<'_>; SLICES_MAX], usize) {
        let (mut slices, mut count, mut start) = ([IoSlice::new(&[]); SLICES_MAX], 0, self.written);
        for (end, data) in self.data.iter().take(SLICES_MAX / 2) {
            slices[count] = IoSlice::new(&self.framing[start..*end]);
            slices[count + 1] = IoSlice::new(data);
            (count, start) = (count + 2, *end);
        }
        if count < SLICES_MAX && self.data.len() * 2 == count {
            slices[count] = IoSlice::new(&self.framing[start..]);
            count += 1;
        }
        (slices, count)
    }

    /// Records that the first `len` bytes are written.
    pub(super) fn advance(&mut self, mut len: usize) {
        while len > 0 {
            let end = self.data.front().map_or(self.framing.len(), |(end, _)| *end);
            let of_framing = len.min(end - self.written);
            self.written += of_framing;
            len -= of_framing;
            let Some((end, data)) = self.data.front_mut() else { break };
            let of_data = if self.written == *end { len.min(data.len()) } else { 0 };
            data.advance(of_data);
            self.data_len -= of_data;
            len -= of_data;
            if data.is_empty() {
                self.data.pop_front();
            }
        }
        if self.is_empty() {
            // An idle connection holds no buffer.
            *self = Self::default();
        } else if self.written >= self.framing.len() - self.written {
            // To move the rest to the front costs at most as much as was written since the last time.
            self.framing.drain(..self.written);
            self.data.iter_mut().for_each(|(end, _)| *end -= self.written);
            self.written = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An output that is never quite empty does not grow.
    #[test]
    fn a_long_stream_needs_one_buffer() {
        for len in [COPIED_LEN_MAX, COPIED_LEN_MAX + 1] {
            let mut output = Output::default();
            output.framing().extend_from_slice(&[0; 5_000]);
            for _ in 0..10_000 {
                output.framing().extend_from_slice(b"head");
                output.push(Bytes::from(vec![7; len]));
                output.advance(len + 4);
                assert_eq!(output.len(), 5_000);
                assert!(output.framing.capacity() < 25_000 && output.data.len() < 10);
            }
        }
    }

    #[test]
    fn any_partial_writes_leave_the_rest() {
        let long = |byte: u8| Bytes::from(vec![byte; COPIED_LEN_MAX + 3]);
        for step in [1, 2, 5, 1000, 1027, 100_000] {
            let (mut output, mut expected) = (Output::default(), Vec::new());
            for number in 0..40 {
                let data = if number % 3 == 0 { Bytes::from_static(b"short") } else { long(number) };
                output.framing().extend_from_slice(b"head");
                expected.extend_from_slice(b"head");
                expected.extend_from_slice(&data);
                output.push(data);
            }
            output.framing().extend_from_slice(b"end");
            expected.extend_from_slice(b"end");
            let mut written = Vec::new();
            while !output.is_empty() {
                assert_eq!(output.len(), expected.len() - written.len());
                let (slices, count) = output.slices();
                let next: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.iter().copied()).take(step).collect();
                assert!(!next.is_empty());
                output.advance(next.len());
                written.extend(next);
            }
            assert!(written == expected, "steps of {step} bytes");
            assert_eq!(output.framing.capacity(), 0);
        }
    }
}
