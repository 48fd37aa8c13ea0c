//! HTTP/1.1 (RFC 9112) on the client's side: a pure reader of responses, and connections that use it.

mod chunked;
mod connection;
mod response;
mod sender;

use connection::Connection;
pub use response::{Fed, Keep, ProtocolFault, ResponseReader};
pub(crate) use sender::Sender;
