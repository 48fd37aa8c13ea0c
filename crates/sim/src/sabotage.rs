//! Broken variants of the rules, which the simulation has to find.

/// A rule that a part of the cluster breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// The dispatcher commits although the target has not reported that it holds the connection.
    CommitWithoutHeld,
    /// The source serves on although the dispatcher has committed.
    SourceThawsAfterCommit,
    /// The source serves on if the decision takes long.
    SourceThawsByTimeout,
    /// The source takes the abort of an earlier attempt for one of the present attempt.
    SourceIgnoresEpochs,
    /// The target loses the rest that follows a freeze.
    RestLost,
    /// The target does not send the tail.
    TailNotSent,
    /// The target sends again what the source has sent while the target prepared.
    NothingSkipped,
    /// The target takes the preparation for an earlier response, and does not check that the lengths fit.
    OldPreparationTaken,
    /// The target seals before the decision.
    TargetSealsWhenHeld,
    /// The dispatcher ends the stream to the client cleanly when the owner's leg ends.
    LegEndIsCleanEnd,
    /// The dispatcher reads the source's bytes only as fast as the client takes them.
    MoveWaitsForClient,
    /// The dispatcher drops at a commit what waits for the client.
    UndeliveredDropped,
    /// The dispatcher drops at a commit what waits for the owner.
    ClientBytesDropped,
    /// A new process of the dispatcher does not get what waits for the client.
    UpgradeLosesBytes,
    /// The proxy continues a response at an origin with another validator.
    ValidatorNotCompared,
    /// The proxy takes the whole resource for the range that it has requested.
    WholeAppended,
    /// The proxy gives the client the bytes that the other origin repeats.
    OverlapNotSkipped,
    /// The proxy takes a response that its origin has cut for a complete one.
    CutIsEnd,
    /// The target prepares the rest of a response from another version of the resource.
    PreparationNotCompared,
    /// The owner of an anchored stream takes its failure for its end.
    AnchoredFailureIsEnd,
    /// The bytes for the client that follow those of the anchor do not move with the connection.
    AnchoredPendingLost,
    /// The client's bytes that the stream has not taken do not move with the connection.
    AnchoredUnwrittenLost,
    /// The new owner of an anchored stream begins at its start.
    AnchoredOffsetLost,
    /// The agent with the connection to the origin closes it when the client's connection has left.
    AnchorLeaves,
    /// A former owner answers the anchor by a reset, before the new one has attached.
    MovedOwnerResets,
    /// The agent loses what came together with the end of the handshake.
    FirstRequestLost,
    /// The agent seals data with the nonces of the tickets.
    TicketNoncesReused,
    /// The agent ends a handshake if it does not find the session that the client offers.
    MissFails,
    /// Agents give each other no ticket keys.
    SeedsNotShared,
    /// A new session stays at its agent.
    SessionNotSent,
    /// An agent takes another session for the one that the client offers.
    OtherSessionFound,
}

impl Sabotage {
    pub const ALL: [Self; 31] = [
        Self::CommitWithoutHeld,
        Self::SourceThawsAfterCommit,
        Self::SourceThawsByTimeout,
        Self::SourceIgnoresEpochs,
        Self::RestLost,
        Self::TailNotSent,
        Self::NothingSkipped,
        Self::OldPreparationTaken,
        Self::TargetSealsWhenHeld,
        Self::LegEndIsCleanEnd,
        Self::MoveWaitsForClient,
        Self::UndeliveredDropped,
        Self::ClientBytesDropped,
        Self::UpgradeLosesBytes,
        Self::ValidatorNotCompared,
        Self::WholeAppended,
        Self::OverlapNotSkipped,
        Self::CutIsEnd,
        Self::PreparationNotCompared,
        Self::AnchoredFailureIsEnd,
        Self::AnchoredPendingLost,
        Self::AnchoredUnwrittenLost,
        Self::AnchoredOffsetLost,
        Self::AnchorLeaves,
        Self::MovedOwnerResets,
        Self::FirstRequestLost,
        Self::TicketNoncesReused,
        Self::MissFails,
        Self::SeedsNotShared,
        Self::SessionNotSent,
        Self::OtherSessionFound,
    ];
}
