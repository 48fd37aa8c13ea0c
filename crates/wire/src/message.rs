//! The messages of the mesh between nodes about connections, sessions, purges and service addresses, by sender and
//! receiver.
//!
//! Offsets are byte counts of the connection's two streams, as the dispatcher relays them: *rx* from the client, *tx*
//! to the client. D is the dispatcher, A the source and B the target of a move. See docs/internals/handoff.md for moves.
//!
//! The files of this folder use none of each other.

mod agent_to_agent;
mod agent_to_dispatcher;
mod dispatcher_to_agent;
mod dispatcher_to_dispatcher;
mod takeover;

pub use agent_to_agent::{
    AgentToAgent, AnchoredContent, AnchoredEnd, AnchoredId, AnchoredMessage, AnchoredState, EpochSecret, KeptSession,
    OrderedPurge, Prepare, PrepareRefusal, PrepareRest, Prepared, PurgeNumber, PurgeScope, PurgesMessage, ResponsePart,
    ResponseRest, Rest, SessionFound, SessionGet, SessionMessage, SessionPut, SessionSpend, SessionSpent,
    SessionStored, Ship, ShipInResponse, TicketSeed,
};
pub use agent_to_dispatcher::{
    AgentToDispatcher, Cancel, Established, Final, Held, LegDetached, LegKey, Propose, Refused, Stays,
};
pub use dispatcher_to_agent::{Aborted, Decided, DetachLeg, DispatcherToAgent, Freeze, Leave, LegKept};
pub use dispatcher_to_dispatcher::{
    DispatcherToDispatcher, StatePart, SteeringAdvert, SteeringState, TakeComing, TakeReady, TakeRefused, TakeWanted,
};
pub use takeover::{
    Advert, LeaseGranted, LeaseNumber, LeaseRefused, LeaseReturned, LeaseWanted, Predecessor, SwitchWanted,
    TakeoverMessage, Yielded,
};

/// A message. Each role handles those that are for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    AgentToDispatcher(AgentToDispatcher),
    DispatcherToAgent(DispatcherToAgent),
    AgentToAgent(AgentToAgent),
    DispatcherToDispatcher(DispatcherToDispatcher),
    Takeover(TakeoverMessage),
}

impl From<AgentToDispatcher> for Message {
    fn from(message: AgentToDispatcher) -> Self {
        Self::AgentToDispatcher(message)
    }
}

impl From<DispatcherToAgent> for Message {
    fn from(message: DispatcherToAgent) -> Self {
        Self::DispatcherToAgent(message)
    }
}

impl From<AgentToAgent> for Message {
    fn from(message: AgentToAgent) -> Self {
        Self::AgentToAgent(message)
    }
}

impl From<SessionMessage> for Message {
    fn from(message: SessionMessage) -> Self {
        Self::AgentToAgent(AgentToAgent::Session(message))
    }
}

impl From<DispatcherToDispatcher> for Message {
    fn from(message: DispatcherToDispatcher) -> Self {
        Self::DispatcherToDispatcher(message)
    }
}

impl From<TakeoverMessage> for Message {
    fn from(message: TakeoverMessage) -> Self {
        Self::Takeover(message)
    }
}
