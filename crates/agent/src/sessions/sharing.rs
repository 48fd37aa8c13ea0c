//! The settings of session resumption.

use std::path::PathBuf;
use std::time::Duration;

use super::database::DatabaseFile;
use super::redis::RedisServer;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sharing {
    /// The way of sharing.
    pub mode: Mode,
    /// How long a session can be resumed after its handshake.
    pub lifetime: Duration,
    /// The interval at which an agent draws a new seed for ticket keys.
    pub rotation: Duration,
    /// Tickets that a client gets after each TLS 1.3 handshake.
    pub tickets_per_handshake: usize,
    /// The most memory for stored sessions, in bytes.
    pub memory_bytes: usize,
    /// Whether a session can be resumed only once. Not allowed with `Mode::Tickets`, because no agent records which
    /// tickets were used.
    pub single_use: bool,
    /// Whether clients may send early data, once with each session. Allowed only with `Mode::Push` and `Mode::Owner`,
    /// because the agent that established a session has to have stored it.
    pub early_data: bool,
    /// The file of the ticket keys, so that they survive a restart.
    pub keys_file: Option<PathBuf>,
    /// The file of the stored sessions, so that they survive a restart.
    pub database: Option<DatabaseFile>,
    /// The server that stores sessions in `Mode::Redis`.
    pub redis: Option<RedisServer>,
}

/// The way of sharing sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Sessions are not shared.
    Private,
    /// Every linked agent can open the tickets of every other. Sessions of clients without ticket support are stored as
    /// in `Owner`.
    Tickets,
    /// Every session is sent to all agents (the paper's method).
    Push,
    /// Two agents store each session, and the other agents request it from them.
    Owner,
    /// A Redis server stores every session, sealed, for all agents that use it.
    Redis,
}

impl Mode {
    /// The spelling in configuration files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Tickets => "tickets",
            Self::Push => "push",
            Self::Owner => "owner",
            Self::Redis => "redis",
        }
    }
}

impl Sharing {
    /// Whether tickets contain sessions. Otherwise they are names of stored sessions.
    pub(super) fn seals_tickets(&self) -> bool {
        matches!(self.mode, Mode::Private | Mode::Tickets)
    }

    /// Whether there are ticket keys: for tickets, or for sessions stored outside the memory.
    pub(super) fn has_keys(&self) -> bool {
        self.seals_tickets() || self.database.is_some() || self.mode == Mode::Redis
    }

    pub(super) fn shares_keys(&self) -> bool {
        self.has_keys() && self.mode != Mode::Private
    }
}

impl Default for Sharing {
    fn default() -> Self {
        Self {
            mode: Mode::Tickets,
            lifetime: Duration::from_hours(12),
            rotation: Duration::from_hours(6),
            tickets_per_handshake: 2,
            memory_bytes: 64 << 20,
            single_use: false,
            early_data: false,
            keys_file: None,
            database: None,
            redis: None,
        }
    }
}
