//! TLS record protection after the handshake, with exportable connection state.

mod secrets;

pub use secrets::{CipherSuite, Direction, DirectionSecret, Secrets, Side, Version};
