//! Meshes on loopback, and peers that violate the rules.

#![allow(clippy::unwrap_used)]

mod admission;
mod hostile;
mod http;
mod links;
mod members;
mod peers;
mod support;
