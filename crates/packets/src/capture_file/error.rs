//! What can be wrong with a capture file.

use std::fmt;
use std::io;

use super::FRAME_LEN_MAX;
use crate::UnknownLinkType;

/// A capture file cannot be read, or not further. Offsets are in bytes of the file, once it is unpacked.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file ends too early. All frames before are whole; whoever wrote it was interrupted, or is not done.
    #[error("the file ends at byte {offset}, {missing} bytes before the end of {within}")]
    CutOff {
        /// How long the file is.
        offset: u64,
        /// What is not whole.
        within: Part,
        /// How much of it is missing, at least.
        missing: u64,
    },
    /// The file is of another kind.
    #[error("the file begins with {magic:02x?}, which is neither pcap nor pcapng, nor gzip of one of them")]
    Magic {
        /// Its first bytes.
        magic: [u8; 4],
    },
    /// A version of the format that nobody writes any more, or yet.
    #[error("version {major}.{minor} at byte {offset}, where {expected} was expected")]
    Version {
        /// Where it says so.
        offset: u64,
        /// The version.
        major: u16,
        /// And what follows its point.
        minor: u16,
        /// What is read.
        expected: &'static str,
    },
    /// All frames of the file are of a kind that is not read.
    #[error("at byte {offset}: {source}")]
    LinkType {
        /// Where it says so.
        offset: u64,
        /// Which kind.
        source: UnknownLinkType,
    },
    /// A frame is longer than any capture has them: what precedes it is damaged.
    #[error("a frame of {len} captured bytes at byte {offset}, where {FRAME_LEN_MAX} at most were expected")]
    FrameTooLong {
        /// Where its header begins.
        offset: u64,
        /// What the header says.
        len: u32,
    },
    /// The section does not say in which byte order it is.
    #[error("{magic:02x?} at byte {offset}, where the byte-order magic 1a2b3c4d was expected")]
    ByteOrder {
        /// Where it should.
        offset: u64,
        /// What is there.
        magic: [u8; 4],
    },
    /// A block cannot be of this length: not a multiple of 4, or too short for its kind.
    #[error("a block of {len} bytes at byte {offset}, where {expected} were expected")]
    BlockLen {
        /// Where it begins.
        offset: u64,
        /// What it says.
        len: u32,
        /// What it should.
        expected: BlockLen,
    },
    /// A block's end says another length than its beginning.
    #[error("a block ends with the length {trailing} at byte {offset}, where {len} was expected, as at its beginning")]
    TrailingLen {
        /// Where it ends.
        offset: u64,
        /// The length at its end.
        trailing: u32,
        /// The length at its beginning.
        len: u32,
    },
    /// A frame of an interface that has not been described.
    #[error("a frame of interface {interface} at byte {offset}, where one of {count} was expected")]
    Interface {
        /// Where its block begins.
        offset: u64,
        /// The interface's number, from 0.
        interface: u32,
        /// How many the section has so far.
        count: usize,
    },
    /// A section describes more interfaces than any machine has.
    #[error("more than {limit} interfaces at byte {offset}")]
    Interfaces {
        /// Where the block begins that is one too many.
        offset: u64,
        /// How many are allowed.
        limit: usize,
    },
    /// An interface counts time in units that are too small for any clock.
    #[error("a time resolution of {resolution:#04x} at byte {offset}, where 10^-19 or 2^-63 at least was expected")]
    Resolution {
        /// Where it says so.
        offset: u64,
        /// What it says: a negative power of 10, or of 2 if its highest bit is set.
        resolution: u8,
    },
    /// What is packed cannot be unpacked.
    #[error("behind byte {offset} of what is unpacked: {source}, where gzip was expected")]
    Gzip {
        /// How much could be unpacked.
        offset: u64,
        /// What is wrong.
        source: io::Error,
    },
    /// Reading fails.
    #[error("cannot be read behind byte {offset}: {source}")]
    Io {
        /// How much could be read.
        offset: u64,
        /// Why.
        source: io::Error,
    },
}

/// What a file is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The first four bytes of a file.
    Magic,
    /// The header of a pcap file.
    FileHeader,
    /// What stands before each frame in a pcap file.
    RecordHeader,
    /// A frame.
    Frame,
    /// Type and length of a pcapng block.
    BlockHeader,
    /// A pcapng block.
    Block,
    /// What gzip packs, which may be several files in one.
    Gzip,
}

/// How long a block should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockLen {
    /// A multiple of 4 bytes, and as long as its own head and end.
    Block,
    /// So many bytes or more, for what it says it has.
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
            Self::Gzip => "what is packed",
        })
    }
}

impl fmt::Display for BlockLen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block => f.write_str("12 or more, in fours,"),
            Self::AtLeast(len) => write!(f, "{len} or more"),
        }
    }
}
