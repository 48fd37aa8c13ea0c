//! Legs: their prefaces, the keys that authenticate these, the threads that serve them, and what a leg carries next.

pub(crate) mod accepting;
pub(crate) mod leg_keys;
pub(crate) mod legs;
pub(crate) mod serving_threads;
