//! Trailers that begin with pseudo-header fields become malformed for h2, too.
//!
//! h2 drops pseudo-header fields in trailers, where they make a request malformed (RFC 9113, section 8.1), before a caller can see them. It refuses
//! them behind a regular field (section 8.3). So trailers are passed to it with an empty `Max-Forwards` in front, which is no field of
//! trailers (RFC 9110, section 6.5.1) and has to be removed there anyway:
//!
//! ```text
//!   received:  HEADERS {END_STREAM, END_HEADERS} block
//!   passed on: HEADERS {END_STREAM} max-forwards, CONTINUATION {END_HEADERS} block
//! ```

use std::collections::VecDeque;

use crate::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, HEADER_LEN, HEADERS, PREFACE_LEN, RST_STREAM, parse, write_head,
};

/// `max-forwards:`, by its name's index 47 in the static table, not indexed (RFC 7541, section 6.2.2 and appendix A).
const FIELD: [u8; 3] = [0x0f, 47 - 15, 0];

/// The block does not begin the payload.
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// What a client sends, on its way to h2.
#[derive(Debug)]
pub(crate) struct Trailers {
    /// Bytes of a payload, or of the preface, that are yet to come.
    skip: usize,
    /// The beginning of a frame's header whose rest has not come.
    held: Vec<u8>,
    /// The highest stream that the client has begun.
    last_stream: u32,
    /// Streams that the client has begun and not ended: a HEADERS frame on one of them has trailers, on others it is an error.
    open: VecDeque<u32>,
}

/// More streams than h2 accepts at the same time; those that it refuses are forgotten at last.
const OPEN_MAX: usize = 256;

impl Trailers {
    pub(crate) fn new() -> Self {
        Self { skip: PREFACE_LEN as usize, held: Vec::new(), last_stream: 0, open: VecDeque::new() }
    }

    /// Takes the next bytes. `None`: they are to be passed on as they are, as nearly all are; else what is to be passed on instead.
    pub(crate) fn pass(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut is_plain = self.held.is_empty();
        let joined;
        let bytes = if is_plain {
            bytes
        } else {
            joined = [&std::mem::take(&mut self.held), bytes].concat();
            &joined
        };
        let (mut passed, mut from, mut at) = (Vec::new(), 0, 0);
        loop {
            let skipped = self.skip.min(bytes.len() - at);
            self.skip -= skipped;
            at += skipped;
            match self.read_head(&bytes[at..]) {
                Head::None => break,
                Head::Half => {
                    self.held.extend(&bytes[at..]);
                    passed.extend(&bytes[from..at]);
                    return Some(passed);
                }
                Head::Other => at += HEADER_LEN,
                Head::Trailers(Frame { flags, stream, len, .. }) => {
                    is_plain = false;
                    passed.extend(&bytes[from..at]);
                    passed.extend(write_head(FIELD.len() as u32, HEADERS, flags & !END_HEADERS, stream));
                    passed.extend(FIELD);
                    passed.extend(write_head(len, CONTINUATION, flags & END_HEADERS, stream));
                    at += HEADER_LEN;
                    from = at;
                }
            }
        }
        if is_plain {
            return None;
        }
        passed.extend(&bytes[from..]);
        Some(passed)
    }

    /// What is left at the end of the stream.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    /// Reads the header that these bytes begin with.
    fn read_head(&mut self, bytes: &[u8]) -> Head {
        if bytes.is_empty() {
            return Head::None;
        }
        let Some(head) = bytes.first_chunk() else { return Head::Half };
        let frame = parse(head);
        self.skip = frame.len as usize;
        let ends = frame.flags & END_STREAM != 0;
        match frame.kind {
            HEADERS if frame.stream > self.last_stream => {
                self.last_stream = frame.stream;
                if !ends {
                    self.open.truncate(OPEN_MAX - 1);
                    self.open.push_front(frame.stream);
                }
                Head::Other
            }
            HEADERS if self.close(frame.stream) && frame.flags & (PADDED | PRIORITY) == 0 => Head::Trailers(frame),
            DATA if ends => self.forget(frame.stream),
            RST_STREAM => self.forget(frame.stream),
            _ => Head::Other,
        }
    }

    fn forget(&mut self, stream: u32) -> Head {
        self.close(stream);
        Head::Other
    }

    /// Whether the stream was open.
    fn close(&mut self, stream: u32) -> bool {
        let place = self.open.iter().position(|open| *open == stream);
        place.and_then(|place| self.open.remove(place)).is_some()
    }
}

/// The beginning of a frame, as far as it was received.
enum Head {
    /// No byte was received.
    None,
    /// The header is incomplete.
    Half,
    Other,
    Trailers(Frame),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frames::tests::frame;

    const ALL: u8 = END_STREAM | END_HEADERS;

    fn behind_preface(pieces: &[Vec<u8>]) -> Vec<u8> {
        [&[b'P'; PREFACE_LEN as usize][..], &pieces.concat()].concat()
    }

