//! HTTP/1.1 and HTTP/1.0 as bytes in and bytes out (RFC 9112). Nothing here opens a socket, reads a clock, or stores a
//! byte of a message: the caller owns the buffers, and the state of a connection is a small value.
//!
//! ```text
//!   input --> Server::parse_request --> http::request::Parts      http::response::Parts --> Server::start_response --> out
//!         --> Server::decode        --> ranges of the input                     lengths --> Server::encode, finish --> framing
//!
//!   input --> Client::parse_response, decode                                Client::start_request, encode, finish --> out
//! ```
//!
//! * [`Server`] and [`Client`]: a connection's state, with a receiving and a sending half.
//! * [`RequestHead`] and [`ResponseHead`]: heads that borrow the input, for callers that need no `HeaderMap`.
//! * [`Decoder`] and [`Encoder`]: the framing of content.
//!
//! A caller gives each function the bytes that it has not consumed yet, in order. A function that needs more input
//! consumes nothing, or says how much it consumed, and gets the rest again with more bytes behind it.

mod client;
mod content;
mod fault;
mod head;
mod limits;
mod server;
mod state;
mod write;

pub use client::{Client, Response};
pub use content::{Content, ContentSize, Decoded, Decoder, Encoder, Framed};
pub use fault::{ContentFault, ImportError, Misuse, RequestFault, ResponseFault, Truncated};
pub use head::{FIELDS_ON_STACK, Field, FieldRoom, HeadEnd, RequestHead, ResponseHead, field_room};
pub use limits::Limits;
pub use server::{Next, Refused, Request, Server};
pub use state::STATE_LEN;
