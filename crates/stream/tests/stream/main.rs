//! The stream against peers: rustls, and a client that builds its records itself.

#![allow(clippy::unwrap_used)]

mod raw_client;
mod rustls_client;
mod support;
