//! Conditional requests and ranges (RFC 9110, sections 13 and 14), for a representation with known validators.
//!
//! [`evaluate`] gives the result of the preconditions, [`selection`] the parts that a `Range` selects, and
//! [`Multipart`] the texts of a response with several parts. The owner of the representation (crates `files` and
//! `cache`) derives its [`Validators`]: from the length and the modification time of a file, or from the fields of a
//! stored response.

mod conditions;
mod multipart;
mod range;
mod validators;

pub use conditions::{Verdict, evaluate, range_applies};
pub use multipart::{ContentRange, Multipart, content_range, parse_content_range, unsatisfied_range};
pub use range::{Selection, select, selection};
pub use validators::{EntityTag, Validators, date};
