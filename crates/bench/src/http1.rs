//! HTTP/1.1 (RFC 9112) from the client's side: reading responses, which is pure, and connections that carry them.

mod chunked;
mod connection;
mod response;
mod sender;

use connection::Connection;
pub use response::{Fed, Keep, ProtocolFault, ResponseReader};
pub(crate) use sender::Sender;
