//! HTTP/2 (RFC 9113) from the client's side.
//!
//! ```text
//!   Sender, Sender, ..      one for each stream of a connection that may be in use at once
//!        |                      takes the connection, sends its request on a stream of its own, reads the response
//!        v
//!   Shared                  the connection of the moment; opened by whoever comes first, replaced when it ends
//!        |
//!        v
//!   Connection <- drive()   h2, driven by a task of its own
//!        |
//!        v
//!   Wire -> Ledger          the bytes that pass; what their frames say about streams, and when
//! ```
//!
//! A connection is replaced when it ends, when it has carried as many requests as it is to, when a request goes elsewhere or comes
//! from another address, and when a request timed out during which nothing at all came over it. Requests on the old one go on; it is
//! closed behind the last.
//!
//! What the server has certainly not processed (RFC 9113, section 8.7: `REFUSED_STREAM`, and streams above the last one that GOAWAY
//! names) is sent once more. A connection that is lost is something else: every request on it counts as RESET.

mod connection;
mod fault;
mod frames;
mod ledger;
mod sender;
mod shared;
mod wire;

pub(crate) use sender::Sender;
