//! Decodes the chunked transfer coding (RFC 9112, section 7.1) incrementally.

use super::fault::ProtocolFault;

/// Maximum length of a chunk-size line with its extensions, and of a trailer field, in bytes.
const LINE_BYTES_MAX: usize = 8 * 1024;
/// Maximum length of all trailer fields together, in bytes.
const TRAILER_BYTES_MAX: usize = 64 * 1024;

/// ```text
/// Size --> Data --> DataEnd --> Size
///   '----(size 0)--> Trailers --> Done
/// ```
#[derive(Debug)]
pub(super) enum Chunked {
    /// In the line with the size.
    Size { size: u64, digits: usize, extension: bool, line: usize },
    /// In the data. `left` bytes are to come.
    Data { left: u64 },
    /// In the line end after the data. `cr`: its CR has arrived.
    DataEnd { cr: bool },
    /// After the last chunk. `line`: length of the line so far, without CR; `all`: length of all lines.
    Trailers { line: usize, all: usize },
    /// The coding is complete.
    Done,
}

impl Chunked {
    pub(super) fn new() -> Self {
        Self::Size { size: 0, digits: 0, extension: false, line: 0 }
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// Decodes `input`, passes data to `data`, and returns the number of bytes consumed: all, unless the coding ends
    /// before.
    pub(super) fn feed(&mut self, input: &[u8], data: &mut impl FnMut(&[u8])) -> Result<usize, ProtocolFault> {
        let mut at = 0;
        while at < input.len() && !self.is_done() {
            if let Self::Data { left } = self {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len() - at);
                data(&input[at..at + length]);
                at += length;
                *left -= length as u64;
                if *left == 0 {
                    *self = Self::DataEnd { cr: false };
                }
            } else {
                self.control(input[at])?;
                at += 1;
            }
        }
        Ok(at)
    }

    /// Consumes one byte that is not data.
    fn control(&mut self, byte: u8) -> Result<(), ProtocolFault> {
        match self {
            Self::Size { size, digits, extension, line } => {
                *line += 1;
                if *line > LINE_BYTES_MAX {
                    return Err(ProtocolFault::Chunk);
                }
                match byte {
                    b'\n' if *digits == 0 => return Err(ProtocolFault::Chunk),
                    b'\n' if *size == 0 => *self = Self::Trailers { line: 0, all: 0 },
                    b'\n' => *self = Self::Data { left: *size },
                    _ if *extension => {}
                    b';' | b' ' | b'\t' | b'\r' => *extension = true,
                    _ => {
                        let digit = char::from(byte).to_digit(16).ok_or(ProtocolFault::Chunk)?;
                        *digits += 1;
                        if *digits > 15 {
                            return Err(ProtocolFault::Chunk);
                        }
                        *size = *size * 16 + u64::from(digit);
                    }
                }
            }
            Self::DataEnd { cr } => match byte {
                b'\r' if !*cr => *cr = true,
                b'\n' => *self = Self::new(),
                _ => return Err(ProtocolFault::Chunk),
            },
            Self::Trailers { line, all } => {
                *all += 1;
                match byte {
                    b'\n' if *line == 0 => *self = Self::Done,
                    b'\n' => *line = 0,
                    b'\r' => {}
                    _ => *line += 1,
                }
                if let Self::Trailers { all, .. } = self
                    && *all > TRAILER_BYTES_MAX
                {
                    return Err(ProtocolFault::Chunk);
                }
            }
            Self::Data { .. } | Self::Done => unreachable!("these take no control bytes"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn decode(input: &[u8]) -> Result<(Vec<u8>, usize, bool), ProtocolFault> {
        let (mut chunked, mut out) = (Chunked::new(), Vec::new());
        let taken = chunked.feed(input, &mut |data| out.extend_from_slice(data))?;
        Ok((out, taken, chunked.is_done()))
    }

    #[test]
    fn extensions_and_trailers_are_passed_over() {
        let coded = b"4;name=\"x\"\r\nwata\r\n002\r\nri\r\n0\r\nEtag: x\r\n\r\nnext";
        assert_eq!(decode(coded).unwrap(), (b"watari".to_vec(), coded.len() - 4, true));
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        for wrong in [&b"\r\n"[..], b"g\r\n", b"-1\r\n", b"2\r\nabc\r\n", b"fffffffffffffffff\r\n", b"1\r\na\r\r"] {
            assert_eq!(decode(wrong), Err(ProtocolFault::Chunk), "{wrong:?}");
        }
        assert_eq!(decode(&[b'1'; LINE_BYTES_MAX + 1]), Err(ProtocolFault::Chunk));
        let trailers = [&b"0\r\n"[..], &vec![b'x'; TRAILER_BYTES_MAX + 1]].concat();
        assert_eq!(decode(&trailers), Err(ProtocolFault::Chunk));
    }

    proptest! {
        #[test]
        fn any_split_decodes_alike(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut coded = Vec::new();
            for chunk in &chunks {
                coded.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                coded.extend_from_slice(chunk);
                coded.extend_from_slice(b"\r\n");
            }
            coded.extend_from_slice(b"0\r\n\r\n");
            let cut = cut.index(coded.len());
            let (mut chunked, mut out) = (Chunked::new(), Vec::new());
            for part in [&coded[..cut], &coded[cut..]] {
                prop_assert_eq!(chunked.feed(part, &mut |data| out.extend_from_slice(data)).unwrap(), part.len());
            }
            prop_assert!(chunked.is_done());
            prop_assert_eq!(out, chunks.concat());
        }

        #[test]
        fn nothing_makes_it_panic(input in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&input);
        }
    }
}
