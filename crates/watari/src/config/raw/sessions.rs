//! `[agent.sessions]`

use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use watari_agent::Sharing;
use watari_values::duration;
use watari_values::setting::Span;

use crate::config::spanned::Spanned;
use crate::config::value::FilePath;

/// Clocks of agents may be minutes apart. With a shorter lifetime, an agent could find a new session of another agent
/// expired. The longest lifetime is that of RFC 8446, section 4.6.1.
pub(crate) const LIFETIME: RangeInclusive<Duration> = Duration::from_mins(10)..=Duration::from_hours(7 * 24);
/// Agents keep seeds as long as their tickets are valid. They have room for twice as many, for rotations by order.
pub(crate) const ROTATIONS_MAX: u32 = 24;
/// Each ticket costs the client some memory, and the handshake some time.
pub(crate) const TICKETS_MAX: usize = 10;
/// Room for some millions of sessions.
pub(crate) const DATABASE_MIB: u32 = 1024;
/// A full handshake takes no longer.
pub(crate) const REDIS_TIMEOUT: Duration = Duration::from_millis(250);

/// How sessions resume, and how agents share them (`docs/sessions.md`).
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawSessions {
    /// The way of sharing.
    #[schemars(extend("default" = Sharing::default().mode.as_str()))]
    pub(crate) mode: Option<Spanned<SessionMode>>,
    /// How long a session can resume after its handshake. It has to be the same at all agents.
    #[schemars(extend("default" = duration::text(Sharing::default().lifetime), "x-range" = lifetimes()))]
    pub(crate) lifetime: Option<Spanned<Span>>,
    /// The interval of new ticket keys, in addition to those of `watari ctl keys rotate`. The default is half of
    /// `lifetime`.
    #[schemars(extend("x-range" = format!("at least 1/{ROTATIONS_MAX} of `lifetime`")))]
    pub(crate) rotation: Option<Spanned<Span>>,
    /// Tickets that a client gets after each TLS 1.3 handshake.
    #[schemars(extend("default" = Sharing::default().tickets_per_handshake, "minimum" = 1, "maximum" = TICKETS_MAX))]
    pub(crate) tickets: Option<Spanned<usize>>,
    /// The most memory for sessions that the agent stores, in MiB.
    #[schemars(extend("default" = Sharing::default().memory_bytes >> 20))]
    pub(crate) memory_mib: Option<NonZeroUsize>,
    /// Whether a session resumes only once. It needs the mode `owner`, `push` or `redis`.
    #[schemars(extend("default" = Sharing::default().single_use))]
    pub(crate) single_use: Option<Spanned<bool>>,
    /// Whether the agent answers safe requests that arrive before the end of the handshake (TLS 1.3 early data), unless
    /// it requests client certificates. It needs the mode `owner` or `push`.
    #[schemars(extend("default" = Sharing::default().early_data))]
    pub(crate) early_data: Option<Spanned<bool>>,
    /// The file that stores the ticket keys, in case all agents end at once. It is as secret as a private key, and best
    /// on a file system that keeps nothing of replaced files (tmpfs). Without it, keys are only in memory.
    pub(crate) keys_file: Option<Spanned<FilePath>>,
    /// The file that stores the agent's sessions, sealed, besides its memory. The keys that open them are in memory, at
    /// the peers, and in `keys_file`. Without it, sessions are only in memory.
    pub(crate) database: Option<Spanned<FilePath>>,
    /// The most sessions in `database`, in MiB.
    #[schemars(extend("default" = DATABASE_MIB))]
    pub(crate) database_mib: Option<Spanned<NonZeroU32>>,
    pub(crate) redis: Option<Spanned<RawRedis>>,
}

fn lifetimes() -> String {
    format!("{} to {}", duration::text(*LIFETIME.start()), duration::text(*LIFETIME.end()))
}

/// The Redis or Valkey server that stores all sessions, sealed, with `mode = "redis"`. While it is unreachable, clients
/// do full handshakes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRedis {
    /// `rediss://HOST:PORT/DATABASE`. Without TLS: `redis://`.
    pub(crate) url: String,
    /// The user. It needs `password_file`. Without it, the server's user `default`.
    pub(crate) username: Option<Spanned<String>>,
    /// The file whose first line is the password. The agent refuses a file that all users can read.
    pub(crate) password_file: Option<Spanned<FilePath>>,
    /// The authorities of the server's certificate, in PEM. Without it, those of the system.
    pub(crate) ca: Option<Spanned<FilePath>>,
    /// The client certificate, in PEM, for a server that requests one. It needs `key`.
    pub(crate) certificate: Option<Spanned<FilePath>>,
    /// The private key of `certificate`, in PEM.
    pub(crate) key: Option<Spanned<FilePath>>,
    /// How long a handshake waits for the server.
    #[schemars(extend("default" = duration::text(REDIS_TIMEOUT)))]
    pub(crate) timeout: Option<Span>,
}

/// How sessions are shared.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SessionMode {
    /// Each agent by itself.
    Private,
    /// Every agent opens the tickets of all agents.
    Tickets,
    /// Every agent stores every session.
    Push,
    /// Two agents store each session.
    Owner,
    /// A server stores every session: `[agent.sessions.redis]`.
    Redis,
}
