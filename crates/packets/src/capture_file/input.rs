//! A buffer between a reader and the parsers.

use std::io::{self, ErrorKind, Read};

use super::error::{Part, ReadError};

/// Buffered input that reads only as much as is needed.
#[derive(Debug)]
pub(super) struct Input<R> {
    source: R,
    buffer: Vec<u8>,
    /// Index in the buffer of the first octet that is not consumed.
    start: usize,
    /// Index in the buffer behind the last octet that was read.
    end: usize,
    /// Octets consumed since the begin of the file.
    offset: u64,
}

impl<R: Read> Input<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, buffer: vec![0; BUFFER_LEN], start: 0, end: 0, offset: 0 }
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the file has ended. Blocks until the next octet or the end.
    pub(super) fn is_at_end(&mut self) -> Result<bool, ReadError> {
        if self.start < self.end {
            return Ok(false);
        }
        match self.fill(1, Part::Frame) {
            // A gzip file that is cut off is an error: gzip marks its own end.
            Err(ReadError::CutOff { within: Part::Frame, .. }) => Ok(true),
            filled => filled.map(|()| false),
        }
    }

    /// The next `N` octets, which are part of `within`.
    pub(super) fn take<const N: usize>(&mut self, within: Part) -> Result<[u8; N], ReadError> {
        let octets = self.peek(within)?;
        self.consume(N);
        Ok(octets)
    }

    pub(super) fn peek<const N: usize>(&mut self, within: Part) -> Result<[u8; N], ReadError> {
        self.fill(N, within)?;
        Ok(*self.buffer[self.start..].first_chunk().expect("the buffer has as many as it was filled with"))
    }

    /// Reads until the buffer has the next `len` octets. The buffer grows to that.
    pub(super) fn fill(&mut self, len: usize, within: Part) -> Result<(), ReadError> {
        if self.end - self.start < len { self.read_up_to(len, within) } else { Ok(()) }
    }

    /// The next `len` octets, which must be in the buffer.
    pub(super) fn buffered(&self, len: usize) -> &[u8] {
        &self.buffer[self.start..self.start + len]
    }

    pub(super) fn consume(&mut self, len: usize) {
        debug_assert!(len <= self.end - self.start, "what is consumed has been read");
        self.start += len;
        self.offset += len as u64;
    }

    /// Skips `len` octets, without growing the buffer.
    pub(super) fn skip(&mut self, mut len: u64, within: Part) -> Result<(), ReadError> {
        while len > 0 {
            let step = len.min(BUFFER_LEN as u64);
            self.fill(step as usize, within).map_err(|error| missing_more(error, len - step))?;
            self.consume(step as usize);
            len -= step;
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.buffer.len()
    }

    #[cold]
    fn read_up_to(&mut self, len: usize, within: Part) -> Result<(), ReadError> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.buffer.len() < len {
            self.buffer.resize(len.next_power_of_two(), 0);
        }
        while self.end < len {
            let offset = self.offset + self.end as u64;
            let missing = (len - self.end) as u64;
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Err(ReadError::CutOff { offset, within, missing }),
                Ok(read) => self.end += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(read_error(offset, missing, error)),
            }
        }
        Ok(())
    }
}

/// Only the gzip decoder returns `UnexpectedEof`, and an error that marks its input as invalid.
fn read_error(offset: u64, missing: u64, source: io::Error) -> ReadError {
    match source.kind() {
        ErrorKind::UnexpectedEof => ReadError::CutOff { offset, within: Part::Gzip, missing },
        ErrorKind::InvalidInput | ErrorKind::InvalidData => ReadError::Gzip { offset, source },
        _ => ReadError::Io { offset, source },
    }
}

fn missing_more(error: ReadError, more: u64) -> ReadError {
    match error {
        ReadError::CutOff { offset, within, missing } => ReadError::CutOff { offset, within, missing: missing + more },
        error => error,
    }
}

/// The capacity of a pipe.
const BUFFER_LEN: usize = 65_536;
