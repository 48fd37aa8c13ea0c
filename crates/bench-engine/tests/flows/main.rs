//! Flows and users, against a server that records its requests.
#![allow(clippy::unwrap_used)]

mod flows;
mod server;
mod users;
