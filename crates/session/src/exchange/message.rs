//! What nodes send each other about stored sessions.

use watari_values::{NodeName, SecretBytes, SessionKey};

/// The most sessions, or keys, in one message.
pub const SESSIONS_MAX: usize = 16;
/// The longest session that is sent, in bytes. One with a chain of client certificates takes some KiB.
pub const SESSION_LEN_MAX: usize = 16 << 10;

/// A message with its number. An answer repeats the number of its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    Request(u64, Request),
    Answer(u64, Answer),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Store these sessions: at most [`SESSIONS_MAX`].
    Put(Vec<SentSession>),
    /// Send the sessions with these keys: at most [`SESSIONS_MAX`].
    Get(Vec<SessionKey>),
    /// Approve one use of this session, which the receiver established.
    Spend(SessionKey),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To [`Request::Put`]: the sessions are stored.
    Stored,
    /// To [`Request::Get`]: those of the sessions that the sender stores.
    Found(Vec<SentSession>),
    /// To [`Request::Spend`]: whether the use is approved. Each session is approved once.
    Spent { granted: bool },
}

/// A session on its way between nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentSession {
    pub key: SessionKey,
    /// At most [`SESSION_LEN_MAX`] bytes.
    pub secret: SecretBytes,
    /// The time in seconds for which it can still be resumed. It is relative, because clocks of nodes may differ.
    pub expires_in_s: u32,
    /// The node that established it.
    pub issuer: NodeName,
}

impl Message {
    pub(super) fn is_within_bounds(&self) -> bool {
        match self {
            Self::Request(_, Request::Put(sessions)) | Self::Answer(_, Answer::Found(sessions)) => {
                sessions.len() <= SESSIONS_MAX
                    && sessions.iter().all(|sent| sent.secret.as_slice().len() <= SESSION_LEN_MAX)
            }
            Self::Request(_, Request::Get(keys)) => keys.len() <= SESSIONS_MAX,
            Self::Request(_, Request::Spend(_)) | Self::Answer(_, Answer::Stored | Answer::Spent { .. }) => true,
        }
    }
}
