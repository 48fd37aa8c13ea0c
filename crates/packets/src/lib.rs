//! Converts captured frames into TCP segments.
//!
//! * [`Decoder`] parses a [`Frame`] of any of the usual link layers and tunnels. It returns a [`Segment`] or a reason.
//! * [`Reassembly`] puts together the headers of segments that are split over IP fragments.
//! * [`capture_file`] reads frames from files, and writes them.
//! * [`build`] makes frames from segments, for tests and synthetic captures.
//!
//! Nothing here opens a file or a socket. All input is parsed as hostile.

pub mod build;
pub mod capture_file;
mod checksum;
mod decode;
mod frame;
mod segment;

pub use decode::{Decoded, Decoder, GENEVE_PORT, Other, Reassembly, TUNNELS_MAX};
pub use frame::{Frame, LinkType, UnknownLinkType};
pub use segment::{Flags, Segment, Timestamp};
