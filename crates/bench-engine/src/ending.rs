//! How a request or a connection ended.

use std::fmt;

/// An ending: what happened, in which phase, and which side caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ending {
    pub kind: EndingKind,
    /// The phase that was reached.
    pub phase: Phase,
    /// The side that caused the ending.
    pub side: Side,
}

impl Ending {
    pub fn new(kind: EndingKind, phase: Phase, side: Side) -> Self {
        Self { kind, phase, side }
    }

    /// The wire form: the indices of the three in their `ALL`.
    pub(crate) fn to_raw(self) -> (u8, u8, u8) {
        (self.kind as u8, self.phase as u8, self.side as u8)
    }

    /// `None` if an index is out of range.
    pub(crate) fn from_raw((kind, phase, side): (u8, u8, u8)) -> Option<Self> {
        let kind = *EndingKind::ALL.get(usize::from(kind))?;
        let phase = *Phase::ALL.get(usize::from(phase))?;
        Some(Self { kind, phase, side: *Side::ALL.get(usize::from(side))? })
    }

    /// Whether the request or connection succeeded.
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
    /// A request: the response is complete and as expected. A connection: closed without an error.
    Normal,
    /// The server cut it: by a reset, or by an end in the middle of a response.
    Reset,
    /// A timeout expired.
    Timeout,
    /// The server or the network refused the connection.
    Refused,
    /// The TLS handshake failed.
    Handshake,
    /// The response is not HTTP, or violates its rules; or, after the handshake, the bytes are not TLS.
    Protocol,
    /// The response is complete, but its status or body is not the expected one.
    Mismatch,
    /// A failure of this machine or of the flow: no file descriptor, port or address is left, or a response lacks a
    /// value that the flow needs.
    Local,
}

impl EndingKind {
    /// All kinds, in the order in which reports show them.
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

    /// Its name in reports and conditions: `NORMAL`, `RESET`, ...
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

/// The phase that a connection or request had reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// TCP was not connected yet.
    Connect,
    /// TLS was not established yet.
    Handshake,
    /// The client was writing the request.
    Request,
    /// The client had written the request, and no byte of the response had arrived.
    Wait,
    /// Some bytes of the response had arrived.
    Response,
    /// The response was complete, but the connection was not closed yet.
    Close,
}

impl Phase {
    /// All phases, in order.
    pub const ALL: [Self; 6] = [Self::Connect, Self::Handshake, Self::Request, Self::Wait, Self::Response, Self::Close];

    /// Its name in reports: `connect`, `handshake`, ...
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

/// The side that caused an ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// This program: it closed the connection, or a timeout of its own expired.
    Client,
    /// The server, or the network on its side.
    Server,
}

impl Side {
    pub const ALL: [Self; 2] = [Self::Client, Self::Server];

    /// Its name in reports: `client`, `server`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}
