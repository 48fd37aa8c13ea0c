//! Follows the frames of one direction of a connection.

/// Finds the frame heads in bytes that arrive in pieces of any size, and skips payloads (RFC 9113, section 4.1).
#[derive(Debug)]
pub(super) struct Frames {
    /// Remaining bytes to skip: of a payload, or of the preface.
    pass: usize,
    /// The frame head read so far. For GOAWAY also the stream number at the start of the payload.
    head: [u8; HEAD_BYTES + NUMBER_BYTES],
    head_bytes: usize,
    /// The frame whose payload is being skipped.
    current: Option<Frame>,
    /// HEADERS that continue in CONTINUATION frames.
    block: Option<Frame>,
}

/// A complete frame. HEADERS are complete with the last CONTINUATION.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) stream: u32,
    kind: u8,
    flags: u8,
    /// For GOAWAY: the last stream that the server has processed or may process.
    pub(super) last_stream: Option<u32>,
}

impl Frames {
    /// Frames that begin after `bytes` other bytes.
    pub(super) fn behind(bytes: usize) -> Self {
        Self { pass: bytes, head: [0; HEAD_BYTES + NUMBER_BYTES], head_bytes: 0, current: None, block: None }
    }

    /// Reads the next bytes, and passes each frame that they complete to `show`.
    pub(super) fn follow(&mut self, mut data: &[u8], mut show: impl FnMut(Frame)) {
        while !data.is_empty() {
            let passed = self.pass.min(data.len());
            (self.pass, data) = (self.pass - passed, &data[passed..]);
            if self.pass == 0 {
                self.current.take().and_then(|frame| self.complete(frame)).into_iter().for_each(&mut show);
                data = self.take_head(data);
                if self.pass == 0 {
                    self.current.take().and_then(|frame| self.complete(frame)).into_iter().for_each(&mut show);
                }
            }
        }
    }

    /// Consumes bytes of the next head, and returns the remaining ones.
    fn take_head<'a>(&mut self, data: &'a [u8]) -> &'a [u8] {
        let taken = (self.head_bytes_wanted() - self.head_bytes).min(data.len());
        self.head[self.head_bytes..][..taken].copy_from_slice(&data[..taken]);
        self.head_bytes += taken;
        if self.head_bytes == self.head_bytes_wanted() {
            let [_, _, _, kind, flags, stream @ .., n0, n1, n2, n3] = self.head;
            let has_number = self.head_bytes > HEAD_BYTES;
            let last_stream = has_number.then_some(number([n0, n1, n2, n3]));
            self.pass = self.payload_bytes() - (self.head_bytes - HEAD_BYTES);
            self.current = Some(Frame { stream: number(stream), kind, flags, last_stream });
            self.head_bytes = 0;
        }
        &data[taken..]
    }

    fn head_bytes_wanted(&self) -> usize {
        let has_number =
            self.head_bytes >= HEAD_BYTES && self.head[3] == GOAWAY && self.payload_bytes() >= NUMBER_BYTES;
        if has_number { HEAD_BYTES + NUMBER_BYTES } else { HEAD_BYTES }
    }

    fn payload_bytes(&self) -> usize {
        u32::from_be_bytes([0, self.head[0], self.head[1], self.head[2]]) as usize
    }

    /// The frame to show; `None` if a header block continues.
    fn complete(&mut self, frame: Frame) -> Option<Frame> {
        match frame.kind {
            HEADERS if frame.flags & END_HEADERS == 0 => {
                self.block = Some(frame);
                None
            }
            CONTINUATION if frame.flags & END_HEADERS == 0 => None,
            CONTINUATION => self.block.take(),
            _ => Some(frame),
        }
    }
}

impl Frame {
    /// Whether its sender sends nothing more on this stream.
    pub(super) fn ends_stream(self) -> bool {
        matches!(self.kind, HEADERS | DATA) && self.flags & END_STREAM != 0
    }

    /// Whether it is part of a message.
    pub(super) fn is_of_message(self) -> bool {
        matches!(self.kind, HEADERS | DATA)
    }

    /// Whether it is `RST_STREAM`.
    pub(super) fn is_reset(self) -> bool {
        self.kind == RST_STREAM
    }
}

/// A stream number. Its first bit is reserved.
fn number(bytes: [u8; NUMBER_BYTES]) -> u32 {
    u32::from_be_bytes(bytes) & 0x7fff_ffff
}

const HEAD_BYTES: usize = 9;
const NUMBER_BYTES: usize = 4;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: usize) -> Vec<u8> {
        let mut bytes = u32::try_from(payload).expect("short").to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.resize(HEAD_BYTES + payload, 0xff);
        bytes
    }

    fn followed(frames: &mut Frames, data: &[u8]) -> Vec<Frame> {
        let mut shown = Vec::new();
        frames.follow(data, |frame| shown.push(frame));
        shown
    }

    #[test]
    fn a_frame_is_shown_with_its_last_byte() {
        let mut frames = Frames::behind(3);
        let bytes = [b"PRI".to_vec(), frame(DATA, END_STREAM, 5, 2), frame(RST_STREAM, 0, 0x8000_0007, 0)].concat();
        assert_eq!(followed(&mut frames, &bytes[..13]), []);
        let shown = followed(&mut frames, &bytes[13..]);
        assert_eq!(shown.iter().map(|frame| frame.stream).collect::<Vec<_>>(), [5, 7]);
        assert!(shown[0].ends_stream() && shown[0].is_of_message() && !shown[0].is_reset());
        assert!(!shown[1].ends_stream() && !shown[1].is_of_message() && shown[1].is_reset());
    }

    #[test]
    fn goaway_names_the_last_stream() {
        let mut goaway = frame(GOAWAY, 0, 0, 8);
        goaway[9..13].copy_from_slice(&5u32.to_be_bytes());
        let shown: Vec<_> =
            followed(&mut Frames::behind(0), &[goaway, frame(GOAWAY, 0, 0, 3), frame(DATA, 0, 1, 8)].concat());
        assert_eq!(shown.iter().map(|frame| frame.last_stream).collect::<Vec<_>>(), [Some(5), None, None]);
    }

    #[test]
    fn headers_end_with_their_last_continuation() {
        let mut frames = Frames::behind(0);
        assert_eq!(followed(&mut frames, &frame(HEADERS, END_STREAM, 1, 4)), []);
        assert_eq!(followed(&mut frames, &frame(CONTINUATION, 0, 1, 4)), []);
        let shown = followed(&mut frames, &frame(CONTINUATION, END_HEADERS, 1, 0));
        assert!(shown.len() == 1 && shown[0].ends_stream(), "{shown:?}");
    }

    proptest! {
        #[test]
        fn any_split_shows_alike(
            sent in prop::collection::vec((0u8..12, any::<u8>(), any::<u32>(), 0usize..20), 0..8),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let bytes: Vec<u8> = sent.iter().flat_map(|&(kind, flags, stream, payload)| frame(kind, flags, stream, payload)).collect();
            let whole = followed(&mut Frames::behind(0), &bytes);
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut frames = Frames::behind(0);
            let pieces: Vec<_> = cuts.windows(2).flat_map(|pair| followed(&mut frames, &bytes[pair[0]..pair[1]])).collect();
            prop_assert_eq!(pieces, whole);
        }

        #[test]
        fn nothing_makes_it_panic(input in prop::collection::vec(any::<u8>(), 0..200)) {
            followed(&mut Frames::behind(24), &input);
        }
    }
}
