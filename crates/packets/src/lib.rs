//! Captured frames become TCP segments.

mod segment;

pub use segment::{Flags, Segment, Timestamp};
