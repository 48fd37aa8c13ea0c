//! A file as it is, or unpacked.

use std::io::{self, Chain, Cursor, Read};

use flate2::read::MultiGzDecoder;

use super::error::ReadError;

/// A file that is unpacked if it begins with the magic of gzip (RFC 1952, section 2.3.1).
#[derive(Debug)]
pub(super) enum Source<R> {
    Plain(Prefixed<R>),
    Packed(Box<MultiGzDecoder<Prefixed<R>>>),
}

/// The octets that were read already, and the rest.
type Prefixed<R> = Chain<Cursor<Vec<u8>>, R>;

impl<R: Read> Source<R> {
    pub(super) fn new(mut file: R) -> Result<Self, ReadError> {
        let mut first = Vec::new();
        let read = file.by_ref().take(GZIP.len() as u64).read_to_end(&mut first);
        read.map_err(|source| ReadError::Io { offset: 0, source })?;
        let is_packed = first == GZIP;
        let file = Cursor::new(first).chain(file);
        Ok(if is_packed { Self::Packed(Box::new(MultiGzDecoder::new(file))) } else { Self::Plain(file) })
    }
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.read(buffer),
            Self::Packed(file) => file.read(buffer),
        }
    }
}

const GZIP: [u8; 2] = [0x1f, 0x8b];
