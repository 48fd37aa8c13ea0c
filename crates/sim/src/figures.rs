//! What a run contained.

/// Counts of a run: what it contained.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    pub moves: u64,
    /// Attempts that were aborted.
    pub aborted: u64,
    /// Connections shipped within a response.
    pub within_responses: u64,
    /// Connections shipped within a response of which the target skips a part.
    pub with_skip: u64,
    /// Connections shipped with a tail.
    pub with_tail: u64,
    /// Connections shipped with bytes of the client that were not opened.
    pub with_rest: u64,
    /// Freezes that were answered with more of the client's stream.
    pub frozen: u64,
    /// Moves committed while bytes waited for the client.
    pub undelivered: u64,
    /// Connections whose agents were asked to give all away.
    pub drained: u64,
    /// Connections that passed to a new process of the dispatcher.
    pub passed_on: u64,
    /// Legs that carried another connection before.
    pub legs_reused: u64,
    /// Connections that began again at another agent, because a reused leg was lost.
    pub begun_again: u64,
    /// Rests of responses that targets were asked to prepare, and that their sites have answered.
    pub prepared: u64,
    /// Responses that origins have cut.
    pub cut_by_origins: u64,
    /// Responses that were continued at another origin.
    pub handovers: u64,
    /// Origins that could not continue a response.
    pub handovers_refused: u64,
    /// Responses in chunks that were complete.
    pub chunked: u64,
    /// Requests that no origin has answered.
    pub unavailable: u64,
    /// Streams that agents began to anchor.
    pub anchored: u64,
    /// Owners that attached to a stream.
    pub attached: u64,
    /// Of these, owners that were the anchor.
    pub came_back: u64,
    /// Tunnels that were complete in both directions.
    pub tunnels: u64,
    /// Handshakes that were done.
    pub handshakes: u64,
    /// Clients that offered a session, and those that resumed it.
    pub offered: u64,
    pub resumed: u64,
    /// Seeds of ticket keys that agents made, and that they got from others.
    pub rotations: u64,
    pub seeds_learned: u64,
    pub records: u64,
    pub complete: u64,
    pub cut: u64,
    pub vanished: u64,
}
