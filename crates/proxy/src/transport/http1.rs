//! HTTP/1.1 connections to origins. The future of a request owns the connection, and reads and writes it without
//! another task. The state of the connection is a [`watari_http1::Client`].
//!
//! ```text
//!   Http1 --Exchange::new--> Exchange --response: head--> Exchange --frame: content--> Http1, if both sides are done
//!     ^                         |                            |                           |
//!     |                         |                            '--101--> Switched          |
//!     |                         '--nothing was written--> the request, for another connection
//!     '------------------------------ Connections (no buffer, no task) <-----------------'
//! ```
//!
//! * A request of which no byte was written is returned, and another connection or origin may get it.
//! * A connection is used again if request and response are complete and no byte follows the response.
//! * An idle connection is checked when it is taken: bytes or an end that arrived since disqualify it.

mod connection;
mod exchange;
mod sending;
#[cfg(test)]
mod tests;

pub(crate) use connection::{ByteStream, Http1, Switched};
pub(crate) use exchange::Exchange;
