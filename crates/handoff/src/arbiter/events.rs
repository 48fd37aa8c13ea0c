//! What an arbiter is told, and what it asks for.

use watari_wire::{AbortReason, Epoch, NodeName};

/// What a source proposes, and what a target says it holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Offer {
    /// The target.
    pub target: NodeName,
    /// The attempt.
    pub epoch: Epoch,
    /// How far the client's stream is read by the source (proposed) or held by the target (held).
    pub rx_offset: u64,
    /// Where the target continues the stream to the client.
    pub tail_offset: u64,
    /// Of the shipped state.
    pub digest: [u8; 32],
}

/// What happens to a connection at its dispatcher. `from` is the authenticated sender.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ArbiterEvent {
    /// An agent proposes to hand the connection over.
    Proposed {
        /// Sender.
        from: NodeName,
        /// What it proposes.
        offer: Offer,
    },
    /// An agent (`offer.target`, the sender) holds the connection.
    Held(Offer),
    /// An agent refuses the connection, or holds it no more.
    Refused {
        /// Sender.
        from: NodeName,
        /// The attempt.
        epoch: Epoch,
        /// Why.
        reason: AbortReason,
    },
    /// The source cannot ship what was asked for.
    Cancelled {
        /// Sender.
        from: NodeName,
        /// The attempt.
        epoch: Epoch,
        /// Why.
        reason: AbortReason,
    },
    /// The owner announces the end of the stream to the client.
    Final {
        /// Sender.
        from: NodeName,
        /// The epoch that made it the owner.
        epoch: Epoch,
        /// The length of the stream.
        tx_offset: u64,
    },
    /// A leg to the target is there.
    LegReady(Epoch),
    /// No leg to the target can be had.
    LegFailed(Epoch),
    /// So many bytes of the client's stream went to the owner's leg.
    RelayedRx(u64),
    /// So many bytes of the stream to the client came from the owner's leg.
    RelayedTx(u64),
    /// The owner's leg ended. What a leg says after the commit that closed it is not passed on.
    LegEnded {
        /// By a reset or an error, so that bytes may be missing; else by FIN.
        reset: bool,
    },
    /// The client reset its connection, or the dispatcher gives it up (limits).
    ClientGone,
    /// A timer ran out.
    Timeout(ArbiterTimer),
}

/// The timers the arbiter may ask for; see [`Arbiter::timer`](super::Arbiter::timer).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArbiterTimer {
    /// From the proposal to the decision.
    Move,
    /// From the end of the owner's leg to its `Final`.
    Final,
}

/// What the dispatcher must do, in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ArbiterAction {
    /// Get a leg to `target` ready; write nothing on it. Answer with `LegReady` or `LegFailed`.
    PrepareLeg {
        /// The target.
        target: NodeName,
        /// The attempt.
        epoch: Epoch,
    },
    /// Tell the source to read and ship the client's stream up to `rx_offset`.
    Freeze {
        /// The source.
        source: NodeName,
        /// The attempt.
        epoch: Epoch,
        /// Where the client's stream is cut.
        rx_offset: u64,
    },
    /// The decision: write the preface on the prepared leg, relay through it from now on, tell the source `Committed`
    /// and close its leg.
    Commit {
        /// The source.
        source: NodeName,
        /// The target.
        target: NodeName,
        /// The attempt.
        epoch: Epoch,
        /// The first byte of the client's stream that the target's leg will carry.
        rx_offset: u64,
        /// The first byte the target sends to the client.
        tail_offset: u64,
    },
    /// The other decision: tell both, close the prepared leg, read the client again.
    Abort {
        /// The source.
        source: NodeName,
        /// The target.
        target: NodeName,
        /// The attempt.
        epoch: Epoch,
        /// Why.
        reason: AbortReason,
    },
    /// Tell `to` (again) that `epoch` was aborted.
    TellAborted {
        /// Who asked.
        to: NodeName,
        /// The attempt.
        epoch: Epoch,
        /// Why.
        reason: AbortReason,
    },
    /// Tell `to` (again) that `epoch` was committed, and that it is not the owner any more.
    TellCommitted {
        /// Who asked.
        to: NodeName,
        /// The attempt.
        epoch: Epoch,
    },
    /// Tell `to` that the connection is over.
    TellGone {
        /// Who waits for a decision.
        to: NodeName,
    },
    /// The stream to the client is complete: pass on what is left of it, then FIN.
    FinishClient,
    /// The connection cannot go on: reset the client and all legs.
    Reset(ResetCause),
}

/// Why a dispatcher resets a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResetCause {
    /// The client did it first, or the dispatcher gave it up.
    ClientGone,
    /// The owner's leg ended without its stream having been announced complete.
    OwnerLost,
    /// The owner sent other bytes than it announced.
    OwnerMisbehaved,
}

impl ResetCause {
    /// The cause as a metric label and log field.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClientGone => "client_gone",
            Self::OwnerLost => "owner_lost",
            Self::OwnerMisbehaved => "owner_misbehaved",
        }
    }
}
