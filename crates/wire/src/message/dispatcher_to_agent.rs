//! What dispatchers send to agents.

use serde::{Deserialize, Serialize};
use watari_values::{AbortReason, ConnectionId, DispatcherChange, Epoch, NodeName};

/// A message of a dispatcher to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DispatcherToAgent {
    /// D to the owner: the connection is to leave.
    Leave(Leave),
    /// D to A: D has relayed the client's stream up to `rx_offset` and relays no more. A ships the missing bytes.
    Freeze(Freeze),
    /// D to A: B owns the connection. A destroys its copy. (B is notified by the preface of its leg.)
    Committed(Decided),
    /// D to A: D keeps the leg for another connection. After a move: B owns the connection, and A destroys its copy.
    /// After the end that A has announced by `Final`: D has read the whole stream.
    LegKept(LegKept),
    /// D to A and B: the attempt is aborted. A thaws, and B drops the held connection.
    Aborted(Aborted),
    /// D to A or B: D has no such connection, or no longer. The receiver destroys its copy.
    Gone(ConnectionId),
    /// D1 to the owner: another dispatcher, D2, is to go on with the connection. The owner writes no more on its leg, and
    /// answers by [`LegDetached`](crate::LegDetached). The leg of D2 follows (`Kind::Continue` in its preface).
    DetachLeg(DetachLeg),
    /// D1 to the owner: D1 goes on with the connection, on the leg that it had before this change. D1 repeats it until
    /// the owner answers by [`LegAttached`](crate::AgentToDispatcher::LegAttached).
    AttachLeg(DispatcherChange),
}

/// See [`DispatcherToAgent::DetachLeg`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetachLeg {
    pub change: DispatcherChange,
    /// D2.
    pub to: NodeName,
}

/// See [`DispatcherToAgent::Freeze`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freeze {
    pub connection: ConnectionId,
    pub epoch: Epoch,
    /// The end of the client's stream that D has relayed to A. D relays no more.
    pub rx_offset: u64,
}

/// See [`DispatcherToAgent::Committed`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    pub connection: ConnectionId,
    pub epoch: Epoch,
}

/// See [`DispatcherToAgent::LegKept`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegKept {
    pub connection: ConnectionId,
    /// The epoch of the move. At the end of a connection: the tenure of its owner.
    pub epoch: Epoch,
    /// The end of the client's stream that D has written on the leg. After a move, A keeps the leg only if it has read
    /// exactly up to here. After an end, A reads and drops the rest up to here.
    pub rx_offset: u64,
}

/// See [`DispatcherToAgent::Aborted`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aborted {
    pub connection: ConnectionId,
    pub epoch: Epoch,
    pub reason: AbortReason,
}

/// See [`DispatcherToAgent::Leave`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leave {
    pub connection: ConnectionId,
    /// The agent to move to. `None`: there is none.
    pub target: Option<NodeName>,
    /// Whether the connection is to end, once responses in progress are complete, if it cannot move.
    pub or_end: bool,
}
