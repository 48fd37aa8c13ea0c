//! The configuration file of a node.
//!
//! ```text
//! text --(raw)--> shapes and values --(check)--> Config --(load)--> what its files hold
//! ```
//!
//! * `raw` is the file as TOML: tables, keys, and the types of values. It refuses unknown keys. `form` finds all
//!   mistakes of this kind, and `words` describes them without names of Rust types.
//! * `check` refuses values that are well-formed but not valid. It opens no file: [`Config::parse`] is a function of a
//!   text.
//! * `schema` describes what `raw` accepts as a JSON schema, with the documentation of keys.
//! * `load` reads the files that the configuration names, and refuses content that is not usable.
//!
//! Each refusal is one sentence with file and line. All mistakes of form are reported at once. If there are none,
//! `check` reports all that it finds, and after a successful `check`, so does `load`.

mod check;
mod form;
mod load;
mod members;
mod outline;
mod proxy;
mod raw;
mod restart;
mod schema;
mod sessions;
mod spanned;
mod stamps;
mod tls;
mod value;
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tracing_subscriber::filter::Targets;
use watari_agent::Listener;
use watari_dispatcher::AgentConfig;
use watari_handshake::Policy;
use watari_mesh::{Join, Peer};
use watari_values::NodeName;

pub(crate) use load::{CertificateFile, CertificateUse, Loaded, LoadedAgent, SiteMetrics};
pub(crate) use outline::{Change, Outline};
pub(crate) use proxy::Proxy;
pub(crate) use raw::{DEFAULT_ADMIN, LogFormat};
pub(crate) use schema::schema;

/// A valid configuration. The files that it names have not been opened.
#[derive(Debug)]
pub(crate) struct Config {
    /// The path of the file, as the user gave it.
    pub(crate) file: PathBuf,
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
#[derive(Debug)]
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
    fn roots(&self) -> Option<&At<PathBuf>> {
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

/// A value, and the line of the configuration that it is on.
#[derive(Debug, Clone)]
pub(crate) struct At<T> {
    pub(crate) line: usize,
    pub(crate) value: T,
}

/// The configuration is not valid. Its `Display` has a line `file:line: sentence` for each mistake.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("{}: {cause}", file.display())]
    Unreadable { file: PathBuf, cause: std::io::Error },
    #[error("{}", lines(file, mistakes).join("\n"))]
    Wrong { file: PathBuf, mistakes: Vec<(usize, String)> },
}

fn lines(file: &Path, mistakes: &[(usize, String)]) -> Vec<String> {
    mistakes.iter().map(|(line, sentence)| format!("{}:{line}: {sentence}", file.display())).collect()
}

impl ConfigError {
    /// Both errors together, sorted by line. An error without a line stays alone.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Wrong { file, mut mistakes }, Self::Wrong { mistakes: others, .. }) => {
                mistakes.extend(others);
                mistakes.sort();
                mistakes.dedup();
                Self::Wrong { file, mistakes }
            }
            (unreadable @ Self::Unreadable { .. }, _) | (_, unreadable) => unreadable,
        }
    }

    /// Both values, or all mistakes.
    fn both<A, B>(a: Result<A, Self>, b: Result<B, Self>) -> Result<(A, B), Self> {
        match (a, b) {
            (Ok(a), Ok(b)) => Ok((a, b)),
            (Err(a), Err(b)) => Err(a.and(b)),
            (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
        }
    }

    /// All values, or all mistakes.
    fn all<T>(results: impl IntoIterator<Item = Result<T, Self>>) -> Result<Vec<T>, Self> {
        let (mut values, mut wrong) = (Vec::new(), None::<Self>);
        for result in results {
            match result {
                Ok(value) => values.push(value),
                Err(error) => {
                    wrong = Some(match wrong.take() {
                        Some(earlier) => earlier.and(error),
                        None => error,
                    });
                }
            }
        }
        wrong.map_or(Ok(values), Err)
    }
}

impl Config {
    /// Reads and checks `file`. Opens none of the files that it names.
    pub(crate) fn read(file: &Path) -> Result<Self, ConfigError> {
        let text =
            fs::read_to_string(file).map_err(|cause| ConfigError::Unreadable { file: file.to_owned(), cause })?;
        Self::parse(file, &text)
    }

    /// Checks `text`. Relative paths in it start at the directory of `file`.
    pub(crate) fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        let wrong = |mistakes| ConfigError::Wrong { file: file.to_owned(), mistakes };
        let raw = form::read(text).map_err(wrong)?;
        check::Check::new(file, text).all_of(raw).map_err(wrong)
    }

    /// The refusal of a value on `line`.
    fn wrong(&self, line: usize, sentence: &impl ToString) -> ConfigError {
        ConfigError::Wrong { file: self.file.clone(), mistakes: vec![(line, sentence.to_string())] }
    }
}

#[cfg(test)]
mod example;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
