//! Encodes content.

use http::HeaderMap;

use super::{Content, may_be_trailer};
use crate::fault::Misuse;
use crate::write;

/// Frames the content of one message. It does not touch the data, so that head, framing and data can be one write.
///
/// ```text
///   Length(n) --encode: n bytes in total--> Length(0) --finish--> Done
///   Chunked ---encode: any number of times--> Chunked --finish--> Done
///   UntilClose --------------"--------------> UntilClose --finish--> Done
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoder {
    /// This many bytes are to come.
    Length(u64),
    Chunked,
    UntilClose,
    Done,
}

/// The framing of one piece of data.
#[derive(Debug, Clone, Copy)]
pub struct Framed {
    prefix: [u8; PREFIX_LEN_MAX],
    prefix_start: usize,
    /// What follows the data.
    pub suffix: &'static [u8],
}

impl Framed {
    const PLAIN: Self = Self { prefix: [0; PREFIX_LEN_MAX], prefix_start: PREFIX_LEN_MAX, suffix: b"" };

    /// The size of a chunk, and a line end. RFC 9112, section 7.1.
    fn chunk(len: usize) -> Self {
        let mut framed = Self { suffix: b"\r\n", ..Self::PLAIN };
        framed.prefix[PREFIX_LEN_MAX - 2..].copy_from_slice(b"\r\n");
        framed.prefix_start = PREFIX_LEN_MAX - 2;
        let mut rest = len;
        while rest > 0 {
            framed.prefix_start -= 1;
            framed.prefix[framed.prefix_start] = HEX[rest & 15];
            rest >>= 4;
        }
        framed
    }

    /// What precedes the data.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix[self.prefix_start..]
    }
}

impl Encoder {
    pub fn new(content: Content) -> Self {
        match content {
            Content::None => Self::Done,
            Content::Length(length) => Self::Length(length),
            Content::Chunked => Self::Chunked,
            Content::UntilClose => Self::UntilClose,
        }
    }

    /// The framing of the next `len` bytes of data.
    pub fn encode(&mut self, len: usize) -> Result<Framed, Misuse> {
        match self {
            _ if len == 0 => Ok(Framed::PLAIN),
            Self::Chunked => Ok(Framed::chunk(len)),
            Self::UntilClose => Ok(Framed::PLAIN),
            Self::Length(left) => {
                *left = left.checked_sub(len as u64).ok_or(Misuse::TooLong)?;
                Ok(Framed::PLAIN)
            }
            Self::Done => Err(Misuse::TooLong),
        }
    }

    /// Ends the content. Trailers are written after chunks only, without those that may not be there.
    pub fn finish(&mut self, trailers: Option<&HeaderMap>, out: &mut Vec<u8>) -> Result<(), Misuse> {
        match self {
            Self::Length(1..) => return Err(Misuse::TooShort),
            Self::Chunked => {
                out.extend_from_slice(b"0\r\n");
                for (name, value) in trailers.into_iter().flatten().filter(|(name, _)| may_be_trailer(name)) {
                    write::field(name, value, out);
                }
                out.extend_from_slice(b"\r\n");
            }
            Self::Length(0) | Self::UntilClose | Self::Done => {}
        }
        *self = Self::Done;
        Ok(())
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// 16 digits of a 64-bit size, CR, LF.
const PREFIX_LEN_MAX: usize = 18;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;
    use crate::content::Decoder;
    use crate::limits::Limits;

    fn encoded(content: Content, pieces: &[Vec<u8>], trailers: Option<&HeaderMap>) -> Result<Vec<u8>, Misuse> {
        let (mut encoder, mut out) = (Encoder::new(content), Vec::new());
        for piece in pieces {
            let framed = encoder.encode(piece.len())?;
            for part in [framed.prefix(), piece, framed.suffix] {
                out.extend_from_slice(part);
            }
        }
        encoder.finish(trailers, &mut out)?;
        assert_eq!(encoder, Encoder::Done);
        Ok(out)
    }

    #[test]
    fn chunks() {
        let pieces = [b"abc".to_vec(), Vec::new(), vec![b'x'; 0x1a]];
        let expected = [b"3\r\nabc\r\n1a\r\n", &vec![b'x'; 0x1a][..], b"\r\n0\r\n\r\n"].concat();
        assert_eq!(encoded(Content::Chunked, &pieces, None).unwrap(), expected);
        assert_eq!(Framed::chunk(usize::MAX).prefix(), b"ffffffffffffffff\r\n");
    }

    #[test]
    fn trailers_end_chunks_only() {
        let mut trailers = HeaderMap::new();
        for name in ["x-sum", "content-length", "host"] {
            trailers.insert(name, HeaderValue::from_static("1"));
        }
        let ends = |content| encoded(content, &[], Some(&trailers)).unwrap();
        assert_eq!(ends(Content::Chunked), b"0\r\nx-sum: 1\r\n\r\n");
        assert_eq!(ends(Content::UntilClose), b"");
        assert_eq!(ends(Content::Length(0)), b"");
    }

    #[test]
    fn lengths_are_kept() {
        let pieces = [b"ab".to_vec(), b"c".to_vec()];
        assert_eq!(encoded(Content::Length(3), &pieces, None).unwrap(), b"abc");
        assert_eq!(encoded(Content::UntilClose, &pieces, None).unwrap(), b"abc");
        assert_eq!(encoded(Content::Length(2), &pieces, None), Err(Misuse::TooLong));
        assert_eq!(encoded(Content::Length(4), &pieces, None), Err(Misuse::TooShort));
        assert_eq!(encoded(Content::None, &pieces, None), Err(Misuse::TooLong));
    }

    proptest! {
        #[test]
        fn decoding_reverts_encoding(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..6)) {
            let data = pieces.concat();
            for content in [Content::Chunked, Content::Length(data.len() as u64)] {
                let coded = encoded(content, &pieces, None).unwrap();
                let (mut decoder, mut found, mut at) = (Decoder::new(content), Vec::new(), 0);
                while !decoder.is_done() {
                    let step = decoder.decode(&coded[at..], &Limits::default()).unwrap();
                    found.extend_from_slice(&coded[at..][step.data]);
                    at += step.consumed;
                }
                prop_assert_eq!((&found, at), (&data, coded.len()));
            }
        }
    }
}
