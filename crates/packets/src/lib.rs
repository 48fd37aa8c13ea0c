//! Captured frames become TCP segments.
//!
//! * [`Decoder`] reads a [`Frame`] of any of the usual link layers and tunnels: it has a [`Segment`], or there is a
//!   reason why not.
//!
//! Nothing here opens a file or a socket. Everything is parsed as hostile input.

pub mod build;
mod checksum;
mod decode;
mod frame;
mod segment;

pub use decode::{Decoded, Decoder, Other, TUNNELS_MAX};
pub use frame::{Frame, LinkType, UnknownLinkType};
pub use segment::{Flags, Segment, Timestamp};
