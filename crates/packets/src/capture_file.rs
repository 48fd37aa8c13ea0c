//! Files of captured frames: pcap and pcapng, packed by gzip or not.
//!
//! * [`Reader`] reads one, from anything that can be read: a file, standard input, a socket. What can be read at once is
//!   returned at once, so a capture that is still being written is followed as fast as it comes.
//! * [`Merged`] reads several as if they were one.
//! * [`Writer`] writes pcap, with nanoseconds.
//!
//! ```text
//!   Read -> source: unpacked, if it is packed -> input: a buffer that grows up to one frame
//!                                                 |
//!                           pcap, pcapng: where the next frame is, of when, of what kind
//!                                                 |
//!                                               Frame, borrowed from the buffer
//! ```
//!
//! Sources: the drafts of the IETF's opsawg, `draft-ietf-opsawg-pcap` and `draft-ietf-opsawg-pcapng`, whose sections
//! are named beside the code. Written by hand, although two crates read these formats. `pcap-parser` collects the
//! options of each packet in a vector, needs each block as a whole in its buffer, however long blocks are that nobody
//! wants, and its errors do not say where. `pcap-file` needs whole blocks, too, in 8 MB for each file, and its released
//! version is from 2022. Of both formats only the headers of frames are of interest here: fixed, small and few.
//!
//! Memory is bounded by [`FRAME_LEN_MAX`], and by the interfaces of a section, whatever a file says.

mod error;
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
pub use merged::{FileError, Merged};
pub use writer::{WriteError, Writer};

use crate::{Frame, LinkType, Timestamp};
use input::Input;
use source::Source;

/// How many octets of a frame a capture may have: as many as libpcap and Wireshark allow.
pub const FRAME_LEN_MAX: usize = 262_144;

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

/// A frame whose octets are the next ones of the input.
#[derive(Debug, Clone, Copy)]
struct Held {
    time: Timestamp,
    link: LinkType,
    len: u32,
    captured: usize,
}

impl<R: Read> Reader<R> {
    /// Reads what stands before the first frame.
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

    /// The next frame, or `None` at the end of the file. Nothing comes after an error, either.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, ReadError> {
        self.advance()?;
        Ok(self.frame())
    }

    /// Goes to the next frame; returns its time, unless there is none.
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

    /// The frame to which the reader has come.
    fn frame(&self) -> Option<Frame<'_>> {
        let Held { time, link, len, captured } = self.held?;
        Some(Frame { time, link, len, data: self.input.buffered(captured) })
    }
}

#[cfg(test)]
mod tests;
