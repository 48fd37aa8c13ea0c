//! Makes trailers that begin with pseudo-header fields malformed for h2.
//!
//! Pseudo-header fields in trailers make a request malformed (RFC 9113, section 8.1). h2 drops them before a caller can
//! see them, but refuses them after a regular field (section 8.3). So trailers are passed to h2 with an empty
//! `Max-Forwards` in front. This field is not allowed in trailers (RFC 9110, section 6.5.1), so it has to be removed
//! from them anyway:
//!
//! ```text
//!   received:  HEADERS {END_STREAM, END_HEADERS} block
//!   passed on: HEADERS {END_STREAM} max-forwards, CONTINUATION {END_HEADERS} block
//! ```

use std::collections::VecDeque;

use crate::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, HEADER_LEN, HEADERS, PREFACE_LEN, RST_STREAM, parse, write_head,
};

/// `max-forwards:` by its index 47 in the static table, not indexed (RFC 7541, section 6.2.2 and appendix A).
const FIELD: [u8; 3] = [0x0f, 47 - 15, 0];

/// With these flags, the block is not at the start of the payload.
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// The client's bytes, on their way to h2.
#[derive(Debug)]
pub(crate) struct Trailers {
    /// Bytes of the current payload, or of the preface, that are still to come.
    skip: usize,
    /// The start of an incomplete frame header.
    held: Vec<u8>,
    /// The highest stream that the client has begun.
    last_stream: u32,
    /// Streams that the client has begun and not ended. A HEADERS frame on one of them has trailers. On others it is an
    /// error.
    open: VecDeque<u32>,
}

/// More streams than h2 accepts at a time. h2's refused streams fill the list too, and the oldest entries are dropped.
const OPEN_MAX: usize = 256;

impl Trailers {
    pub(crate) fn new() -> Self {
        Self { skip: PREFACE_LEN as usize, held: Vec::new(), last_stream: 0, open: VecDeque::new() }
    }

    /// Handles the next bytes. `None`: they are passed on unchanged, as nearly all are. `Some`: these are passed on
    /// instead.
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

    /// The bytes that are left at the end of the stream.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    /// Reads the frame header at the start of `bytes`.
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

    /// Removes the stream. Returns whether it was open.
    fn close(&mut self, stream: u32) -> bool {
        let place = self.open.iter().position(|open| *open == stream);
        place.and_then(|place| self.open.remove(place)).is_some()
    }
}

/// The start of a frame, as far as it was received.
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

    /// The bytes passed on, if the reads end as `cuts` says.
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

    /// These are other errors, which h2 has to see unchanged.
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
        // A header that arrives in two reads.
        assert_eq!(trailers.pass(&pieces[1][..8]), Some(Vec::new()));
        assert_eq!(trailers.pass(&pieces[1][8..]), Some(pieces[1].clone()));
        assert!(trailers.pass(&pieces[1]).is_none());
        trailers.pass(&pieces[1][..3]);
        assert_eq!(trailers.end(), pieces[1][..3]);
    }

    proptest! {
        /// The same bytes are passed on for any division into reads. Without trailers, they are the bytes received.
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
