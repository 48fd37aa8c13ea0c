//! Files of captured frames: pcap and pcapng, with or without gzip.
//!
//! * [`Reader`] reads one file from any `Read`: a file, standard input, a socket. It returns a frame as soon as all of
//!   it has arrived, so it follows a capture that is still being written.
//! * [`Merged`] reads several files as one.
//! * [`Writer`] writes pcap, with nanoseconds.
//!
//! ```text
//!   Read -> source: unpacks gzip -> input: a buffer that grows up to one frame
//!                                     |
//!                   pcap, pcapng: position, time and link type of the next frame
//!                                     |
//!                                   Frame, borrowed from the buffer
//! ```
//!
//! Sources: the drafts of the IETF's opsawg, `draft-ietf-opsawg-pcap` and `draft-ietf-opsawg-pcapng`. The code cites
//! their sections. The parsers are our own, although two crates read these formats. `pcap-parser` collects the options
//! of each packet in a vector, needs each block as a whole in its buffer, also a long one that is skipped, and its
//! errors have no offsets. `pcap-file` needs whole blocks, too, in 8 MB for each file, and its released version is from
//! 2022. This crate needs only the headers of frames: fixed, small and few.
//!
//! [`FRAME_LEN_MAX`] and the interfaces of a section bound memory for any file.

mod error;
mod held;
mod input;
mod merged;
mod order;
mod pcap;
mod pcapng;
mod source;
mod strays;
mod writer;

use std::io::Read;

pub use error::{BlockLen, Part, ReadError};
pub use held::FRAME_LEN_MAX;
pub use merged::{FileError, Merged};
pub use writer::{WriteError, Writer};

use crate::{Frame, Timestamp};
use held::Held;
use input::Input;
use source::Source;

/// Reads the frames of a capture file.
#[derive(Debug)]
pub struct Reader<R> {
    input: Input<Source<R>>,
    format: Format,
    held: Option<Held>,
    has_ended: bool,
}

#[derive(Debug)]
enum Format {
    Pcap(pcap::File),
    Pcapng(pcapng::File),
}

impl<R: Read> Reader<R> {
    /// Reads the file header.
    pub fn new(file: R) -> Result<Self, ReadError> {
        let mut input = Input::new(Source::new(file)?);
        let magic = input.peek(Part::Magic)?;
        let format = match pcap::Variant::of(magic) {
            Some(variant) => Format::Pcap(pcap::File::open(variant, &mut input)?),
            None if pcapng::is_section_header(magic) => Format::Pcapng(pcapng::File::default()),
            None => return Err(ReadError::Magic { magic }),
        };
        Ok(Self { input, format, held: None, has_ended: false })
    }

    /// The next frame, or `None` at the end of the file and after an error.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, ReadError> {
        self.advance()?;
        Ok(self.frame())
    }

    /// Goes to the next frame, and returns its time; `None` if there is none.
    fn advance(&mut self) -> Result<Option<Timestamp>, ReadError> {
        let last = self.held.take();
        if self.has_ended {
            return Ok(None);
        }
        self.input.consume(last.map_or(0, |held| held.captured));
        let read = match &mut self.format {
            Format::Pcap(file) => file.next(&mut self.input),
            Format::Pcapng(file) => file.next(&mut self.input),
        };
        self.has_ended = !matches!(read, Ok(Some(_)));
        self.held = read?;
        Ok(self.held.map(|held| held.time))
    }

    /// The current frame.
    fn frame(&self) -> Option<Frame<'_>> {
        let Held { time, link, len, captured } = self.held?;
        Some(Frame { time, link, len, data: self.input.buffered(captured) })
    }
}

#[cfg(test)]
mod tests;
