//! Events and actions of an arbiter.

use serde::{Deserialize, Serialize};
use watari_values::{AbortReason, Epoch, NodeName};

/// A source's proposal, or a target's report of a held connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Offer {
    pub target: NodeName,
    /// The epoch of the attempt.
    pub epoch: Epoch,
    /// The end of the client's stream as read by the source (proposal) or held by the target (report).
    pub rx_offset: u64,
    /// The offset at which the target continues the stream to the client.
    pub tail_offset: u64,
    /// SHA-256 of the shipped state.
    pub digest: [u8; 32],
}

/// Events of a connection at its dispatcher. `from` is the authenticated sender.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ArbiterEvent {
    /// An agent proposes to give the connection away.
    Proposed {
        from: NodeName,
        /// The attempt's target, epoch and offsets.
        offer: Offer,
    },
    /// An agent holds the connection. The sender is `offer.target`.
    Held(Offer),
    /// An agent refuses the connection, or no longer holds it.
    Refused {
        from: NodeName,
        epoch: Epoch,
        /// Passed on to the source with the abort.
        reason: AbortReason,
    },
    /// The source cannot ship the required bytes.
    Cancelled {
        from: NodeName,
        epoch: Epoch,
        /// Passed on to the target with the abort.
        reason: AbortReason,
    },
    /// The owner announces the end of the stream to the client.
    Final {
        from: NodeName,
        /// The tenure of the sender.
        epoch: Epoch,
        /// The length of the stream, in bytes.
        tx_offset: u64,
    },
    /// A leg to the target is connected.
    LegReady(Epoch),
    /// No leg to the target can be connected, or it has ended.
    LegFailed(Epoch),
    /// Bytes of the client's stream that were written to the owner's leg since the last event.
    RelayedRx(u64),
    /// Bytes of the stream to the client that were read from the owner's leg since the last event.
    RelayedTx(u64),
    /// The owner's leg ended. Events of a leg that a commit has closed are not passed on.
    LegEnded {
        /// `true`: a reset or an error, so bytes may be missing. `false`: a FIN.
        reset: bool,
    },
    /// The client reset its connection, or the dispatcher ended it at a limit.
    ClientGone,
    /// A timer fired.
    Timeout(ArbiterTimer),
}

/// The timers of an arbiter; see [`Arbiter::timer`](super::Arbiter::timer).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ArbiterTimer {
    /// From the proposal to the decision.
    Move,
    /// From the end of the owner's leg to its `Final`.
    Final,
}

/// Actions of the dispatcher, to carry out in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ArbiterAction {
    /// Connect a leg to `target`, and write nothing on it. Answer with `LegReady` or `LegFailed`.
    PrepareLeg {
        /// The agent that is to get the connection.
        target: NodeName,
        epoch: Epoch,
    },
    /// Send the source an order to read and ship the client's stream up to `rx_offset`.
    Freeze {
        source: NodeName,
        epoch: Epoch,
        /// The cut, an offset in the client's stream.
        rx_offset: u64,
    },
    /// The decision to commit: write the preface on the prepared leg, relay through it from now on, send the source
    /// `Committed`, and close its leg.
    Commit {
        /// The previous owner.
        source: NodeName,
        /// The new owner.
        target: NodeName,
        epoch: Epoch,
        /// The offset of the first byte of the client's stream on the target's leg.
        rx_offset: u64,
        /// The offset of the first byte that the target sends to the client.
        tail_offset: u64,
    },
    /// The decision to abort: notify source and target, close the prepared leg, read the client again.
    Abort {
        /// The owner, which thaws.
        source: NodeName,
        /// The agent that drops the held connection.
        target: NodeName,
        epoch: Epoch,
        reason: AbortReason,
    },
    /// Send `to` again that `epoch` was aborted.
    SendAborted {
        /// The agent whose late message shows that it has not received the decision.
        to: NodeName,
        epoch: Epoch,
        reason: AbortReason,
    },
    /// Send `to` again that `epoch` was committed, and that it is not the owner any more.
    SendCommitted {
        /// A previous owner that has not received the decision.
        to: NodeName,
        epoch: Epoch,
    },
    /// Send `to` that the connection is over.
    SendGone {
        /// An agent that waits for a decision.
        to: NodeName,
    },
    /// The stream to the client is complete: write the rest of it, then FIN.
    FinishClient,
    /// The connection cannot continue: reset the client and all legs.
    Reset(ResetCause),
}

/// The reason that a dispatcher resets a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResetCause {
    /// The client reset the connection, or the dispatcher ended it at a limit.
    ClientGone,
    /// The owner's leg ended before the owner announced that its stream was complete.
    OwnerLost,
    /// The owner sent more bytes than it had announced.
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
