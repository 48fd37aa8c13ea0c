//! What each part of the agent has of its node: messages to its peers, metrics, and counts of slots.

pub(crate) mod date;
pub(crate) mod metrics;
pub(crate) mod other_process;
pub(crate) mod peers;
pub(crate) mod slots;
