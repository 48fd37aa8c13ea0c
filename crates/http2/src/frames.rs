//! Splits a byte stream into frame headers.

/// RFC 9113, section 4.1.
pub(crate) const HEADER_LEN: usize = 9;
/// The stream identifier and error code of a GOAWAY, in bytes.
const GOAWAY_LEN: usize = 8;
/// RFC 9113, section 3.4.
pub(crate) const PREFACE_LEN: u32 = 24;

/// RFC 9113, section 6.
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;

/// Flags (RFC 9113, section 6).
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// Error code (RFC 9113, section 7).
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

/// The header of a frame. For GOAWAY also the stream in its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    /// The length of the payload, in bytes.
    pub(crate) len: u32,
    /// The last stream that a GOAWAY admits. 0 for other frames.
    pub(crate) last_stream: u32,
}

/// The parser state of one direction of a connection.
#[derive(Debug)]
pub(crate) struct Frames {
    /// The bytes of the current frame's head that were read.
    head: [u8; HEADER_LEN + GOAWAY_LEN],
    head_len: usize,
    /// Bytes of the current payload, or of the preface, that are still to come.
    skip: u32,
}

impl Frames {
    /// The direction from client to server, which begins with the preface.
    pub(crate) fn behind_preface() -> Self {
        Self { skip: PREFACE_LEN, ..Self::new() }
    }

    pub(crate) fn new() -> Self {
        Self { head: [0; HEADER_LEN + GOAWAY_LEN], head_len: 0, skip: 0 }
    }

    /// Whether all bytes so far are complete frames.
    pub(crate) fn is_between_frames(&self) -> bool {
        self.head_len == 0 && self.skip == 0
    }

    /// Reads the next bytes. Reports each frame once, when its header is complete. Reports a GOAWAY when its stream is
    /// complete too.
    pub(crate) fn read(&mut self, mut bytes: &[u8], mut report: impl FnMut(Frame)) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = bytes.len().min(self.skip as usize);
                self.skip -= skipped as u32;
                bytes = &bytes[skipped..];
                continue;
            }
            if self.head_len == 0
                && let Some((head, _)) = bytes.split_first_chunk::<HEADER_LEN>()
                && head[3] != GOAWAY
            {
                let frame = parse(head);
                self.skip = frame.len;
                bytes = &bytes[HEADER_LEN..];
                report(frame);
                continue;
            }
            let wanted = self.wanted();
            let taken = bytes.len().min(wanted - self.head_len);
            self.head[self.head_len..self.head_len + taken].copy_from_slice(&bytes[..taken]);
            self.head_len += taken;
            bytes = &bytes[taken..];
            if self.head_len == self.wanted() {
                self.end_head(&mut report);
            }
        }
    }

    /// The number of bytes to read of the current frame's head: its header, and for GOAWAY also the stream.
    fn wanted(&self) -> usize {
        if self.head_len < HEADER_LEN || self.head[3] != GOAWAY {
            return HEADER_LEN;
        }
        let len = parse(self.header()).len as usize;
        HEADER_LEN + len.min(GOAWAY_LEN)
    }

    fn end_head(&mut self, report: &mut impl FnMut(Frame)) {
        let mut frame = parse(self.header());
        let read = self.head_len - HEADER_LEN;
        if read == GOAWAY_LEN {
            frame.last_stream = stream_id([self.head[9], self.head[10], self.head[11], self.head[12]]);
        }
        self.skip = frame.len - read as u32;
        self.head_len = 0;
        report(frame);
    }

    fn header(&self) -> &[u8; HEADER_LEN] {
        self.head.first_chunk().expect("the buffer is longer than a header")
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
    Frame { kind, flags, stream: stream_id(stream), len, last_stream: 0 }
}

/// Clears the reserved bit.
fn stream_id(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes) & !(1 << 31)
}

/// Encodes a GOAWAY frame (RFC 9113, section 6.8).
pub(crate) fn goaway(last_stream: u32, error: u32) -> [u8; HEADER_LEN + GOAWAY_LEN] {
    let mut frame = [0; HEADER_LEN + GOAWAY_LEN];
    frame[2] = GOAWAY_LEN as u8;
    frame[3] = GOAWAY;
    frame[9..13].copy_from_slice(&last_stream.to_be_bytes());
    frame[13..].copy_from_slice(&error.to_be_bytes());
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

    #[test]
    fn a_goaway_is_reported_with_its_stream() {
        let mut frames = Frames::new();
        let bytes = [&goaway(0x8000_0007, ENHANCE_YOUR_CALM)[..], &frame(DATA, END_STREAM, 7, b"x")].concat();
        let expected = [
            Frame { kind: GOAWAY, flags: 0, stream: 0, len: 8, last_stream: 7 },
            Frame { kind: DATA, flags: END_STREAM, stream: 7, len: 1, last_stream: 0 },
        ];
        assert_eq!(read(&mut frames, &bytes), expected);
        assert!(frames.is_between_frames());
        // A GOAWAY that is too short has no stream.
        assert_eq!(read(&mut frames, &frame(GOAWAY, 0, 0, b"abc"))[0].last_stream, 0);
        assert!(frames.is_between_frames());
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
