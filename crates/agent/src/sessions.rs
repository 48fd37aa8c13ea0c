//! Session resumption, and the sharing of sessions between agents.

mod agents;
mod clock;
pub(crate) mod database;
mod keys;
mod keys_file;
pub(crate) mod redis;
pub(crate) mod service;
pub(crate) mod sharing;
pub(crate) mod status;
pub(crate) mod stored;
pub(crate) mod tickets;
pub(crate) mod wire;
