//! Errors of capture files.

use std::fmt;
use std::io;

use super::held::FRAME_LEN_MAX;
use crate::UnknownLinkType;

/// A capture file cannot be read, or not further. Offsets are in bytes of the unpacked file.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file ends too early. All frames before are whole. Its writer was interrupted, or still runs.
    #[error("the file ends at byte {offset}, {missing} bytes before the end of {within}")]
    CutOff {
        /// The length of the file.
        offset: u64,
        /// The incomplete part.
        within: Part,
        /// The least number of missing bytes.
        missing: u64,
    },
    /// The file has another format.
    #[error("the file begins with {magic:02x?}, which is neither pcap nor pcapng, nor gzip of one of them")]
    Magic {
        /// The first bytes of the file.
        magic: [u8; 4],
    },
    /// An unsupported version of the format.
    #[error("version {major}.{minor} at byte {offset}, where {expected} was expected")]
    Version {
        /// Offset of the version.
        offset: u64,
        major: u16,
        minor: u16,
        /// The supported versions.
        expected: &'static str,
    },
    /// All frames of the file have an unsupported link type.
    #[error("at byte {offset}: {source}")]
    LinkType {
        /// Offset of the link type.
        offset: u64,
        source: UnknownLinkType,
    },
    /// A frame is longer than any capture allows, so the data before it are damaged.
    #[error("a frame of {len} captured bytes at byte {offset}, where at most {FRAME_LEN_MAX} were expected")]
    FrameTooLong {
        /// Offset of its header.
        offset: u64,
        /// The length in the header, in bytes.
        len: u32,
    },
    /// The section has no valid byte-order magic.
    #[error("{magic:02x?} at byte {offset}, where the byte-order magic 1a2b3c4d was expected")]
    ByteOrder {
        /// Offset of the byte-order magic.
        offset: u64,
        /// The bytes in its place.
        magic: [u8; 4],
    },
    /// A block has an invalid length: not a multiple of 4, or too short for its type.
    #[error("a block of {len} bytes at byte {offset}, where {expected} were expected")]
    BlockLen {
        /// Offset of the block.
        offset: u64,
        /// The length in the block, in bytes.
        len: u32,
        expected: BlockLen,
    },
    /// The two lengths of a block differ.
    #[error("a block ends with the length {trailing} at byte {offset}, where {len} was expected, as at its beginning")]
    TrailingLen {
        /// Offset of its end.
        offset: u64,
        /// The length at its end.
        trailing: u32,
        /// The length at its beginning.
        len: u32,
    },
    /// A frame of an interface without a description.
    #[error("a frame at byte {offset} has interface {interface} (from 0), but its section describes only {count}")]
    Interface {
        /// Offset of its block.
        offset: u64,
        /// The interface's number, from 0.
        interface: u32,
        /// The number of interfaces described so far in the section.
        count: usize,
    },
    /// A section describes more interfaces than any host has.
    #[error("more than {limit} interfaces at byte {offset}")]
    Interfaces {
        /// Offset of the first block beyond the limit.
        offset: u64,
        limit: usize,
    },
    /// An interface counts time in units that are too small for 64 bits.
    #[error("a time resolution of {resolution:#04x} at byte {offset}, where at least 10^-19 or 2^-63 was expected")]
    Resolution {
        /// Offset of the resolution.
        offset: u64,
        /// The value: a negative power of 10, or of 2 if its highest bit is set.
        resolution: u8,
    },
    /// The gzip data are invalid.
    #[error("invalid gzip data behind byte {offset} of the unpacked data: {source}")]
    Gzip {
        /// How many bytes were unpacked.
        offset: u64,
        source: io::Error,
    },
    /// Reading fails.
    #[error("cannot read behind byte {offset}: {source}")]
    Io {
        /// How many bytes were read.
        offset: u64,
        source: io::Error,
    },
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The first four bytes of a file.
    Magic,
    /// The header of a pcap file.
    FileHeader,
    /// The header of a frame in a pcap file.
    RecordHeader,
    Frame,
    /// Type and length of a pcapng block.
    BlockHeader,
    Block,
    /// A gzip file, which may have several members.
    Gzip,
}

/// A valid length of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockLen {
    /// A multiple of 4 bytes, and as long as its own head and end.
    Block,
    /// At least this many bytes, for its contents.
    AtLeast(u64),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Magic => "its magic number",
            Self::FileHeader => "its header",
            Self::RecordHeader => "a frame's header",
            Self::Frame => "a frame",
            Self::BlockHeader => "a block's header",
            Self::Block => "a block",
            Self::Gzip => "the gzip data",
        })
    }
}

impl fmt::Display for BlockLen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block => f.write_str("12 or more, in multiples of 4,"),
            Self::AtLeast(len) => write!(f, "{len} or more"),
        }
    }
}
