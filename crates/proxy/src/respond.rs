//! Responses to clients: those to failed requests, error pages, compression.
//!
//! Imports from `transfer` and `transport` (which responses must stay as they are) and `exchange`.

pub(crate) mod compress;
pub(crate) mod error_pages;
mod failures;
pub(crate) mod shape;
