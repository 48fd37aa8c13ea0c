//! What is counted.

/// What an [`Exchange`](super::Exchange) has done so far, for metrics. The first four count keys that were sought, each
/// once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExchangeCounters {
    /// Sessions found at this node.
    pub found_here: u64,
    /// Sessions found at another node.
    pub pulled: u64,
    /// Sessions that nobody knew who was asked.
    pub unknown: u64,
    /// Sessions not found, and not all who were asked have answered.
    pub unreachable: u64,
    /// Messages sent.
    pub messages_sent: u64,
    /// Bytes of their frames.
    pub bytes_sent: u64,
    /// Puts whose client was told though a session of it was acknowledged by no owner.
    pub puts_not_acknowledged: u64,
    /// Puts that waited for nobody because [`PENDING_MAX`](super::PENDING_MAX) others did.
    pub puts_over_limit: u64,
    /// Gets that asked nobody because [`PENDING_MAX`](super::PENDING_MAX) others did.
    pub gets_over_limit: u64,
}
