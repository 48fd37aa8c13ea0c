//! Decides whether a request may proceed, and when: trusted proxies, access lists, authorities, the limits of clients,
//! the queue of a pool. Request guards hold its slots until it has ended. Opens no connection.
//!
//! Imports from `transport` (requests, tunnels), `observe` and `exchange`.

pub(crate) mod access;
pub(crate) mod auth;
pub(crate) mod clients;
pub(crate) mod forwarded;
pub(crate) mod queue;
pub(crate) mod request_guards;
