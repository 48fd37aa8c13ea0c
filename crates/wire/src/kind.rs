//! Message kinds: their numbers in frames and their names in metrics.

use crate::Message;

/// The kind of the [`Message`] in a frame. A number is never used again with another meaning. The numbers 0 to 15
/// belong to [`LinkMessage`](crate::LinkMessage).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum MessageKind {
    /// [`Message::LegKey`].
    LegKey = 16,
    /// [`Message::Established`].
    Established = 17,
    /// [`Message::Propose`].
    Propose = 18,
    /// [`Message::Freeze`].
    Freeze = 19,
    /// [`Message::Ship`].
    Ship = 20,
    /// [`Message::Rest`].
    Rest = 21,
    /// [`Message::Held`].
    Held = 22,
    /// [`Message::Refused`].
    Refused = 23,
    /// [`Message::Cancel`].
    Cancel = 24,
    /// [`Message::Committed`].
    Committed = 25,
    /// [`Message::Aborted`].
    Aborted = 26,
    /// [`Message::Gone`].
    Gone = 27,
    /// [`Message::Final`].
    Final = 28,
    /// [`Message::Leave`].
    Leave = 29,
    /// [`Message::Stays`].
    Stays = 30,
    /// [`Message::Draining`].
    Draining = 31,
    /// [`Message::LegKept`].
    LegKept = 32,
    /// [`Message::TicketSeeds`].
    TicketSeeds = 33,
    /// [`Message::TicketSeedWanted`].
    TicketSeedWanted = 34,
    /// [`Message::SessionPut`].
    SessionPut = 35,
    /// [`Message::SessionStored`].
    SessionStored = 36,
    /// [`Message::SessionGet`].
    SessionGet = 37,
    /// [`Message::SessionFound`].
    SessionFound = 38,
    /// [`Message::SessionSpend`].
    SessionSpend = 39,
    /// [`Message::SessionSpent`].
    SessionSpent = 40,
    /// [`Message::Tunnel`].
    Tunnel = 41,
}

impl MessageKind {
    /// All kinds, by number.
    pub const ALL: [Self; 26] = [
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
        }
    }
}

impl Message {
    /// The kind of this message.
    pub fn kind(&self) -> MessageKind {
        match self {
            Self::LegKey(_) => MessageKind::LegKey,
            Self::Established(_) => MessageKind::Established,
            Self::Propose(_) => MessageKind::Propose,
            Self::Freeze(_) => MessageKind::Freeze,
            Self::Ship(_) => MessageKind::Ship,
            Self::Rest(_) => MessageKind::Rest,
            Self::Held(_) => MessageKind::Held,
            Self::Refused(_) => MessageKind::Refused,
            Self::Cancel(_) => MessageKind::Cancel,
            Self::Committed(_) => MessageKind::Committed,
            Self::Aborted(_) => MessageKind::Aborted,
            Self::Gone(_) => MessageKind::Gone,
            Self::Final(_) => MessageKind::Final,
            Self::Leave(_) => MessageKind::Leave,
            Self::Stays(_) => MessageKind::Stays,
            Self::Draining => MessageKind::Draining,
            Self::LegKept(_) => MessageKind::LegKept,
            Self::TicketSeeds(_) => MessageKind::TicketSeeds,
            Self::TicketSeedWanted(_) => MessageKind::TicketSeedWanted,
            Self::SessionPut(_) => MessageKind::SessionPut,
            Self::SessionStored(_) => MessageKind::SessionStored,
            Self::SessionGet(_) => MessageKind::SessionGet,
            Self::SessionFound(_) => MessageKind::SessionFound,
            Self::SessionSpend(_) => MessageKind::SessionSpend,
            Self::SessionSpent(_) => MessageKind::SessionSpent,
            Self::Tunnel(_) => MessageKind::Tunnel,
        }
    }
}
