//! `[dispatcher]`

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use watari_balance::{BulkPolicy, HandshakePolicy};
use watari_dispatcher::{Checks, Policies, Rebalance};
use watari_values::NodeName;
use watari_values::setting::{As, Span};

use super::multipath::RawMultipath;
use super::takeover::RawTakeover;
use crate::config::spanned::{Spanned, Texts};
use crate::config::value::{Address, HostPattern, Network, Prefix, ProxyProtocol, Weight};

/// The most threads of a role. No machine can use more.
pub(crate) const THREADS_MAX: NonZeroUsize = NonZeroUsize::new(256).expect("it is not zero");

/// The role dispatcher: accepts clients, selects agents for them, and relays bytes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawDispatcher {
    /// The addresses that clients connect to. The list may be empty if `listen_proxy` has an address.
    #[schemars(with = "Vec<Address>")]
    pub(crate) listen: Texts,
    /// The addresses that relays connect to. They name the client in a PROXY protocol header (version 1 or 2).
    #[serde(default)]
    #[schemars(with = "Vec<Address>")]
    pub(crate) listen_proxy: Vec<Spanned<String>>,
    /// The networks of these relays. `listen_proxy` requires it.
    #[schemars(with = "Option<Vec<Network>>")]
    pub(crate) proxy_from: Option<Texts>,
    /// The addresses for plain HTTP. The dispatcher redirects requests (308) to HTTPS at the first port of `listen`.
    #[serde(default)]
    #[schemars(with = "Vec<Address>")]
    pub(crate) redirect: Vec<Spanned<String>>,
    /// The agents that get clients. Each is this node or a peer. The list may be empty with `discover = true`.
    pub(crate) agents: Spanned<Vec<RawAgentAddress>>,
    /// Whether agents that are members of the cluster also get clients, with weight 1. It needs `join = "certified"`.
    #[schemars(extend("default" = false))]
    pub(crate) discover: Option<Spanned<bool>>,
    /// The threads that relay. The default is the number of processors.
    #[schemars(extend("maximum" = THREADS_MAX))]
    pub(crate) threads: Option<Spanned<NonZeroUsize>>,
    /// Selects the agent that does a handshake.
    #[schemars(extend("default" = Policies::default().handshake))]
    pub(crate) handshake: Option<HandshakePolicy>,
    /// Selects the agent that gets the connection after the handshake.
    #[schemars(extend("default" = Policies::default().bulk))]
    pub(crate) bulk: Option<BulkPolicy>,
    /// Whether connections move by themselves, from agents with more than their share to agents with less: by the
    /// numbers of connections, or by the bytes that the dispatcher relays (`load`). It needs `bulk = "stay"`.
    #[schemars(extend("default" = Policies::default().rebalance))]
    pub(crate) rebalance: Option<Spanned<Rebalance>>,
    /// The bits of an address that distinguish clients, where addresses select agents.
    #[schemars(extend("default" = Policies::default().client_prefix))]
    pub(crate) client_prefix: Option<Prefix>,
    /// The time in which the share of a newly available agent grows to its full size. Without it, the agent gets its
    /// full share at once.
    pub(crate) slow_start: Option<Span>,
    #[serde(default)]
    pub(crate) check: RawChecks,
    #[serde(default)]
    pub(crate) passthrough: Vec<RawPassthrough>,
    pub(crate) takeover: Option<RawTakeover>,
    pub(crate) multipath: Option<RawMultipath>,
    #[serde(default)]
    pub(crate) limits: watari_dispatcher::Limits,
}

/// An agent, and its share of clients.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAgentAddress {
    /// The name of the agent's node.
    pub(crate) name: Spanned<NodeName>,
    /// The address at which the agent accepts legs.
    pub(crate) legs: Spanned<Address>,
    /// The share of connections in relation to other agents.
    #[serde(default)]
    pub(crate) weight: Weight,
    /// Connections of this dispatcher that the agent may have at a time. Without it, only the agent's own limit applies.
    pub(crate) connections_max: Option<NonZeroUsize>,
}

/// Connections that the dispatcher relays to a backend unopened, by the name that clients ask for (SNI). The backend
/// terminates TLS. `watari ctl connections` does not show them.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawPassthrough {
    /// The server names.
    #[schemars(with = "Vec<HostPattern>")]
    pub(crate) names: Texts,
    /// The addresses of backends, which get connections in turn.
    #[schemars(with = "Vec<Address>")]
    pub(crate) backends: Texts,
    /// The version of the PROXY protocol that carries the client's address to backends. Without it, the address is not
    /// sent.
    pub(crate) proxy_protocol: Option<ProxyProtocol>,
}

/// Health checks of agents. They test the agents, not only their machines.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawChecks {
    /// The time from the start of one check to the start of the next.
    #[serde(with = "As::<Span>")]
    pub(crate) interval: Duration,
    /// The time limit for a whole check, including the connect.
    #[serde(with = "As::<Span>")]
    pub(crate) timeout: Duration,
    /// Consecutive failures after which an agent gets no new connections.
    #[serde(with = "As::<NonZeroU32>")]
    pub(crate) fall: u32,
    /// Consecutive successes after which the agent gets connections again.
    #[serde(with = "As::<NonZeroU32>")]
    pub(crate) rise: u32,
}

impl Default for RawChecks {
    fn default() -> Self {
        let Checks { interval, timeout, thresholds } = Checks::default();
        Self { interval, timeout, fall: thresholds.fall, rise: thresholds.rise }
    }
}
