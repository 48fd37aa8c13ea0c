//! HTTP/2 (RFC 9113).
//!
//! * [`server::Server`]: the server's side of a connection, as bytes in and bytes out.
//! * [`Metered`]: limits on the frames of a server, for a client that uses the h2 crate. h2 bounds the memory that a
//!   peer can use. It accepts any number of `WINDOW_UPDATE`, PRIORITY, PING, SETTINGS, `RST_STREAM` and unknown frames: a
//!   peer that sends nothing else costs a core.
//!
//! Both count the frames of the peer in a `Budget` (RFC 9113, section 10.5).

mod budget;
mod code;
mod frames;
mod hpack;
mod metered;
pub mod server;

pub use budget::Flood;
pub use code::Code;
pub use metered::Metered;
