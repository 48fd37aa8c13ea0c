//! What a relay's driver reports, waits for, and does.

use std::time::Instant;

use watari_handoff::{ArbiterEvent, ResetCause};
use watari_values::{AbortReason, ConnectionId, Epoch, NodeName};
use watari_wire::leg::Kind;
use watari_wire::{DispatcherToAgent, LegKept};

/// The state of the dispatcher that decisions depend on.
pub trait DispatcherState {
    /// Whether a leg to `agent` may be kept for another connection.
    fn keeps_legs_to(&self, agent: &NodeName) -> bool;

    /// Whether an agent has announced that the handshake of the connection is done.
    fn is_established(&self, connection: ConnectionId) -> bool;
}

/// The circumstances of an input.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub now: Instant,
    pub dispatcher: &'a dyn DispatcherState,
}

/// What happened. Lengths are in bytes, and count only bytes of the two streams. Operations that would block are not
/// reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// One read from the client ([`ClientRead::Pass`]), and a write of it to the owner's leg.
    PassedUp {
        /// 0: the client has ended its stream.
        read: usize,
        written: usize,
    },
    /// One read from the client ([`ClientRead::Hold`]), all of which waits. 0: the client has ended its stream.
    HeldUp(usize),
    /// Bytes that were read from the client and dropped ([`ClientRead::Discard`]). 0: the client has ended its stream.
    Discarded(usize),
    /// A write of what waits to the owner's leg.
    WrittenToLeg {
        written: usize,
        /// Whether a part of the preface still waits.
        preface_left: bool,
    },
    /// One read from the owner's leg, and a write of it to the client ([`LegRead::Pass`]) or none ([`LegRead::Hold`]).
    PassedDown {
        /// 0: the leg has ended.
        read: usize,
        written: usize,
    },
    /// A write of what waits to the client.
    WrittenToClient(usize),
    /// The client has reset its connection.
    ClientReset,
    /// The owner's leg was reset, or no preface can be signed for it.
    LegReset,
    /// The leg to an attempt's target is connected, or cannot be connected.
    Connected { ok: bool },
    /// The target has ended its leg before the decision.
    PreparedEnded,
    /// The link to the agent that does the handshake is lost.
    OwnerLost,
    /// A message of an agent.
    Agent(Box<ArbiterEvent>),
    /// The result of [`Action::BeginAgain`]. `id` is the new id of the connection. The leg that was found is the
    /// owner's leg from now on.
    Found { id: ConnectionId, owner: NodeName, bulk: Option<NodeName> },
    /// There is no other agent.
    NotFound,
    /// The time of [`Relay::timeout`](crate::Relay::timeout).
    Deadline,
    /// The connection is to change its dispatcher. Repeated until the relay is quiet.
    ChangeDispatcher { to: NodeName },
    /// An agent writes no more on its leg.
    LegDetached { from: NodeName, number: u32, tx_offset: u64 },
    /// The connection does not change its dispatcher.
    ChangeFailed,
    /// An agent writes on its leg again.
    LegAttached { from: NodeName, number: u32 },
}

/// What a driver waits for. It also waits for the end of a prepared leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interest {
    pub client_read: Option<ClientRead>,
    pub client_write: bool,
    /// A reset is noticed also while the client is not read.
    pub client_reset: bool,
    pub leg_read: Option<LegRead>,
    pub leg_write: bool,
}

/// What a driver does with the client's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientRead {
    /// Read once, and write to the owner's leg what it takes at once.
    Pass,
    /// Read once, and write nothing: a preface has to come first.
    Hold,
    /// Read and drop.
    Discard,
}

/// What a driver does with the bytes of the owner's leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LegRead {
    /// Read once, and write to the client what it takes at once. Nothing else waits for the client.
    Pass,
    /// Read once, at most so many bytes, behind those that wait.
    Hold(usize),
}

/// What a driver has to do, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Put the signed preface in front of what waits for the owner's leg, in place of the rest of an earlier preface.
    /// Then write.
    OpenLeg { kind: Kind, epoch: Epoch },
    /// Drop the copy of what was read from the client. Before this action, the driver keeps one if the first leg has
    /// carried another connection.
    DropCopy,
    /// Find another agent, because the first was lost. What was copied, and nothing else, waits for its leg. The result
    /// is [`Input::Found`] or [`Input::NotFound`].
    BeginAgain,
    /// Connect a leg to the target of an attempt, and write nothing on it.
    PrepareLeg { target: NodeName },
    /// The move is committed. Make the prepared leg the owner's leg, and open it with `preface`. Then give up the
    /// previous leg: keep it if `kept` is given, and otherwise send the source `Committed`.
    Commit { source: NodeName, target: NodeName, epoch: Epoch, preface: Kind, kept: Option<LegKept> },
    /// The move is aborted. Close the prepared leg, and send the agents `Aborted`.
    Abort { source: NodeName, target: NodeName, epoch: Epoch, reason: AbortReason },
    /// Send a message.
    Send { to: NodeName, message: DispatcherToAgent },
    /// Send a message that no agent waits for.
    SendSoon { to: NodeName, message: DispatcherToAgent },
    /// Keep the owner's leg for another connection.
    KeepLeg { agent: NodeName, kept: LegKept },
    /// Send a FIN on the owner's leg.
    ShutDownLeg,
    /// Send the client a FIN, after everything that was written.
    FinishClient,
    /// The connection has reached a time limit. A reset follows.
    LimitReached(&'static str),
    /// Reset the client and all legs.
    Reset(ResetCause),
}
