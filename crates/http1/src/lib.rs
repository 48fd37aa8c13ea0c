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
//!
//! # Driving a connection
//!
//! A server: [`Server::parse_request`], [`Server::decode`] until the end, meanwhile [`Server::start_response`],
//! [`Server::encode`] for each piece and [`Server::finish`], then [`Server::next_exchange`]. Head, framing and data of
//! a response can be one vectored write. A client: the same with [`Client::start_request`] first.
//!
//! [`Server::export`] and [`Client::export`] give the state at any time as [`STATE_LEN`] bytes. The connection
//! continues elsewhere with it and the input that was not consumed.
//!
//! # Strictness
//!
//! What is refused, in comparison with hyper 1.12. `tests/differential.rs` and two fuzz targets compare both. They
//! allow only these differences.
//!
//! | hyper | here |
//! | --- | --- |
//! | accepts any `Host` fields, and none | one, without user information (RFC 9112, section 3.2); HTTP/1.0 may have none |
//! | accepts methods that end at a proxy | CONNECT, TRACE and PRI are refused: any bytes may follow a CONNECT |
//! | accepts any scheme | only `http` and `https` |
//! | accepts any form of a target, and removes fragments | path, absolute form, and `*` with OPTIONS (section 3.2) |
//! | ignores a length after a coding | refused if it is malformed; closes after both (section 6.1), as hyper does |
//! | accepts codings before `chunked`, and empty elements | `chunked` alone: the content would be ambiguous |
//! | skips any number of empty lines before a request | at most 8 (section 2.2) |
//! | accepts control characters in chunk extensions | refused (section 7.1.1) |
//! | accepts any number of leading zeros in chunk sizes | at most 16 digits |
//! | accepts a bare LF between trailers | refused, as in all lines of the chunked coding |
//! | refuses a length near 2^64 ahead of a coding | the coding overrides it, and the connection closes (section 6.1) |
//! | ignores a `Connection` field with bytes outside ASCII | its other options count |
//! | ignores CR and LF in any order before the end of the stream | two CR begin no empty line (section 2.2) |
//! | takes a lone CR before the end of the stream for a message | it is no request |
//! | reads other codings until the end | refused in responses: only `chunked` was accepted (section 6.1) |
//! | prefers the coding to a length in responses | refused: it allows response splitting (section 6.3) |
//! | checks a length or coding of a response only if it frames content | checked with HEAD, 1xx, 204 and 304, too |
//! | skips empty lines before a response | refused: only requests may follow them |
//! | reads any number of informational responses | at most 16 |
//! | leaves the check of a 101 to its caller | refused if no upgrade was requested |
//! | answers 400 to an unknown version | 505 |
//!
//! The same as in hyper: malformed or contradictory lengths are refused, and codings that do not end in `chunked`,
//! folded lines, spaces before a colon, NUL and bare CR. A line of a head may end with a bare LF (section 2.2). Several
//! equal `Content-Length` fields become one, and in responses also list elements (section 6.3).

mod client;
mod content;
mod fault;
mod head;
mod limits;
mod next;
mod server;
mod state;
mod write;

pub use client::{Client, Response};
pub use content::{Content, ContentSize, Decoded, Decoder, Encoder, Framed};
pub use fault::{ContentFault, ImportError, Misuse, RequestFault, ResponseFault, Truncated};
pub use head::{FIELDS_ON_STACK, Field, FieldRoom, HeadEnd, RequestHead, ResponseHead, field_room};
pub use limits::Limits;
pub use next::Next;
pub use server::{Refused, Request, Server};
pub use state::STATE_LEN;
