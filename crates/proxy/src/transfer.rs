//! Transfers: responses that can continue at another origin of their pool while the client reads them.
//!
//! Imports from `pool`, `transport` (requests to repeat), `observe` and `exchange`.

mod body;
mod comparison;
pub(crate) mod forward;
pub(crate) mod resources;
pub(crate) mod running;
pub(crate) mod transfers;
