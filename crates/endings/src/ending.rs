//! The words: who, how, in which phase.

use std::fmt;

/// One of the two ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Who opened it.
    Client,
    /// Who was asked.
    Server,
}

impl Side {
    /// The one at the other end.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    /// As logs have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// How a connection ended: the five of the ENMA monitor (ANMA paper, chapter 2), and four for what they leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ending {
    /// The server's FIN closed it first.
    SNormal,
    /// The client's FIN closed it first.
    CNormal,
    /// The client's RST.
    CReset,
    /// The server's RST.
    SReset,
    /// It lasted too long after its last request.
    Timeout,
    /// A RST was the answer to the client's SYN.
    Refused,
    /// Nothing was the answer to the client's SYNs.
    NoAnswer,
    /// Nobody has ended it as far as was seen; or it was half open only.
    Open,
    /// Answers of a server to nobody: SYN-ACK or RST without a SYN, as spoofed sources draw them.
    Backscatter,
}

impl Ending {
    /// All of them.
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

    /// As logs have it.
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

/// How far a connection had come when it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// The handshake of TCP was not complete.
    BeforeHandshake,
    /// Nothing had been asked. A handshake of TLS is no request.
    BeforeRequest,
    /// A request had been sent, and nothing of the answer had come.
    BeforeAnswer,
    /// A part of the answer had come.
    InAnswer,
    /// The answer had come.
    AfterAnswer,
    /// The answer had come, and nothing had followed it for a while.
    Idle,
}

impl Phase {
    /// All of them, in their order.
    pub const ALL: [Self; 6] =
        [Self::BeforeHandshake, Self::BeforeRequest, Self::BeforeAnswer, Self::InAnswer, Self::AfterAnswer, Self::Idle];

    /// As logs have it.
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
