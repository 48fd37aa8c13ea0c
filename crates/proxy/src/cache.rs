//! The response cache: answers requests from stored responses, and stores those of origins.
//!
//! * `stage` has the steps of a request: `asking` asks origins, `filling` makes entries of their responses, `answering`
//!   makes the responses to clients.
//! * `questions` collapses requests for the same key into one.
//! * `fill` is content on its way, `parts` requests what is missing of stored content, `body` reads both.
//! * `upstream` asks origins, and before them the agents that own keys (`owners`).
//! * `handing_on` sends entries to other agents before the agent ends.
//! * `response_cache` is what all requests share.
//!
//! [`watari_cache`] has the rules, [`watari_cache_store`] the store.

pub(crate) mod answering;
mod asking;
mod body;
mod fill;
mod filling;
mod handing_on;
pub(crate) mod handle;
pub(crate) mod metrics;
pub(crate) mod owners;
mod parts;
mod questions;
pub(crate) mod response_cache;
pub(crate) mod stage;
pub(crate) mod upstream;
