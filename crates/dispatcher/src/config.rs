//! Configuration of a dispatcher. [`crate::Dispatcher::reload`] can replace all of it except the name.

use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use watari_balance::{BulkPolicy, ClientPrefix, HandshakePolicy, HealthThresholds};
use watari_values::setting::{As, Span};
use watari_values::{NodeName, duration};

#[derive(Debug, Clone)]
pub struct Config {
    /// The name of this node.
    pub name: NodeName,
    /// The agents that may get connections.
    pub agents: Vec<AgentConfig>,
    /// Rules that select an agent for a connection.
    pub policies: Policies,
    /// Health checks of agents.
    pub checks: Checks,
    /// Networks of the relays that may report a client's address by the PROXY protocol.
    pub proxy_from: Vec<IpNet>,
    /// Server names whose connections the dispatcher relays to backends, without opening TLS.
    pub passthrough: Vec<PassthroughRule>,
    pub limits: Limits,
}

/// A rule for connections that the dispatcher relays to backends. The backends terminate TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassthroughRule {
    /// The server names (SNI) that the rule covers.
    pub names: Vec<NamePattern>,
    /// The backends, which take turns; not empty.
    pub backends: Vec<SocketAddr>,
    /// Whether the dispatcher sends backends the client's address in a PROXY protocol v2 header.
    pub proxy_protocol: bool,
}

/// A host name in lower case, or `*.` and a parent domain, which matches all names with one label in place of the `*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamePattern(String);

/// A string is not a [`NamePattern`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a host name such as db.example.com, or one with * as its first label")]
pub struct InvalidNamePattern;

impl NamePattern {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for NamePattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for NamePattern {
    type Err = InvalidNamePattern;

    fn from_str(text: &str) -> Result<Self, InvalidNamePattern> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(allowed);
        let host = text.strip_prefix("*.").unwrap_or(text);
        // SNI carries DNS names, never IP addresses (RFC 6066, section 3).
        let is_address = host.parse::<IpAddr>().is_ok();
        if text.len() <= 253 && host.split('.').all(is_label) && !is_address {
            Ok(Self(text.to_ascii_lowercase()))
        } else {
            Err(InvalidNamePattern)
        }
    }
}

/// An agent that may get connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentConfig {
    /// The agent's node name.
    pub name: NodeName,
    /// The agent's listener for legs.
    pub legs: SocketAddr,
    /// The agent's share in relation to other agents: 1 to [`watari_balance::WEIGHT_MAX`].
    pub weight: u32,
    /// Connections that the agent may have at a time from this dispatcher. At the limit it gets no more, except for
    /// connections that an operator moves there, or that a drain has already sent there.
    pub connections_max: Option<NonZeroUsize>,
}

/// Rules that select an agent for a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policies {
    /// Selects the agent that does a handshake.
    pub handshake: HandshakePolicy,
    /// Selects the agent that gets the connection after the handshake.
    pub bulk: BulkPolicy,
    /// Whether connections move by themselves when agents have uneven loads. Only with [`BulkPolicy::Stay`]: the other
    /// policies say which agent has a connection.
    pub rebalance: Rebalance,
    /// Which addresses count as one client, where addresses select agents.
    pub client_prefix: ClientPrefix,
    /// The time in which the share of a newly available agent grows to its full weight. `None`: it gets its full share
    /// at once.
    pub slow_start: Option<Duration>,
}

/// Whether connections move by themselves, from agents with more than their share to agents with less.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rebalance {
    /// They do not.
    #[default]
    Off,
    /// By the numbers of connections.
    Connections,
    /// By the bytes that the dispatcher relays.
    Load,
}

/// Health checks of agents: the dispatcher opens a leg that is marked as a check, and the agent closes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checks {
    /// The time from the start of one check to the start of the next.
    pub interval: Duration,
    /// The time limit for a whole check, including the connect.
    pub timeout: Duration,
    /// The number of consecutive failures, and of consecutive successes, that change an agent's health.
    pub thresholds: HealthThresholds,
}

