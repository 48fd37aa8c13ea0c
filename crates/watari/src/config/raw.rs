//! The file as TOML: its tables and keys, and the types of values.
//!
//! The documentation of a field is that of its key: `docs/configuration.md` and the JSON schema have it, with the
//! field's type, range and default. The other files of the folder have the tables that their names say. Imports from
//! `value` and `spanned`.

mod cache;
mod dispatcher;
mod multipath;
mod pool;
mod proxy;
mod sessions;
mod takeover;
mod tls;

use std::num::NonZeroUsize;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::Targets;
use watari_values::NodeName;
use watari_values::setting::{As, Span, Within};

pub(super) use self::cache::{DISK_MIB, MEMORY_MIB, OBJECT_MIB_MAX, RawCache, RawRouteCache};
pub(super) use self::dispatcher::{RawAgentAddress, RawChecks, RawDispatcher, RawPassthrough, THREADS_MAX};
pub(super) use self::multipath::{RawMultipath, WITHDRAW};
pub(super) use self::pool::{
    HandoverMode, RawCheck, RawHandover, RawMetric, RawOriginTls, RawPool, RawQueue, RawSticky,
};
pub(super) use self::proxy::{
    AUTH_TIMEOUT, REFUSALS, RawAccessLog, RawAuth, RawClientLimits, RawCompression, RawErrorPages, RawFields,
    RawFormat, RawProxy, RawRate, RawRedirect, RawRequestRules, RawResponseRules, RawRoute,
};
pub(super) use self::sessions::{
    DATABASE_MIB, LIFETIME, REDIS_TIMEOUT, ROTATIONS_MAX, RawSessions, SessionMode, TICKETS_MAX,
};
pub(super) use self::takeover::{ADVERT_INTERVAL, LEASE, RawServiceAddress, RawTakeover};
pub(super) use self::tls::{ALPN, Demand, RawListener, RawTls, RawTlsParameters, VERSIONS};
use super::spanned::Spanned;
use super::value::{Address, FilePath, Level};

/// The default path of the administration socket.
pub(crate) const DEFAULT_ADMIN: &str = "/run/watari/admin.sock";

/// The configuration of a node.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawConfig {
    pub(super) node: Spanned<RawNode>,
    #[serde(default)]
    pub(super) peer: Vec<RawPeer>,
    pub(super) dispatcher: Option<RawDispatcher>,
    pub(super) agent: Option<Spanned<RawAgent>>,
    #[serde(default)]
    pub(super) log: RawLog,
}

/// The node itself, and its links to other nodes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawNode {
    /// The name of the node, as in its certificate.
    pub(super) name: Spanned<NodeName>,
    /// The directory with `ca.pem`, and the certificate and the key of the node: `NAME.pem`, `NAME.key` (`watari pki`).
    pub(super) pki: Spanned<FilePath>,
    /// The address at which the node accepts links from other nodes.
    pub(super) mesh: Spanned<Address>,
    /// The nodes that can be members of the cluster. It has to be the same at all nodes.
    #[serde(default)]
    pub(super) join: JoinRule,
    /// The address that other nodes connect to for links with this node. It needs `join = "certified"`. Without it,
    /// `mesh`.
    pub(super) advertise: Option<Spanned<Address>>,
    /// The administration socket, for `watari ctl`.
    #[serde(default = "admin")]
    pub(super) admin: FilePath,
    /// The address of the metrics server: `http://ADDRESS/metrics`. Without it, the node has none.
    pub(super) metrics: Option<Spanned<Address>>,
    /// The time that an agent's connections get, at SIGTERM, to move to other agents or to end. Keep it below the
    /// timeout of the service manager (`TimeoutStopSec=`).
    #[serde(with = "As::<Span>", default = "drain_timeout")]
    pub(super) drain_timeout: Duration,
    /// Limits on connections to `mesh`.
    #[serde(default)]
    pub(super) limits: watari_mesh::Limits,
}

fn admin() -> FilePath {
    FilePath(DEFAULT_ADMIN.into())
}

/// Well below the time that service managers give a service to end (systemd: 90 s).
fn drain_timeout() -> Duration {
    Duration::from_secs(30)
}

/// The rule for membership of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum JoinRule {
    /// The node accepts only its peers.
    #[default]
    Configured,
    /// Every dispatcher and agent with a certificate of the cluster's authority is a member. The node finds them through
    /// its peers.
    Certified,
}

/// Another node. The list may contain this node, so that all nodes can have the same list.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPeer {
    /// The name of the node, as in its certificate.
    pub(super) name: Spanned<NodeName>,
    /// The address at which the node accepts links.
    pub(super) mesh: Spanned<Address>,
}

/// The role agent: terminates TLS, and serves `[agent.files]` or `[agent.proxy]`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAgent {
    /// The address at which the agent accepts legs from dispatchers.
    pub(super) legs: Spanned<Address>,
    /// The threads that serve connections, with the main thread. The default is the number of processors.
    #[schemars(extend("maximum" = THREADS_MAX))]
    pub(super) threads: Option<Spanned<NonZeroUsize>>,
    #[serde(default)]
    pub(super) certificate: Vec<RawCertificate>,
    pub(super) tls: Option<Spanned<RawTls>>,
    pub(super) files: Option<RawFiles>,
    pub(super) proxy: Option<Spanned<RawProxy>>,
    #[serde(default)]
    pub(super) sessions: RawSessions,
    #[serde(default)]
    pub(super) limits: watari_agent::Limits,
}

/// A certificate for handshakes. Several may have the same name, with keys of different kinds. An agent without
/// certificates does no handshakes and needs no private key; it takes over connections from other agents.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCertificate {
    /// The certificate and its intermediate certificates, in PEM.
    pub(super) chain: Spanned<FilePath>,
    /// The private key, in PEM. The agent refuses a file that all users can read.
    pub(super) key: Spanned<FilePath>,
    /// Whether clients that send no server name, or an unknown one, get this certificate.
    #[serde(default)]
    pub(super) default: bool,
}

/// A directory whose files the agent serves.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFiles {
    /// The directory.
    pub(super) root: Spanned<FilePath>,
}

/// The log, on the standard error.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLog {
    /// The format of lines.
    pub(super) format: LogFormat,
    /// The lines that are logged.
    pub(super) level: Level,
    /// The most lines of one kind in 10 s. After that, a summary counts the others. Lines of the levels debug and trace
    /// have no limit.
    #[serde(with = "As::<Within<1, 1_000_000>>")]
    pub(super) repeats_max: usize,
}

impl Default for RawLog {
    fn default() -> Self {
        Self {
            format: LogFormat::Text,
            level: Level(Targets::new().with_default(tracing::Level::INFO)),
            // Enough to show a problem, in a few kilobytes.
            repeats_max: 50,
        }
    }
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// The line of the byte at `offset`, counted from 1.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    // Called for each value of a document.
    1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..offset.min(text.len())]).count()
}
