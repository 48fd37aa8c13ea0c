//! HTTP/1.1 (RFC 9112) on the client's side: connections, and a reader of responses. `watari_http1` parses and writes.
//!
//! Imports: `connect`, `exchange`, `stream` and `tls` for connections; `request` and `run` for requests and their
//! samples.

mod connection;
mod fault;
mod response;
mod sender;

pub use fault::ProtocolFault;
pub use response::{Fed, LastHead, ResponseReader};
pub(crate) use sender::Sender;
