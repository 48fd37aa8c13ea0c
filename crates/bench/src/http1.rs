//! HTTP/1.1 (RFC 9112) from the client's side: reading responses, which is pure, and connections that carry them.

mod chunked;
mod connection;
mod response;

pub(crate) use connection::{Broken, Connection, Response};
pub use response::{Fed, Keep, ProtocolFault, ResponseReader};
