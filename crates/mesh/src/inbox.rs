//! Bytes of a link that were read and not decoded yet.

use watari_wire::frame::{self, Frame, FrameError};
use zeroize::{Zeroize, Zeroizing};

/// The usual length of the buffer: that of a TLS record.
const LEN_USUAL: usize = 16 << 10;

/// Splits received bytes into frames. Frames may contain secrets, so decoded or moved bytes are wiped at once.
///
/// The buffer grows up to the longest frame, and shrinks again when it is empty.
pub(crate) struct Inbox {
    buffer: Zeroizing<Vec<u8>>,
    start: usize,
    end: usize,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self { buffer: Zeroizing::new(vec![0; LEN_USUAL]), start: 0, end: 0 }
    }

    /// Returns the next frame. `None`: it is incomplete.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some((frame, len)) = frame::decode(&self.buffer[self.start..self.end])? else { return Ok(None) };
        self.buffer[self.start..self.start + len].zeroize();
        self.start += len;
        Ok(Some(frame))
    }

    /// Room for at least one byte, to read into. The caller has taken all frames.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        let held = self.end - self.start;
        if held == 0 && self.buffer.len() > LEN_USUAL {
            *self = Self::new();
        } else if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.buffer[held.max(self.start)..self.end].zeroize();
            (self.start, self.end) = (0, held);
        }
        if self.end == self.buffer.len() {
            let mut larger = Zeroizing::new(vec![0; self.buffer.len() * 2]);
            larger[..held].copy_from_slice(&self.buffer);
            self.buffer = larger;
        }
        &mut self.buffer[self.end..]
    }

    /// Records that the first `len` bytes of the room were filled.
    pub(crate) fn filled(&mut self, len: usize) {
        self.end += len;
        assert!(self.end <= self.buffer.len(), "a reader cannot fill more than the room it was given");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use watari_values::{ConnectionId, Epoch};
    use watari_wire::frame::FRAME_LEN_MAX;
    use watari_wire::{AgentToAgent, Message, Rest};

    use super::*;

    fn rest(len: usize) -> Message {
        let connection = ConnectionId { boot: 1, number: len as u64 };
        Message::from(AgentToAgent::Rest(Rest { connection, epoch: Epoch(1), from_offset: 0, bytes: vec![0xaa; len] }))
    }

    /// Reads `stream` in pieces of these lengths, in turn.
    fn read(inbox: &mut Inbox, mut stream: &[u8], pieces: &[usize]) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut pieces = pieces.iter().cycle();
        while !stream.is_empty() {
            let room = inbox.room();
            let len = room.len().min(stream.len()).min(*pieces.next().unwrap());
            room[..len].copy_from_slice(&stream[..len]);
            inbox.filled(len);
            stream = &stream[len..];
            while let Some(frame) = inbox.next_frame().unwrap() {
                frames.push(frame);
            }
        }
        frames
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn frames_come_whole_and_in_order(
            lens in prop::collection::vec(prop_oneof![4 => 0..300usize, 1 => 0..70_000usize], 1..12),
            pieces in prop::collection::vec(1..40_000usize, 1..5),
        ) {
            let mut stream = Vec::new();
            for len in &lens {
                frame::encode(&rest(*len), &mut stream).unwrap();
            }
            let mut inbox = Inbox::new();
            let frames = read(&mut inbox, &stream, &pieces);
            let expected: Vec<Frame> = lens.into_iter().map(|len| Frame::Message(rest(len))).collect();
            prop_assert_eq!(frames, expected);
            prop_assert!(inbox.buffer.iter().all(|byte| *byte == 0), "something was not wiped");
        }
    }

    #[test]
    fn memory_is_bounded_and_given_back() {
        let mut stream = Vec::new();
        frame::encode(&rest(watari_wire::REST_LEN_MAX), &mut stream).unwrap();
        let mut inbox = Inbox::new();
        assert_eq!(read(&mut inbox, &stream, &[usize::MAX]).len(), 1);
        assert!(inbox.buffer.len() <= FRAME_LEN_MAX);
        assert_eq!(inbox.room().len(), LEN_USUAL);
    }

    #[test]
    fn the_longest_frame_fits_and_nothing_longer() {
        let unknown = |len: usize| [&u32::try_from(len - 4).unwrap().to_be_bytes()[..], &vec![0xff; len - 4]].concat();
        let mut inbox = Inbox::new();
        let frames = read(&mut inbox, &unknown(FRAME_LEN_MAX), &[1 << 20]);
        assert_eq!(frames, [Frame::Unknown { version: 0xff, kind: 0xff }]);
        assert_eq!(inbox.buffer.len(), FRAME_LEN_MAX);
        inbox.room()[..4].copy_from_slice(&unknown(FRAME_LEN_MAX + 1)[..4]);
        inbox.filled(4);
        assert_eq!(inbox.next_frame(), Err(FrameError::TooLong { len: FRAME_LEN_MAX + 1 }));
    }
}
