//! How a request, or a connection, ended.

use std::fmt;

/// What happened, how far things had come, and who brought it about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ending {
    /// What happened.
    pub kind: EndingKind,
    /// How far things had come.
    pub phase: Phase,
    /// Who brought it about.
    pub side: Side,
}

impl Ending {
    /// Puts the three together.
    pub fn new(kind: EndingKind, phase: Phase, side: Side) -> Self {
        Self { kind, phase, side }
    }

    /// As it is sent: the places of the three among all of their kind.
    pub(crate) fn to_raw(self) -> (u8, u8, u8) {
        (self.kind as u8, self.phase as u8, self.side as u8)
    }

    /// `None`: there is none of these.
    pub(crate) fn from_raw((kind, phase, side): (u8, u8, u8)) -> Option<Self> {
        let kind = *EndingKind::ALL.get(usize::from(kind))?;
        let phase = *Phase::ALL.get(usize::from(phase))?;
        Some(Self { kind, phase, side: *Side::ALL.get(usize::from(side))? })
    }

    /// Whether everything was as it should be.
    pub fn is_normal(self) -> bool {
        self.kind == EndingKind::Normal
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({}, {})", self.kind.name(), self.phase.name(), self.side.name())
    }
}

/// What happened. The first three are those of the paper (anma-enma, section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndingKind {
    /// A whole response came, and was what was expected; a connection: closed without anything amiss.
    Normal,
    /// Cut by the server: by a reset, or by an end in the middle of a response.
    Reset,
    /// Not done in time.
    Timeout,
    /// The server, or the network, did not take the connection.
    Refused,
    /// The TLS handshake failed.
    Handshake,
    /// What came is no HTTP, or breaks its rules; or no TLS, after the handshake.
    Protocol,
    /// A whole response, but of another status or with another body than expected.
    Mismatch,
    /// This machine could not: no file, port or address left, or an answer that a flow needs had not what it needs.
    Local,
}

impl EndingKind {
    /// Every kind, in the order in which they are shown.
    pub const ALL: [Self; 8] = [
        Self::Normal,
        Self::Reset,
        Self::Timeout,
        Self::Refused,
        Self::Handshake,
        Self::Protocol,
        Self::Mismatch,
        Self::Local,
    ];

    /// As in reports and conditions: `NORMAL`, `RESET`, ...
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "NORMAL",
            Self::Reset => "RESET",
            Self::Timeout => "TIMEOUT",
            Self::Refused => "REFUSED",
            Self::Handshake => "HANDSHAKE",
            Self::Protocol => "PROTOCOL",
            Self::Mismatch => "MISMATCH",
            Self::Local => "LOCAL",
        }
    }
}

/// How far things had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// TCP was not connected yet.
    Connect,
    /// TLS was not established yet.
    Handshake,
    /// The request was being written.
    Request,
    /// The request was written, and no byte of the response had come.
    Wait,
    /// Some of the response had come.
    Response,
    /// The response was complete, the connection not yet closed.
    Close,
}

impl Phase {
    /// Every phase, in order.
    pub const ALL: [Self; 6] = [Self::Connect, Self::Handshake, Self::Request, Self::Wait, Self::Response, Self::Close];

    /// As in reports: `connect`, `handshake`, ...
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Handshake => "handshake",
            Self::Request => "request",
            Self::Wait => "wait",
            Self::Response => "response",
            Self::Close => "close",
        }
    }
}

/// Who brought an end about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// This program: it closed, or gave up.
    Client,
    /// The server, or the network on its behalf.
    Server,
}

impl Side {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Client, Self::Server];

    /// As in reports: `client`, `server`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}
