//! The stream against peers: rustls, and one that handles its records by hand.

#![allow(clippy::unwrap_used)]

mod raw_client;
mod rustls_client;
mod support;
