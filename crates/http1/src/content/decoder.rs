//! Decodes content.

use std::ops::Range;

use http::HeaderMap;

use super::chunked::{After, Control};
use super::{Content, trailers};
use crate::fault::ContentFault;
use crate::head::HeadEnd;
use crate::limits::Limits;

/// Decodes the content of one message. It stores no bytes, and can be exported at any of them.
///
/// ```text
///   Length(n) --n bytes--> Done
///   Control <--chunk--> Data(n)     Control --last chunk--> Trailers --empty line--> Done
///   UntilClose                      the caller notices the end
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoder {
    pub(crate) stage: Stage,
    /// Bytes of chunk extensions so far.
    pub(crate) extension_bytes: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The content has a length. This many bytes are to come, more than 0.
    Length(u64),
    UntilClose,
    /// Between the data of chunks.
    Control(Control),
    /// In the data of a chunk. This many bytes are to come, more than 0.
    Data(u64),
    /// After the last chunk. The search is for the end of the trailer section.
    Trailers(HeadEnd),
    Done,
}

/// What [`Decoder::decode`] found in its input.
#[derive(Debug, Default, PartialEq)]
pub struct Decoded {
    /// The bytes that the caller removes from the front of its input. It keeps the others, and adds to them.
    pub consumed: usize,
    /// Data, as a range of the input. If it is empty and `is_end` is not set, the decoder needs more input.
    pub data: Range<usize>,
    /// Whether the content is complete.
    pub is_end: bool,
    /// The trailers that may be used, with the end.
    pub trailers: Option<Box<HeaderMap>>,
}

impl Decoder {
    pub fn new(content: Content) -> Self {
        let stage = match content {
            Content::None | Content::Length(0) => Stage::Done,
            Content::Length(length) => Stage::Length(length),
            Content::Chunked => Stage::Control(Control::Size),
            Content::UntilClose => Stage::UntilClose,
        };
        Self { stage, extension_bytes: 0 }
    }

    /// Whether the content is complete.
    pub fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Whether the end of the connection completes the content.
    pub fn ends_with_connection(&self) -> bool {
        self.stage == Stage::UntilClose
    }

    /// The bytes of data to come, if their number is known.
    pub fn remaining(&self) -> Option<u64> {
        match self.stage {
            Stage::Length(left) => Some(left),
            Stage::Done => Some(0),
            Stage::UntilClose | Stage::Control(_) | Stage::Data(_) | Stage::Trailers(_) => None,
        }
    }

    /// Decodes the first data in `input`, and all framing before and after it. After a fault, the decoder is not used
    /// any more.
    ///
    /// A trailer section is consumed as a whole, so the caller's buffer has to have room for
    /// [`Limits::head_bytes_max`] bytes.
    pub fn decode(&mut self, input: &[u8], limits: &Limits) -> Result<Decoded, ContentFault> {
        let mut decoded = Decoded::default();
        while self.advance(input, limits, &mut decoded)? {}
        decoded.is_end = self.is_done();
        Ok(decoded)
    }

    /// Takes one step. Returns whether another one may follow.
    fn advance(&mut self, input: &[u8], limits: &Limits, decoded: &mut Decoded) -> Result<bool, ContentFault> {
        let rest = &input[decoded.consumed..];
        match self.stage {
            Stage::Done => return Ok(false),
            _ if rest.is_empty() => return Ok(false),
            Stage::Control(control) => {
                self.stage = match control.on_byte(rest[0], &mut self.extension_bytes)? {
                    After::Control(next) => Stage::Control(next),
                    After::Data(size) => Stage::Data(size),
                    After::Trailers => Stage::Trailers(HeadEnd::default()),
                };
                decoded.consumed += 1;
            }
            Stage::Trailers(mut end) => {
                let parsed = trailers::parse(rest, &mut end, limits)?;
                self.stage = if parsed.is_some() { Stage::Done } else { Stage::Trailers(end) };
                let Some((len, fields)) = parsed else { return Ok(false) };
                decoded.consumed += len;
                decoded.trailers = fields;
            }
            // One range of data at a time.
            Stage::Length(_) | Stage::Data(_) | Stage::UntilClose if !decoded.data.is_empty() => return Ok(false),
            Stage::Length(left) => {
                let left = take(left, rest.len(), decoded);
                self.stage = if left == 0 { Stage::Done } else { Stage::Length(left) };
            }
            Stage::Data(left) => {
                let left = take(left, rest.len(), decoded);
                self.stage = if left == 0 { Stage::Control(Control::DataCr) } else { Stage::Data(left) };
            }
            Stage::UntilClose => {
                take(u64::MAX, rest.len(), decoded);
            }
        }
        Ok(true)
    }
}

