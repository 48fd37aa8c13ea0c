//! HTTP/2, against servers that a test scripts.
#![allow(clippy::unwrap_used)]

mod connections;
mod flow;
mod requests;
mod run;
mod server;
mod users;
