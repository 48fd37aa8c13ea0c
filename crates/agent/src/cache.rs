//! The response cache of the cluster: purges that agents exchange, and requests to the agents that own keys.
//!
//! Imports from `settings` and `node`.

pub(crate) mod owners;
pub(crate) mod purges;
pub(crate) mod serving;
