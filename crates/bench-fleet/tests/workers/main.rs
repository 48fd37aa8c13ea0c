//! Loads that several workers generate together, over mutual TLS on loopback, against a server that counts.

#![allow(clippy::unwrap_used)]

mod flows;
mod log;
mod refusals;
mod runs;
mod server;
mod support;
mod take;
