//! rustls clients, and faulty ones, against [`watari_handshake::Handshake`], in memory.
#![allow(clippy::unwrap_used)]

mod client_certificates;
mod early_data;
mod established;
mod fragments;
mod names;
mod pki;
mod policy;
mod records;
mod refused;
mod resumed;
mod support;
