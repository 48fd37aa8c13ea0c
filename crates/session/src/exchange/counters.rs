//! Counters of the exchange.

/// Counts since the start, for metrics. The first four count each key of a search once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExchangeCounters {
    /// Sessions found at this node.
    pub found_here: u64,
    /// Sessions found at another node.
    pub pulled: u64,
    /// Sessions that none of the nodes that were asked had.
    pub unknown: u64,
    /// Sessions that were not found although a node did not respond, or because no node was asked.
    pub unreachable: u64,
    /// Puts that ended although no owner had acknowledged one of their sessions.
    pub puts_not_acknowledged: u64,
    /// Puts that did not wait, because [`PENDING_MAX`](super::PENDING_MAX) others did.
    pub puts_over_limit: u64,
    /// Gets that asked no other node, because [`PENDING_MAX`](super::PENDING_MAX) others waited.
    pub gets_over_limit: u64,
}
