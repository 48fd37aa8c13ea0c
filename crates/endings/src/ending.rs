//! Sides, endings and phases of connections.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The side that opened the connection.
    Client,
    /// The side that accepted it.
    Server,
}

impl Side {
    /// The other side.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    /// The name in logs and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// How a connection ended: the five endings of the ENMA monitor (ANMA paper, chapter 2), and four that it does not
/// have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ending {
    /// The server's FIN closed it first.
    SNormal,
    /// The client's FIN closed it first.
    CNormal,
    /// The client's RST cut it off.
    CReset,
    /// The server's RST cut it off.
    SReset,
    /// No complete answer within [`crate::Settings::timeout`] after its last request.
    Timeout,
    /// A RST answered the client's SYN.
    Refused,
    /// Nothing answered the client's SYNs.
    NoAnswer,
    /// Neither side closed it as far as the capture shows, or it stayed half open.
    Open,
    /// A SYN-ACK or RST of a server without a SYN in the capture: answers to spoofed addresses.
    Backscatter,
}

impl Ending {
    pub const ALL: [Self; 9] = [
        Self::SNormal,
        Self::CNormal,
        Self::CReset,
        Self::SReset,
        Self::Timeout,
        Self::Refused,
        Self::NoAnswer,
        Self::Open,
        Self::Backscatter,
    ];

    /// The name in logs and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SNormal => "S_NORMAL",
            Self::CNormal => "C_NORMAL",
            Self::CReset => "C_RESET",
            Self::SReset => "S_RESET",
            Self::Timeout => "TIMEOUT",
            Self::Refused => "REFUSED",
            Self::NoAnswer => "NO_ANSWER",
            Self::Open => "OPEN",
            Self::Backscatter => "BACKSCATTER",
        }
    }
}

/// How far a connection was when it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// The TCP handshake was not complete.
    BeforeHandshake,
    /// The client had sent no request. A TLS handshake is not a request.
    BeforeRequest,
    /// A request had been sent, and no octet of the answer had come.
    BeforeAnswer,
    /// A part of the answer had come.
    InAnswer,
    /// The answer had come.
    AfterAnswer,
    /// The answer had come, and nothing had followed it for [`crate::Settings::idle_after`].
    Idle,
}

impl Phase {
    /// All phases, in order.
    pub const ALL: [Self; 6] =
        [Self::BeforeHandshake, Self::BeforeRequest, Self::BeforeAnswer, Self::InAnswer, Self::AfterAnswer, Self::Idle];

    /// The name in logs and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BeforeHandshake => "before_handshake",
            Self::BeforeRequest => "before_request",
            Self::BeforeAnswer => "before_answer",
            Self::InAnswer => "in_answer",
            Self::AfterAnswer => "after_answer",
            Self::Idle => "idle",
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
