//! Broken variants.

/// A rule that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// The gate stays open when the lease ends, as without a time limit in the kernel.
    GateStaysOpen,
    /// A voter that starts again grants leases at once.
    VoterForgets,
    /// Voters count the lease for half as long as owners.
    VoterCountsShorter,
    /// An owner's clock runs at two thirds of the others' rate.
    SlowClock,
    /// An owner reports that the address is removed before its gate is closed.
    RemovedTooEarly,
    /// Voters end a lease that was renewed after the request that is given back.
    ReturnEndsLaterLeases,
    /// One candidate has other voters.
    OtherVoters,
}

impl Sabotage {
    pub(crate) const ALL: [Self; 7] = [
        Self::GateStaysOpen,
        Self::VoterForgets,
        Self::VoterCountsShorter,
        Self::SlowClock,
        Self::RemovedTooEarly,
        Self::ReturnEndsLaterLeases,
        Self::OtherVoters,
    ];
}
