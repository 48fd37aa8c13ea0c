//! Message kinds: their numbers in frames and their names in metrics.

use crate::message::{
    AgentToAgent, AgentToDispatcher, DispatcherToAgent, DispatcherToDispatcher, Message, SessionMessage,
    TakeoverMessage,
};

/// The kind of the [`Message`] in a frame. A number is never used again with another meaning. The numbers 0 to 15
/// belong to [`LinkMessage`](crate::LinkMessage).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum MessageKind {
    /// [`AgentToDispatcher::LegKey`].
    LegKey = 16,
    /// [`AgentToDispatcher::Established`].
    Established = 17,
    /// [`AgentToDispatcher::Propose`].
    Propose = 18,
    /// [`DispatcherToAgent::Freeze`].
    Freeze = 19,
    /// [`AgentToAgent::Ship`].
    Ship = 20,
    /// [`AgentToAgent::Rest`].
    Rest = 21,
    /// [`AgentToDispatcher::Held`].
    Held = 22,
    /// [`AgentToDispatcher::Refused`].
    Refused = 23,
    /// [`AgentToDispatcher::Cancel`].
    Cancel = 24,
    /// [`DispatcherToAgent::Committed`].
    Committed = 25,
    /// [`DispatcherToAgent::Aborted`].
    Aborted = 26,
    /// [`DispatcherToAgent::Gone`].
    Gone = 27,
    /// [`AgentToDispatcher::Final`].
    Final = 28,
    /// [`DispatcherToAgent::Leave`].
    Leave = 29,
    /// [`AgentToDispatcher::Stays`].
    Stays = 30,
    /// [`AgentToDispatcher::Draining`].
    Draining = 31,
    /// [`DispatcherToAgent::LegKept`].
    LegKept = 32,
    /// [`AgentToAgent::TicketSeeds`].
    TicketSeeds = 33,
    /// [`AgentToAgent::TicketSeedWanted`].
    TicketSeedWanted = 34,
    /// [`SessionMessage::Put`].
    SessionPut = 35,
    /// [`SessionMessage::Stored`].
    SessionStored = 36,
    /// [`SessionMessage::Get`].
    SessionGet = 37,
    /// [`SessionMessage::Found`].
    SessionFound = 38,
    /// [`SessionMessage::Spend`].
    SessionSpend = 39,
    /// [`SessionMessage::Spent`].
    SessionSpent = 40,
    /// [`AgentToDispatcher::Tunnel`].
    Tunnel = 41,
    /// [`AgentToAgent::Prepare`].
    Prepare = 42,
    /// [`AgentToAgent::Prepared`].
    Prepared = 43,
    /// [`AgentToAgent::ShipInResponse`].
    ShipInResponse = 44,
    /// [`AgentToAgent::Anchored`].
    Anchored = 45,
    /// [`TakeoverMessage::LeaseWanted`].
    LeaseWanted = 46,
    /// [`TakeoverMessage::LeaseReturned`].
    LeaseReturned = 47,
    /// [`TakeoverMessage::LeaseGranted`].
    LeaseGranted = 48,
    /// [`TakeoverMessage::LeaseRefused`].
    LeaseRefused = 49,
    /// [`TakeoverMessage::Advert`].
    Advert = 50,
    /// [`TakeoverMessage::SwitchWanted`].
    SwitchWanted = 51,
    /// [`TakeoverMessage::Yielded`].
    Yielded = 52,
    /// [`DispatcherToAgent::DetachLeg`].
    DetachLeg = 53,
    /// [`AgentToDispatcher::LegDetached`].
    LegDetached = 54,
    /// [`DispatcherToAgent::AttachLeg`].
    AttachLeg = 55,
    /// [`DispatcherToDispatcher::TakeWanted`].
    TakeWanted = 56,
    /// [`DispatcherToDispatcher::TakeReady`].
    TakeReady = 57,
    /// [`DispatcherToDispatcher::StatePart`].
    StatePart = 58,
    /// [`DispatcherToDispatcher::TakeHeld`].
    TakeHeld = 59,
    /// [`DispatcherToDispatcher::TakeRefused`].
    TakeRefused = 60,
    /// [`DispatcherToDispatcher::Given`].
    Given = 61,
    /// [`DispatcherToDispatcher::Taken`].
    Taken = 62,
    /// [`DispatcherToDispatcher::TakeComing`].
    TakeComing = 63,
    /// [`DispatcherToDispatcher::Steering`].
    Steering = 64,
    /// [`AgentToDispatcher::LegAttached`].
    LegAttached = 65,
    /// [`AgentToAgent::Purges`].
    Purges = 66,
}