/// Adds at most `left` bytes of data. Returns how many are left.
fn take(left: u64, available: usize, decoded: &mut Decoded) -> u64 {
    let len = usize::try_from(left).unwrap_or(usize::MAX).min(available);
    decoded.data = decoded.consumed..decoded.consumed + len;
    decoded.consumed += len;
    left - len as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    /// The data, the number of consumed bytes, whether the content is complete, and the number of trailers.
    type Outcome = (Vec<u8>, usize, bool, usize);

    /// Decodes pieces as a caller does that keeps what is not consumed.
    fn decode(content: Content, pieces: &[&[u8]]) -> Result<Outcome, ContentFault> {
        let (mut decoder, limits) = (Decoder::new(content), Limits::default());
        let (mut buffer, mut data, mut total, mut trailers) = (Vec::new(), Vec::new(), 0, 0);
        for piece in pieces {
            buffer.extend_from_slice(piece);
            loop {
                let found = decoder.decode(&buffer, &limits)?;
                data.extend_from_slice(&buffer[found.data.clone()]);
                trailers += found.trailers.map_or(0, |fields| fields.len());
                buffer.drain(..found.consumed);
                total += found.consumed;
                if found.is_end || found.data.is_empty() {
                    break;
                }
            }
        }
        Ok((data, total, decoder.is_done(), trailers))
    }

    #[test]
    fn lengths() {
        let whole = |content, input: &[u8]| decode(content, &[input]).unwrap();
        assert_eq!(whole(Content::Length(3), b"abcd"), (b"abc".to_vec(), 3, true, 0));
        assert_eq!(whole(Content::Length(3), b"ab"), (b"ab".to_vec(), 2, false, 0));
        assert_eq!(whole(Content::None, b"ab"), (Vec::new(), 0, true, 0));
        assert_eq!(whole(Content::Length(0), b"ab"), (Vec::new(), 0, true, 0));
        assert_eq!(whole(Content::UntilClose, b"ab"), (b"ab".to_vec(), 2, false, 0));
    }

    #[test]
    fn one_call_reads_up_to_the_next_data() {
        let mut decoder = Decoder::new(Content::Chunked);
        let input = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\nGET";
        let first = decoder.decode(input, &Limits::default()).unwrap();
        assert_eq!((first.consumed, first.data, first.is_end), (11, 3..6, false));
        let second = decoder.decode(&input[11..], &Limits::default()).unwrap();
        assert_eq!((second.consumed, second.data, second.is_end), (9, 0..2, true));
        let third = decoder.decode(b"GET", &Limits::default()).unwrap();
        assert_eq!(third, Decoded { is_end: true, ..Decoded::default() });
    }

    #[test]
    fn extensions_and_trailers() {
        let coded = b"4;name=\"x\"\r\nwata\r\n002  \r\nri\r\n00\r\nEtag: x\r\nHost: y\r\n\r\nnext";
        assert_eq!(decode(Content::Chunked, &[coded]).unwrap(), (b"watari".to_vec(), coded.len() - 4, true, 1));
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        for (wrong, fault) in [
            (&b"\r\n"[..], ContentFault::ChunkSize),
            (b"g\r\n", ContentFault::ChunkSize),
            (b"-1\r\n", ContentFault::ChunkSize),
            (b"+1\r\n", ContentFault::ChunkSize),
            (b"0x1\r\n", ContentFault::ChunkSize),
            (b" 1\r\n", ContentFault::ChunkSize),
            (b"1 1\r\n", ContentFault::ChunkSize),
            (b"1\na\n0\n\n", ContentFault::ChunkSize),
            (b"1;a\nb", ContentFault::Extension),
            (b"1;a\rb", ContentFault::ChunkSize),
            (b"2\r\nabc\r\n", ContentFault::ChunkEnd),
            (b"1\r\na\n", ContentFault::ChunkEnd),
            (b"1\r\na\r\r", ContentFault::ChunkEnd),
            (b"10000000000000000\r\n", ContentFault::ChunkLen),
            (b"00000000000000001\r\n", ContentFault::ChunkLen),
            (b"0\r\n\n", ContentFault::TrailerField),
            (b"0\r\na b\r\n\r\n", ContentFault::TrailerField),
        ] {
            let found = decode(Content::Chunked, &[wrong]).unwrap_err();
            assert_eq!(found, fault, "{:?}", wrong.escape_ascii().to_string());
        }
    }

    proptest! {
        #[test]
        fn any_split_decodes_alike(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
            trailer in prop::option::of("[a-z]{1,9}: [a-z]{0,9}\r\n"),
            size in 1usize..30,
        ) {
            let mut coded = Vec::new();
            for chunk in &chunks {
                coded.extend_from_slice(format!("{:x};a\r\n", chunk.len()).as_bytes());
                coded.extend_from_slice(chunk);
                coded.extend_from_slice(b"\r\n");
            }
            coded.extend_from_slice(format!("0\r\n{}\r\n", trailer.unwrap_or_default()).as_bytes());
            let whole = decode(Content::Chunked, &[&coded]).unwrap();
            prop_assert_eq!((&whole.0, whole.1, whole.2), (&chunks.concat(), coded.len(), true));
            let pieces: Vec<_> = coded.chunks(size).collect();
            prop_assert_eq!(decode(Content::Chunked, &pieces).unwrap(), whole);
        }

        #[test]
        fn any_bytes_decode_alike_in_any_split(input in "[0-3a;: \r\n]{0,40}") {
            let whole = decode(Content::Chunked, &[input.as_bytes()]);
            let pieces: Vec<_> = input.as_bytes().chunks(1).collect();
            prop_assert_eq!(decode(Content::Chunked, &pieces), whole);
        }
    }
}
