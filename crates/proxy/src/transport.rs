//! The way to an origin: connections and their reuse, TLS, the form of requests and their bodies, upgrades and tunnels.
//!
//! Imports from `exchange`.

pub(crate) mod connect;
pub(crate) mod connections;
pub(crate) mod content;
pub(crate) mod http1;
pub(crate) mod relay;
pub(crate) mod request;
pub(crate) mod tls;
pub(crate) mod tunnel;
pub(crate) mod upgrade;
pub(crate) mod upload;