impl MessageKind {
    /// All kinds, by number.
    pub const ALL: [Self; 51] = [
        Self::LegKey,
        Self::Established,
        Self::Propose,
        Self::Freeze,
        Self::Ship,
        Self::Rest,
        Self::Held,
        Self::Refused,
        Self::Cancel,
        Self::Committed,
        Self::Aborted,
        Self::Gone,
        Self::Final,
        Self::Leave,
        Self::Stays,
        Self::Draining,
        Self::LegKept,
        Self::TicketSeeds,
        Self::TicketSeedWanted,
        Self::SessionPut,
        Self::SessionStored,
        Self::SessionGet,
        Self::SessionFound,
        Self::SessionSpend,
        Self::SessionSpent,
        Self::Tunnel,
        Self::Prepare,
        Self::Prepared,
        Self::ShipInResponse,
        Self::Anchored,
        Self::LeaseWanted,
        Self::LeaseReturned,
        Self::LeaseGranted,
        Self::LeaseRefused,
        Self::Advert,
        Self::SwitchWanted,
        Self::Yielded,
        Self::DetachLeg,
        Self::LegDetached,
        Self::AttachLeg,
        Self::TakeWanted,
        Self::TakeReady,
        Self::StatePart,
        Self::TakeHeld,
        Self::TakeRefused,
        Self::Given,
        Self::Taken,
        Self::TakeComing,
        Self::Steering,
        Self::LegAttached,
        Self::Purges,
    ];

    /// The kind with this number. `None`: this build has none.
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// The kind as a metric label and log field.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LegKey => "leg_key",
            Self::Established => "established",
            Self::Propose => "propose",
            Self::Freeze => "freeze",
            Self::Ship => "ship",
            Self::Rest => "rest",
            Self::Held => "held",
            Self::Refused => "refused",
            Self::Cancel => "cancel",
            Self::Committed => "committed",
            Self::Aborted => "aborted",
            Self::Gone => "gone",
            Self::Final => "final",
            Self::Leave => "leave",
            Self::Stays => "stays",
            Self::Draining => "draining",
            Self::LegKept => "leg_kept",
            Self::TicketSeeds => "ticket_seeds",
            Self::TicketSeedWanted => "ticket_seed_wanted",
            Self::SessionPut => "session_put",
            Self::SessionStored => "session_stored",
            Self::SessionGet => "session_get",
            Self::SessionFound => "session_found",
            Self::SessionSpend => "session_spend",
            Self::SessionSpent => "session_spent",
            Self::Tunnel => "tunnel",
            Self::Prepare => "prepare",
            Self::Prepared => "prepared",
            Self::ShipInResponse => "ship_in_response",
            Self::Anchored => "anchored",
            Self::LeaseWanted => "lease_wanted",
            Self::LeaseReturned => "lease_returned",
            Self::LeaseGranted => "lease_granted",
            Self::LeaseRefused => "lease_refused",
            Self::Advert => "advert",
            Self::SwitchWanted => "switch_wanted",
            Self::Yielded => "yielded",
            Self::DetachLeg => "detach_leg",
            Self::LegDetached => "leg_detached",
            Self::AttachLeg => "attach_leg",
            Self::TakeWanted => "take_wanted",
            Self::TakeReady => "take_ready",
            Self::StatePart => "state_part",
            Self::TakeHeld => "take_held",
            Self::TakeRefused => "take_refused",
            Self::Given => "given",
            Self::Taken => "taken",
            Self::TakeComing => "take_coming",
            Self::Steering => "steering",
            Self::LegAttached => "leg_attached",
            Self::Purges => "purges",
        }
    }
}

