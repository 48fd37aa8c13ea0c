//! Heads of messages: where they end, what they say about content and connection, and their conversion to the types of
//! the `http` crate.
//!
//! ```text
//!   input ---- HeadEnd: is it complete? ---- httparse, once ---- Facts, in one pass over the fields
//!                                                |
//!                      RequestHead, ResponseHead: borrowed, nothing is copied
//!                                                |
//!                http::request::Parts, http::response::Parts: the head is copied once, values are slices of the copy
//! ```

pub(crate) mod end;
pub(crate) mod facts;
mod host;
mod parts;
pub(crate) mod request;
pub(crate) mod response;

use std::mem::MaybeUninit;

pub use end::HeadEnd;
/// A field of a head: its name, and its value without surrounding whitespace.
pub use httparse::Header as Field;
pub use request::RequestHead;
pub use response::ResponseHead;

/// The fields for which there is room without an allocation.
pub const FIELDS_ON_STACK: usize = 100;

/// Room for the fields of a head. It is not initialized, because that would cost as much as parsing.
pub type FieldRoom<'a> = [MaybeUninit<Field<'a>>; FIELDS_ON_STACK];

/// Room for the fields of a head.
pub fn field_room<'a>() -> FieldRoom<'a> {
    [const { MaybeUninit::uninit() }; FIELDS_ON_STACK]
}