/// The limits of a dispatcher. Every wait has a time limit.
// `[dispatcher.limits]` of a configuration file: the documentation of a field is that of its key.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Clients at a time, including those that wait for an agent. The dispatcher resets further ones.
    #[serde(with = "As::<NonZeroUsize>")]
    pub connections_max: usize,
    /// Clients at a time from one address. The dispatcher resets further ones.
    #[serde(with = "As::<NonZeroUsize>")]
    pub connections_per_client_max: usize,
    /// Clients that may wait for an agent while all agents are at their limit or none is available. The dispatcher
    /// resets further ones.
    pub queue_max: usize,
    /// How long a client may wait in the queue.
    #[serde(with = "As::<Span>")]
    pub queue_timeout: Duration,
    /// The time in which the PROXY protocol header of a connection to `listen_proxy` has to be complete.
    #[serde(with = "As::<Span>")]
    pub proxy_header_timeout: Duration,
    /// The time from accepting a client until the agent announces that its handshake is done.
    #[serde(with = "As::<Span>")]
    pub handshake_timeout: Duration,
    /// The time in which a client has to acknowledge sent data or open its receive window (`TCP_USER_TIMEOUT`). It is
    /// set on listeners. A reload does not change it for connections that exist.
    #[serde(with = "As::<Span>")]
    pub user_timeout: Duration,
    /// The time without a byte in either direction after which a connection is closed.
    #[serde(with = "As::<Span>")]
    pub idle_timeout: Duration,
    /// The longest lifetime of a connection.
    #[serde(with = "As::<Span>")]
    pub lifetime_max: Duration,
    /// The time limit for connecting to an agent.
    #[serde(with = "As::<Span>")]
    pub leg_timeout: Duration,
    /// Idle legs that each thread keeps to each agent, for other connections. The dispatcher closes further ones.
    pub idle_legs_max: usize,
    /// Connections per second that the dispatcher asks to leave draining agents, over all of these agents.
    #[serde(with = "As::<NonZeroU32>")]
    pub drain_rate: u32,
    /// The time from the proposal of a move to the decision. After it, the dispatcher aborts the move.
    #[serde(with = "As::<MoveTimeout>")]
    #[schemars(with = "Span", extend("x-range" = format!("at most {}", duration::text(MOVE_TIMEOUT_MAX))))]
    pub move_timeout: Duration,
    /// The most memory for bytes of moving connections that their clients have not taken yet, in MiB, over all
    /// connections. Beyond it, a move of a connection with a slow client is aborted after `move_timeout`.
    #[serde(with = "As::<NonZeroU32>")]
    pub undelivered_mib_max: u32,
    /// The time from the end of an agent's leg to the agent's announcement that its stream was complete. Also the time
    /// from the end of the stream to a client to the end of the client's own stream.
    #[serde(with = "As::<Span>")]
    pub final_timeout: Duration,
}

impl Default for Policies {
    fn default() -> Self {
        Self {
            handshake: HandshakePolicy::RoundRobin,
            bulk: BulkPolicy::ClientAddress,
            rebalance: Rebalance::Off,
            client_prefix: ClientPrefix::default(),
            // An agent needs no warm-up: it can take its full share at once.
            slow_start: None,
        }
    }
}

impl Default for Checks {
    fn default() -> Self {
        Self {
            // A link without any message is lost after 5 s. A check finds a failure sooner.
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            thresholds: HealthThresholds { fall: 3, rise: 2 },
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 8_000,
            connections_per_client_max: 2_000,
            // A client that is refused at once can try elsewhere. A queue helps only if slots become free soon.
            queue_max: 0,
            queue_timeout: Duration::from_secs(10),
            proxy_header_timeout: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(15),
            user_timeout: Duration::from_mins(2),
            idle_timeout: Duration::from_mins(5),
            lifetime_max: Duration::from_hours(24),
            leg_timeout: Duration::from_secs(2),
            idle_legs_max: 256,
            drain_rate: 4_200,
            move_timeout: Duration::from_secs(3),
            // Some 700 KiB for each download with a slow client. They were in the system's buffers before.
            undelivered_mib_max: 1024,
            final_timeout: Duration::from_secs(5),
        }
    }
}

/// The longest time that a move may be undecided. The agents have timeouts of their own, which must be longer: the
/// source keeps a fenced connection for 15 s, and an agent keeps a leg without its preface for 10 s.
const MOVE_TIMEOUT_MAX: Duration = Duration::from_secs(5);

/// At most [`MOVE_TIMEOUT_MAX`].
#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(try_from = "Span", into = "Span")]
struct MoveTimeout(Span);

impl TryFrom<Span> for MoveTimeout {
    type Error = String;

    fn try_from(span: Span) -> Result<Self, String> {
        if span.get() > MOVE_TIMEOUT_MAX {
            let max_s = MOVE_TIMEOUT_MAX.as_secs();
            return Err(format!("move_timeout is at most {max_s}s: agents wait at most 10 s for the decision"));
        }
        Ok(Self(span))
    }
}

impl TryFrom<Duration> for MoveTimeout {
    type Error = String;

    fn try_from(timeout: Duration) -> Result<Self, String> {
        Span::try_from(timeout)?.try_into()
    }
}

impl From<MoveTimeout> for Span {
    fn from(timeout: MoveTimeout) -> Self {
        timeout.0
    }
}

impl From<MoveTimeout> for Duration {
    fn from(timeout: MoveTimeout) -> Self {
        timeout.0.get()
    }
}