impl Message {
    /// The kind of this message.
    pub fn kind(&self) -> MessageKind {
        match self {
            Self::AgentToDispatcher(message) => message.kind(),
            Self::DispatcherToAgent(message) => message.kind(),
            Self::AgentToAgent(message) => message.kind(),
            Self::DispatcherToDispatcher(message) => message.kind(),
            Self::Takeover(message) => message.kind(),
        }
    }
}

impl AgentToDispatcher {
    fn kind(&self) -> MessageKind {
        match self {
            Self::LegKey(_) => MessageKind::LegKey,
            Self::Established(_) => MessageKind::Established,
            Self::Propose(_) => MessageKind::Propose,
            Self::Held(_) => MessageKind::Held,
            Self::Refused(_) => MessageKind::Refused,
            Self::Cancel(_) => MessageKind::Cancel,
            Self::Final(_) => MessageKind::Final,
            Self::Stays(_) => MessageKind::Stays,
            Self::Tunnel(_) => MessageKind::Tunnel,
            Self::Draining => MessageKind::Draining,
            Self::LegDetached(_) => MessageKind::LegDetached,
            Self::LegAttached(_) => MessageKind::LegAttached,
        }
    }
}

impl DispatcherToAgent {
    fn kind(&self) -> MessageKind {
        match self {
            Self::Freeze(_) => MessageKind::Freeze,
            Self::Committed(_) => MessageKind::Committed,
            Self::LegKept(_) => MessageKind::LegKept,
            Self::Aborted(_) => MessageKind::Aborted,
            Self::Gone(_) => MessageKind::Gone,
            Self::DetachLeg(_) => MessageKind::DetachLeg,
            Self::AttachLeg(_) => MessageKind::AttachLeg,
            Self::Leave(_) => MessageKind::Leave,
        }
    }
}

impl AgentToAgent {
    fn kind(&self) -> MessageKind {
        match self {
            Self::Ship(_) => MessageKind::Ship,
            Self::Prepare(_) => MessageKind::Prepare,
            Self::Prepared(_) => MessageKind::Prepared,
            Self::ShipInResponse(_) => MessageKind::ShipInResponse,
            Self::Anchored(_) => MessageKind::Anchored,
            Self::Rest(_) => MessageKind::Rest,
            Self::TicketSeeds(_) => MessageKind::TicketSeeds,
            Self::TicketSeedWanted(_) => MessageKind::TicketSeedWanted,
            Self::Session(message) => message.kind(),
            Self::Purges(_) => MessageKind::Purges,
        }
    }
}

impl SessionMessage {
    fn kind(&self) -> MessageKind {
        match self {
            Self::Put(_) => MessageKind::SessionPut,
            Self::Stored(_) => MessageKind::SessionStored,
            Self::Get(_) => MessageKind::SessionGet,
            Self::Found(_) => MessageKind::SessionFound,
            Self::Spend(_) => MessageKind::SessionSpend,
            Self::Spent(_) => MessageKind::SessionSpent,
        }
    }
}

impl DispatcherToDispatcher {
    fn kind(&self) -> MessageKind {
        match self {
            Self::TakeWanted(_) => MessageKind::TakeWanted,
            Self::TakeReady(_) => MessageKind::TakeReady,
            Self::StatePart(_) => MessageKind::StatePart,
            Self::TakeHeld(_) => MessageKind::TakeHeld,
            Self::TakeRefused(_) => MessageKind::TakeRefused,
            Self::Given(_) => MessageKind::Given,
            Self::Taken(_) => MessageKind::Taken,
            Self::TakeComing(_) => MessageKind::TakeComing,
            Self::Steering(_) => MessageKind::Steering,
        }
    }
}

impl TakeoverMessage {
    fn kind(&self) -> MessageKind {
        match self {
            Self::LeaseWanted(_) => MessageKind::LeaseWanted,
            Self::LeaseReturned(_) => MessageKind::LeaseReturned,
            Self::LeaseGranted(_) => MessageKind::LeaseGranted,
            Self::LeaseRefused(_) => MessageKind::LeaseRefused,
            Self::Advert(_) => MessageKind::Advert,
            Self::SwitchWanted(_) => MessageKind::SwitchWanted,
            Self::Yielded(_) => MessageKind::Yielded,
        }
    }
}
