//! Captured frames become TCP segments.
//!
//! * [`Decoder`] reads a [`Frame`] of any of the usual link layers and tunnels: it has a [`Segment`], or there is a
//!   reason why not.
//! * [`Reassembly`] puts together the headers of segments that are split over IP fragments.
//! * [`capture_file`] reads frames from files, and writes them.
//! * [`build`] makes frames of segments, for tests and synthetic captures.
//!
//! Nothing here opens a file or a socket. Everything is parsed as hostile input.

pub mod build;
pub mod capture_file;
mod checksum;
mod decode;
mod frame;
mod segment;

pub use decode::{Decoded, Decoder, GENEVE_PORT, Other, Reassembly, TUNNELS_MAX};
pub use frame::{Frame, LinkType, UnknownLinkType};
pub use segment::{Flags, Segment, Timestamp};
