//! Balancing policies.
