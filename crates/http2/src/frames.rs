//! Headers of frames, and their place in a byte stream.

use crate::Code;

/// RFC 9113, section 4.1.
pub(crate) const HEADER_LEN: usize = 9;
/// The stream identifier and error code of a GOAWAY, in bytes.
const GOAWAY_LEN: usize = 8;
/// RFC 9113, section 3.4.
pub(crate) const PREFACE_LEN: u32 = 24;

/// The types of frames (RFC 9113, section 6).
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

/// Flags of frames (RFC 9113, section 6).
pub(crate) mod flags {
    pub(crate) const END_STREAM: u8 = 1;
    /// Of SETTINGS and PING.
    pub(crate) const ACK: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;
    pub(crate) const PADDED: u8 = 8;
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    /// The length of the payload, in bytes.
    pub(crate) len: u32,
}

/// The parser state of one direction of a connection.
#[derive(Debug)]
pub(crate) struct Frames {
    /// The bytes of the current frame's header that were read.
    header: [u8; HEADER_LEN],
    header_len: usize,
    /// Bytes of the current payload, or of the preface, that are still to come.
    skip: u32,
}

impl Frames {
    /// The direction from client to server, which begins with the preface.
    pub(crate) fn behind_preface() -> Self {
        Self { skip: PREFACE_LEN, ..Self::new() }
    }

    pub(crate) fn new() -> Self {
        Self { header: [0; HEADER_LEN], header_len: 0, skip: 0 }
    }

    /// Whether all bytes so far are complete frames.
    pub(crate) fn is_between_frames(&self) -> bool {
        self.header_len == 0 && self.skip == 0
    }

    /// Reads the next bytes. Reports each frame once, when its header is complete.
    pub(crate) fn read(&mut self, mut bytes: &[u8], mut report: impl FnMut(Frame)) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = bytes.len().min(self.skip as usize);
                self.skip -= skipped as u32;
                bytes = &bytes[skipped..];
                continue;
            }
            let taken = bytes.len().min(HEADER_LEN - self.header_len);
            self.header[self.header_len..self.header_len + taken].copy_from_slice(&bytes[..taken]);
            self.header_len += taken;
            bytes = &bytes[taken..];
            if self.header_len == HEADER_LEN {
                let frame = parse(&self.header);
                (self.skip, self.header_len) = (frame.len, 0);
                report(frame);
            }
        }
    }
}

/// Encodes the header of a frame.
pub(crate) fn write_head(len: u32, kind: u8, flags: u8, stream: u32) -> [u8; HEADER_LEN] {
    let mut head = [0; HEADER_LEN];
    head[..3].copy_from_slice(&len.to_be_bytes()[1..]);
    (head[3], head[4]) = (kind, flags);
    head[5..].copy_from_slice(&stream.to_be_bytes());
    head
}

pub(crate) fn parse(head: &[u8; HEADER_LEN]) -> Frame {
    let [a, b, c, kind, flags, stream @ ..] = *head;
    let len = u32::from_be_bytes([0, a, b, c]);
    Frame { kind, flags, stream: stream_id(stream), len }
}

/// Clears the reserved bit.
fn stream_id(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes) & !(1 << 31)
}

/// Encodes a GOAWAY frame (RFC 9113, section 6.8).
pub(crate) fn goaway(last_stream: u32, code: Code) -> [u8; HEADER_LEN + GOAWAY_LEN] {
    let mut frame = [0; HEADER_LEN + GOAWAY_LEN];
    frame[2] = GOAWAY_LEN as u8;
    frame[3] = kind::GOAWAY;
    frame[9..13].copy_from_slice(&last_stream.to_be_bytes());
    frame[13..].copy_from_slice(&(code as u32).to_be_bytes());
    frame
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame with an arbitrary payload.
    pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
        [&[a, b, c, kind, flags][..], &stream.to_be_bytes(), payload].concat()
    }

    fn read(frames: &mut Frames, bytes: &[u8]) -> Vec<Frame> {
        let mut read = Vec::new();
        frames.read(bytes, |frame| read.push(frame));
        read
    }

    proptest! {
        /// The same frames are found for any division of the bytes into reads.
        #[test]
        fn frames_are_found_wherever_reads_end(
            kinds in prop::collection::vec((0_u8..12, any::<u8>(), 0_u32..1 << 31, 0_usize..40), 1..20),
            cuts in prop::collection::vec(1_usize..30, 1..60),
        ) {
            let pieces: Vec<_> = kinds.iter().map(|(kind, flags, stream, len)| frame(*kind, *flags, *stream, &vec![7; *len])).collect();
            let bytes = [&[b'P'; PREFACE_LEN as usize][..], &pieces.concat()].concat();
            let mut frames = Frames::behind_preface();
            let (mut found, mut rest) = (Vec::new(), &bytes[..]);
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, behind) = rest.split_at((*cut).min(rest.len()));
                found.extend(read(&mut frames, piece));
                rest = behind;
            }
            prop_assert!(frames.is_between_frames());
            let found: Vec<_> = found.iter().map(|frame| (frame.kind, frame.flags, frame.stream, frame.len as usize)).collect();
            prop_assert_eq!(found, kinds);
        }
    }
}