    /// What is passed on of these bytes, where each read ends after the next of `cuts`.
    fn passed(bytes: &[u8], cuts: &[usize]) -> Vec<u8> {
        let (mut trailers, mut passed, mut rest) = (Trailers::new(), Vec::new(), bytes);
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, behind) = rest.split_at((*cut).min(rest.len()));
            passed.extend(trailers.pass(piece).unwrap_or_else(|| piece.to_vec()));
            rest = behind;
        }
        [passed, trailers.end()].concat()
    }

    #[test]
    fn trailers_get_a_field_in_front() {
        let pieces = [
            frame(HEADERS, END_HEADERS, 1, b"head"),
            frame(HEADERS, END_HEADERS, 3, b"head"),
            frame(HEADERS, END_HEADERS, 5, b"head"),
            frame(DATA, 0, 1, b"data"),
            frame(HEADERS, ALL, 1, b"trailers"),
            frame(HEADERS, END_STREAM, 3, b"trai"),
            frame(CONTINUATION, END_HEADERS, 3, b"lers"),
            frame(HEADERS, ALL | PADDED, 5, b"\x01trailers\0"),
            frame(HEADERS, ALL, 7, b"head"),
        ];
        let mut expected = pieces.to_vec();
        expected[4] =
            [frame(HEADERS, END_STREAM, 1, &FIELD), frame(CONTINUATION, END_HEADERS, 1, b"trailers")].concat();
        expected[5] = [frame(HEADERS, END_STREAM, 3, &FIELD), frame(CONTINUATION, 0, 3, b"trai")].concat();
        let (bytes, expected) = (behind_preface(&pieces), behind_preface(&expected));
        for cut in 1..bytes.len() {
            assert_eq!(passed(&bytes, &[cut]), expected, "reads of {cut} bytes");
        }
    }

    /// These are errors of other kinds, which h2 has to see as they are.
    #[test]
    fn heads_on_streams_that_are_not_open_stay() {
        let pieces = [
            frame(HEADERS, END_HEADERS, 3, b"head"),
            frame(HEADERS, END_HEADERS, 1, b"smaller"),
            frame(DATA, END_STREAM, 3, b"data"),
            frame(HEADERS, ALL, 3, b"half closed"),
            frame(HEADERS, END_HEADERS, 5, b"head"),
            frame(RST_STREAM, 0, 5, &[0; 4]),
            frame(HEADERS, ALL, 5, b"closed"),
            frame(HEADERS, ALL, 7, b"head"),
            frame(HEADERS, ALL, 7, b"half closed"),
        ];
        let bytes = behind_preface(&pieces);
        assert_eq!(passed(&bytes, &[bytes.len()]), bytes);
    }

    #[test]
    fn streams_are_forgotten_at_last() {
        let mut trailers = Trailers::new();
        for number in 0..10_000 {
            trailers.pass(&behind_preface(&[])[..if number == 0 { 24 } else { 0 }]);
            trailers.pass(&frame(HEADERS, END_HEADERS, 1 + 2 * number, b"head"));
        }
        assert_eq!(trailers.open.len(), OPEN_MAX);
        assert!(trailers.pass(&frame(HEADERS, ALL, 1 + 2 * 9_999, b"trailers")).is_some());
    }

    #[test]
    fn other_bytes_are_not_copied() {
        let mut trailers = Trailers::new();
        let pieces = [frame(HEADERS, ALL, 1, b"head"), frame(DATA, 0, 1, &[7; 1000])];
        assert!(trailers.pass(&behind_preface(&pieces)).is_none());
        assert!(trailers.pass(&pieces[1][..500]).is_none());
        assert!(trailers.pass(&pieces[1][500..]).is_none());
        // A header that comes in two pieces.
        assert_eq!(trailers.pass(&pieces[1][..8]), Some(Vec::new()));
        assert_eq!(trailers.pass(&pieces[1][8..]), Some(pieces[1].clone()));
        assert!(trailers.pass(&pieces[1]).is_none());
        trailers.pass(&pieces[1][..3]);
        assert_eq!(trailers.end(), pieces[1][..3]);
    }

    proptest! {
        /// However the bytes are divided among reads, the same is passed on; without trailers, what came.
        #[test]
        fn reads_may_end_anywhere(
            kinds in prop::collection::vec((0_u8..12, any::<u8>(), 0_u32..9, 0_usize..40), 1..20),
            cuts in prop::collection::vec(1_usize..30, 1..60),
        ) {
            let pieces: Vec<_> = kinds.iter().map(|(kind, flags, stream, len)| frame(*kind, *flags, *stream, &vec![7; *len])).collect();
            let bytes = behind_preface(&pieces);
            prop_assert_eq!(passed(&bytes, &cuts), passed(&bytes, &[bytes.len()]));
            let no_trailers: Vec<_> = kinds.iter().zip(pieces).filter(|(kind, _)| kind.0 != HEADERS).map(|(_, piece)| piece).collect();
            let bytes = behind_preface(&no_trailers);
            prop_assert_eq!(passed(&bytes, &cuts), bytes);
        }
    }
}
