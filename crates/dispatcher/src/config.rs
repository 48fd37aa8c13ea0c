//! What a dispatcher is configured with. All of it but its name can be replaced while it runs
//! ([`crate::Dispatcher::reload`]).

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use watari_balance::{BulkPolicy, ClientPrefix, HandshakePolicy, Patience};
use watari_wire::NodeName;

/// How a dispatcher works.
#[derive(Debug, Clone)]
pub struct Config {
    /// This node.
    pub name: NodeName,
    /// The agents it may give connections to.
    pub agents: Vec<AgentConfig>,
    /// Who gets which connection.
    pub policies: Policies,
    /// How it finds out whether agents answer.
    pub checks: Checks,
    /// Who may say, by the PROXY protocol, whose connections it brings.
    pub proxy_from: Vec<IpNet>,
    /// Whose connections are relayed to backends as they are.
    pub passthrough: Vec<PassthroughRule>,
    /// What bounds it.
    pub limits: Limits,
}

/// Connections that go to backends, which do TLS themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassthroughRule {
    /// The hosts that their clients ask for.
    pub names: Vec<NamePattern>,
    /// Where they go, in turn; not empty.
    pub backends: Vec<SocketAddr>,
    /// Whether backends are told who the client is, by the PROXY protocol v2.
    pub proxy_protocol: bool,
}

/// A host's name in lower case, or `*.` and the rest, for all names with one label in its place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamePattern(String);

/// A string is no [`NamePattern`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a name is a host's, such as db.example.com, or has * in place of its first label")]
pub struct InvalidNamePattern;

impl NamePattern {
    /// The pattern as text.
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
        // Clients ask for hosts by name, never by an IP address (RFC 6066, section 3).
        let is_address = host.parse::<IpAddr>().is_ok();
        if text.len() <= 253 && host.split('.').all(is_label) && !is_address {
            Ok(Self(text.to_ascii_lowercase()))
        } else {
            Err(InvalidNamePattern)
        }
    }
}

/// An agent that connections may be given to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentConfig {
    /// The agent.
    pub name: NodeName,
    /// Its listener for legs.
    pub legs: SocketAddr,
    /// How much it shall get in relation to others: 1 to [`watari_balance::WEIGHT_MAX`].
    pub weight: u32,
    /// Connections it may have at the same time, of this dispatcher; it gets no more then, but for
    /// those that an operator moves there or that a drain has sent there already.
    pub connections_max: Option<NonZeroUsize>,
}

/// Who gets which connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policies {
    /// Who does handshakes.
    pub handshake: HandshakePolicy,
    /// Who gets the data.
    pub bulk: BulkPolicy,
    /// Which addresses are the same client, where addresses select agents.
    pub client_prefix: ClientPrefix,
    /// How long it takes an agent that has appeared to get all that its weight says. `None`: it does at once.
    pub slow_start: Option<Duration>,
}

/// How a dispatcher finds out whether agents answer: it opens a leg that says so, and the agent ends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checks {
    /// From one check to the next.
    pub interval: Duration,
    /// For all of a check.
    pub timeout: Duration,
    /// How often in a row it has to fail, and to succeed.
    pub patience: Patience,
}

/// What bounds a dispatcher; every wait has an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Clients at the same time, those that wait for an agent included; further ones are reset.
    pub connections_max: usize,
    /// Clients of one address at the same time; further ones are reset.
    pub connections_per_client_max: usize,
    /// Clients that may wait for an agent, where all are at their limit, or none is available; further ones are reset.
    pub queue_max: usize,
    /// How long each may wait.
    pub queue_timeout: Duration,
    /// For the PROXY protocol header of a connection to be complete.
    pub proxy_header_timeout: Duration,
    /// From accepting a client until its handshake is announced.
    pub handshake_timeout: Duration,
    /// For a client to acknowledge what it was sent, or to make room for more. Of listeners: of those that are there, a
    /// reload does not change it.
    pub user_timeout: Duration,
    /// Without a byte in either direction.
    pub idle_timeout: Duration,
    /// In all.
    pub lifetime_max: Duration,
    /// For connecting to an agent.
    pub leg_timeout: Duration,
    /// Legs that moves have left behind, kept for other connections, to each agent by each thread; further ones are
    /// closed.
    pub idle_legs_max: usize,
    /// Connections of agents that are being emptied that are asked to leave in a second, of all agents together.
    pub drain_rate: u32,
    /// From a proposal to the decision.
    pub move_timeout: Duration,
    /// From the end of an agent's leg to the announcement that its stream was complete; and from the end of the stream
    /// to a client to the end of the client's own.
    pub final_timeout: Duration,
}

impl Default for Policies {
    fn default() -> Self {
        Self {
            handshake: HandshakePolicy::RoundRobin,
            bulk: BulkPolicy::ClientAddress,
            client_prefix: ClientPrefix::default(),
            // An agent has nothing to warm up: it can take its share from the first moment on.
            slow_start: None,
        }
    }
}

impl Default for Checks {
    fn default() -> Self {
        Self {
            // What lives has its link lost after 5 s without a sign; this is to know sooner.
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            patience: Patience { fall: 3, rise: 2 },
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 8_000,
            connections_per_client_max: 2_000,
            // Who is refused at once knows, and can go elsewhere; waiting helps only where a place is free soon.
            queue_max: 0,
            queue_timeout: Duration::from_secs(10),
            proxy_header_timeout: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(15),
            user_timeout: Duration::from_mins(2),
            idle_timeout: Duration::from_mins(5),
            lifetime_max: Duration::from_hours(24),
            leg_timeout: Duration::from_secs(2),
            idle_legs_max: 256,
            drain_rate: 2_000,
            move_timeout: Duration::from_secs(3),
            final_timeout: Duration::from_secs(5),
        }
    }
}
