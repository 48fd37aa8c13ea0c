//! HTTP/2 (RFC 9113) from the client's side.
//!
//! ```text
//!   Sender, Sender, ..      one for each stream of a connection that may be in use at once
//!        |                      takes the connection, sends its request on a stream of its own, reads the response
//!        v
//!   SharedConnection                  the current connection; the first sender opens it, and it is replaced when it ends
//!        |
//!        v
//!   Connection <- drive()   h2, driven by a task of its own
//!        |
//!        v
//!   Wire -> Ledger          the bytes on the socket; their frames show the state and times of streams
//! ```
//!
//! Senders replace a connection in these cases:
//!
//! * it ends;
//! * it has carried the configured number of requests;
//! * the next request goes to another site or comes from another address;
//! * a request timed out, and no byte arrived over the connection since it began.
//!
//! Requests on the old connection continue. It is closed after the last of them.
//!
//! A request that the server has certainly not processed is sent once more (RFC 9113, section 8.7: `REFUSED_STREAM`,
//! and streams above the last one that GOAWAY names). If a connection is lost, every request on it counts as RESET.
//!
//! Imports: `connect`, `exchange`, `keep`, `stream` and `tls` for connections; `plan`, `request`, `run` and `sample`
//! for requests.

mod connection;
mod fault;
mod frames;
mod ledger;
mod sender;
mod shared;
mod wire;

pub(crate) use sender::Sender;
