//! What every exchange of a request and its response has: a client, an origin's address, fields, limits, and the reason
//! if it fails. Holds no socket and no state.
//!
//! Imports from no other folder.

pub(crate) mod address;
pub(crate) mod client;
pub(crate) mod error;
pub(crate) mod failure;
pub(crate) mod fields;
pub(crate) mod limits;
