//! Which pool gets a request, how its head changes, and which origin it prefers. Pure: decides by the head of the
//! request and the configuration alone.
//!
//! Imports from `admit` (access lists) and `exchange`.

pub(crate) mod cache;
pub(crate) mod path;
pub(crate) mod policy;
pub(crate) mod redirect;
pub(crate) mod routes;
pub(crate) mod rules;
pub(crate) mod sticky;
pub(crate) mod template;
