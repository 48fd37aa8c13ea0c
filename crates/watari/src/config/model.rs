//! A valid configuration.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use tracing_subscriber::filter::Targets;
use watari_addresses::MultipathSettings;
use watari_agent::Listener;
use watari_dispatcher::AgentConfig;
use watari_handshake::Policy;
use watari_mesh::{Join, Peer};
use watari_values::NodeName;

use super::file::{At, ConfigFile};
use super::outline::Outline;
use super::proxy::Proxy;
use super::raw::LogFormat;
use super::takeover::Takeover;

/// A valid configuration. The files that it names have not been opened.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) file: ConfigFile,
    pub(crate) node: Node,
    /// The other nodes of the cluster.
    pub(crate) peers: Vec<Peer>,
    pub(crate) dispatcher: Option<Dispatcher>,
    pub(crate) agent: Option<Agent>,
    pub(crate) log: Log,
    /// The keys and values of the file, to report changes.
    pub(crate) outline: Outline,
}

/// `[node]`
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: At<NodeName>,
    /// The directory with the node's certificate and key, and the authority's certificate.
    pub(crate) pki: At<PathBuf>,
    /// The address at which the node accepts links of the mesh.
    pub(crate) mesh: SocketAddr,
    /// The rule for membership of the cluster.
    pub(crate) join: Join,
    /// The path of the administration socket.
    pub(crate) admin: PathBuf,
    /// The address of the metrics server. `None`: the node has none.
    pub(crate) metrics: Option<SocketAddr>,
    /// The time that an agent's connections get to move or end before the node ends.
    pub(crate) drain_timeout: Duration,
    /// `[node.limits]`
    pub(crate) limits: watari_mesh::Limits,
}

/// `[dispatcher]`
#[derive(Debug)]
pub(crate) struct Dispatcher {
    /// Addresses that clients connect to.
    pub(crate) listen: Vec<SocketAddr>,
    /// The number of threads that relay.
    pub(crate) threads: NonZeroUsize,
    /// Addresses that relays connect to. They name the client in a PROXY protocol header.
    pub(crate) listen_proxy: Vec<SocketAddr>,
    /// Addresses for clients that speak plain HTTP. They are redirected to HTTPS.
    pub(crate) redirect: Vec<SocketAddr>,
    pub(crate) config: watari_dispatcher::Config,
    /// Whether members with the role agent become its agents, too.
    pub(crate) discover: bool,
    /// `None`: its addresses do not move.
    pub(crate) takeover: Option<Takeover>,
    /// `None`: it has no addresses together with others.
    pub(crate) multipath: Option<MultipathSettings>,
}

impl Dispatcher {
    /// The dispatcher's settings if agents have announced `legs`. The values of the file override those of agents that
    /// it lists.
    pub(crate) fn with_agents(&self, legs: &BTreeMap<NodeName, SocketAddr>) -> watari_dispatcher::Config {
        let mut config = self.config.clone();
        if self.discover {
            let is_listed = |name: &NodeName| self.config.agents.iter().any(|agent| agent.name == *name);
            let found = legs.iter().filter(|(name, _)| !is_listed(name));
            let agents = found.map(|(name, legs)| AgentConfig {
                name: name.clone(),
                legs: *legs,
                weight: 1,
                connections_max: None,
            });
            config.agents.extend(agents);
        }
        config
    }

    /// The addresses at which the dispatcher accepts clients and relays.
    pub(crate) fn clients_at(&self) -> watari_dispatcher::Listeners<SocketAddr> {
        watari_dispatcher::Listeners { clients: self.listen.clone(), relays: self.listen_proxy.clone() }
    }

    /// The addresses that may be absent from this node's interfaces.
    pub(crate) fn moving_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let services = self.takeover.iter().flat_map(|takeover| &takeover.settings.addresses);
        let shared = self.multipath.iter().flat_map(|multipath| &multipath.addresses);
        services.map(|service| service.address.addr()).chain(shared.copied())
    }

    /// The port of the URLs in redirects.
    pub(crate) fn https_port(&self) -> u16 {
        self.listen.first().map_or(443, SocketAddr::port)
    }
}

/// `[agent]`
#[derive(Debug)]
pub(crate) struct Agent {
    /// The address at which the agent accepts legs.
    pub(crate) legs: SocketAddr,
    /// The number of threads that serve connections, with the main thread.
    pub(crate) threads: NonZeroUsize,
    /// `None`: a bulk agent, which does no handshakes and needs no private key.
    pub(crate) tls: Option<Tls>,
    pub(crate) site: Site,
    /// `[agent.sessions]`
    pub(crate) sharing: watari_agent::Sharing,
    pub(crate) limits: watari_agent::Limits,
}

/// `[[agent.certificate]]` and `[agent.tls]`
#[derive(Debug)]
pub(crate) struct Tls {
    pub(crate) certificates: Vec<CertificateFiles>,
    pub(crate) parameters: TlsParameters,
    /// `[[agent.tls.listener]]`
    pub(crate) listeners: Vec<(Listener, TlsParameters)>,
}

/// The parameters of handshakes, apart from certificates.
#[derive(Debug)]
pub(crate) struct TlsParameters {
    /// The first line of the table with these parameters. `None`: the file has no such table.
    pub(crate) line: Option<usize>,
    pub(crate) policy: Policy,
    pub(crate) alpn: Vec<String>,
    pub(crate) clients: ClientCertificates,
}

/// `[[agent.certificate]]`
#[derive(Debug, Clone)]
pub(crate) struct CertificateFiles {
    pub(crate) chain: At<PathBuf>,
    pub(crate) key: At<PathBuf>,
    /// Whether it also serves clients that send no server name, or an unknown one.
    pub(crate) default: bool,
}

/// Whether the agent requests client certificates, and the file with the authorities that may issue them.
#[derive(Debug)]
pub(crate) enum ClientCertificates {
    None,
    Optional(At<PathBuf>),
    Required(At<PathBuf>),
}

impl ClientCertificates {
    /// The file with the authorities.
    pub(super) fn roots(&self) -> Option<&At<PathBuf>> {
        match self {
            Self::None => None,
            Self::Optional(roots) | Self::Required(roots) => Some(roots),
        }
    }
}

/// `[agent.files]` or `[agent.proxy]`
#[derive(Debug)]
pub(crate) enum Site {
    Files(At<PathBuf>),
    Proxy(Box<Proxy>),
}

/// `[log]`
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) format: LogFormat,
    pub(crate) level: Targets,
    /// The most lines of a kind in 10 s.
    pub(crate) repeats_max: usize,
}
