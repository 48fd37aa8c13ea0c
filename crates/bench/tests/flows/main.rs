//! Flows and users, against a server that knows what it was asked.
#![allow(clippy::unwrap_used)]

mod flows;
mod server;
mod users;
