//! Writes pcap (`draft-ietf-opsawg-pcap`).

use std::io::{self, Write};

use super::held::FRAME_LEN_MAX;
use super::pcap::{MAGIC_NANOSECONDS, VERSION_MAJOR, VERSION_MINOR};
use crate::{Frame, LinkType};

/// Writes frames to a pcap file, with nanoseconds, in little endian.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    link: LinkType,
    snap_len: usize,
}

/// A frame cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// All frames of a file must have the same link type.
    #[error("a frame of link type {} in a file of link type {}", .frame.0, .file.0)]
    LinkType { frame: LinkType, file: LinkType },
    /// The format has 32 bits for seconds.
    #[error("a frame was captured {seconds} s after 1970, where pcap has 32 bits for seconds")]
    Time {
        /// The time of capture, in seconds since the Unix epoch.
        seconds: u64,
    },
    #[error("cannot write: {0}")]
    Io(#[from] io::Error),
}

impl<W: Write> Writer<W> {
    /// Begins a file of frames of this link type. It keeps `snap_len` octets of each, at most [`FRAME_LEN_MAX`].
    ///
    /// Its writes are small, so `output` should have a buffer.
    pub fn new(mut output: W, link: LinkType, snap_len: usize) -> Result<Self, WriteError> {
        let snap_len = snap_len.clamp(1, FRAME_LEN_MAX);
        output.write_all(&MAGIC_NANOSECONDS.to_le_bytes())?;
        output.write_all(&VERSION_MAJOR.to_le_bytes())?;
        output.write_all(&VERSION_MINOR.to_le_bytes())?;
        output.write_all(&words([0, 0, snap_len as u32, link.0.into()]))?;
        Ok(Self { output, link, snap_len })
    }

    /// Appends a frame. After an error the file may be cut off.
    pub fn write(&mut self, frame: &Frame<'_>) -> Result<(), WriteError> {
        if frame.link != self.link {
            return Err(WriteError::LinkType { frame: frame.link, file: self.link });
        }
        let (seconds, nanoseconds) = (frame.time.0 / 1_000_000_000, frame.time.0 % 1_000_000_000);
        let seconds = u32::try_from(seconds).map_err(|_| WriteError::Time { seconds })?;
        let kept = &frame.data[..frame.data.len().min(self.snap_len)];
        self.output.write_all(&words([seconds, nanoseconds as u32, kept.len() as u32, frame.len]))?;
        self.output.write_all(kept)?;
        Ok(())
    }

    /// Returns the output, without flushing it.
    pub fn into_inner(self) -> W {
        self.output
    }
}

fn words(words: [u32; 4]) -> [u8; 16] {
    let mut octets = [0; 16];
    for (at, word) in octets.as_chunks_mut().0.iter_mut().zip(words) {
        *at = word.to_le_bytes();
    }
    octets
}
