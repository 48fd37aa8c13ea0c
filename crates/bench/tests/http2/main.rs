//! HTTP/2, against servers that do what a test says.
#![allow(clippy::unwrap_used)]

mod connections;
mod flow;
mod requests;
mod run;
mod server;
mod users;
