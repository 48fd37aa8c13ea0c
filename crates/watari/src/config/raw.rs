//! The file as TOML: its tables and keys, and the types of values.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;
use tracing_subscriber::filter::Targets;
use watari_balance::{BulkPolicy, HandshakePolicy};
use watari_values::NodeName;

use super::limits::{AgentLimits, DispatcherLimits, NodeLimits, Within};
use super::proxy::RawProxy;
use super::value::{Address, Level, ListenerAddress, Prefix, Span, Weight};

#[derive(Deserialize)]
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawNode {
    pub(super) name: Spanned<NodeName>,
    pub(super) pki: Spanned<PathBuf>,
    pub(super) mesh: Spanned<Address>,
    pub(super) join: Option<JoinRule>,
    pub(super) advertise: Option<Spanned<Address>>,
    pub(super) admin: Option<PathBuf>,
    pub(super) metrics: Option<Spanned<Address>>,
    pub(super) drain_timeout: Option<Span>,
    #[serde(default)]
    pub(super) limits: NodeLimits,
}

/// The rule for membership of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum JoinRule {
    Configured,
    Certified,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPeer {
    pub(super) name: Spanned<NodeName>,
    pub(super) mesh: Spanned<Address>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDispatcher {
    /// Elements of arrays are checked later: TOML reports an error in one of them at the line where the array begins.
    pub(super) listen: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    pub(super) listen_proxy: Vec<Spanned<String>>,
    pub(super) proxy_from: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    pub(super) redirect: Vec<Spanned<String>>,
    pub(super) agents: Spanned<Vec<RawAgentAddress>>,
    pub(super) discover: Option<Spanned<bool>>,
    pub(super) threads: Option<Spanned<NonZeroUsize>>,
    pub(super) handshake: Option<HandshakePolicy>,
    pub(super) bulk: Option<BulkPolicy>,
    pub(super) client_prefix: Option<Prefix>,
    pub(super) slow_start: Option<Span>,
    #[serde(default)]
    pub(super) check: RawChecks,
    #[serde(default)]
    pub(super) passthrough: Vec<RawPassthrough>,
    #[serde(default)]
    pub(super) limits: DispatcherLimits,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAgentAddress {
    pub(super) name: Spanned<NodeName>,
    pub(super) legs: Spanned<Address>,
    #[serde(default)]
    pub(super) weight: Weight,
    pub(super) connections_max: Option<NonZeroUsize>,
}

/// `[[dispatcher.passthrough]]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPassthrough {
    pub(super) names: Spanned<Vec<Spanned<String>>>,
    pub(super) backends: Spanned<Vec<Spanned<String>>>,
    pub(super) proxy_protocol: Option<ProxyProtocol>,
}

/// The version of the PROXY protocol that carries the client's address.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ProxyProtocol {
    V2,
}

/// `[dispatcher.check]`
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawChecks {
    pub(super) interval: Option<Span>,
    pub(super) timeout: Option<Span>,
    pub(super) fall: Option<NonZeroU32>,
    pub(super) rise: Option<NonZeroU32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAgent {
    pub(super) legs: Spanned<Address>,
    #[serde(default)]
    pub(super) certificate: Vec<RawCertificate>,
    pub(super) tls: Option<Spanned<RawTls>>,
    pub(super) files: Option<RawFiles>,
    pub(super) proxy: Option<Spanned<RawProxy>>,
    #[serde(default)]
    pub(super) sessions: RawSessions,
    #[serde(default)]
    pub(super) limits: AgentLimits,
}

/// `[agent.sessions]`
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSessions {
    pub(super) mode: Option<Spanned<SessionMode>>,
    pub(super) lifetime: Option<Spanned<Span>>,
    pub(super) rotation: Option<Spanned<Span>>,
    pub(super) tickets: Option<Spanned<usize>>,
    pub(super) memory_mib: Option<NonZeroUsize>,
    pub(super) single_use: Option<Spanned<bool>>,
    pub(super) early_data: Option<Spanned<bool>>,
    pub(super) keys_file: Option<Spanned<PathBuf>>,
    pub(super) database: Option<Spanned<PathBuf>>,
    pub(super) database_mib: Option<Spanned<NonZeroU32>>,
    pub(super) redis: Option<Spanned<RawRedis>>,
}

/// `[agent.sessions.redis]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRedis {
    pub(super) url: String,
    pub(super) username: Option<Spanned<String>>,
    pub(super) password_file: Option<Spanned<PathBuf>>,
    pub(super) ca: Option<Spanned<PathBuf>>,
    pub(super) certificate: Option<Spanned<PathBuf>>,
    pub(super) key: Option<Spanned<PathBuf>>,
    pub(super) timeout: Option<Span>,
}

/// How sessions are shared.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SessionMode {
    Private,
    Tickets,
    Push,
    Owner,
    Redis,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCertificate {
    pub(super) chain: Spanned<PathBuf>,
    pub(super) key: Spanned<PathBuf>,
    #[serde(default)]
    pub(super) default: bool,
}

/// A list of names.
pub(super) type Names = Spanned<Vec<Spanned<String>>>;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTls {
    versions: Option<Names>,
    suites: Option<Names>,
    groups: Option<Names>,
    alpn: Option<Names>,
    client_ca: Option<Spanned<PathBuf>>,
    client_certificates: Option<Spanned<Demand>>,
    #[serde(default)]
    listener: Vec<Spanned<RawListener>>,
}

/// The same keys as in [`RawTls`]: serde cannot flatten tables whose values have spans.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawListener {
    pub(super) address: Spanned<ListenerAddress>,
    versions: Option<Names>,
    suites: Option<Names>,
    groups: Option<Names>,
    alpn: Option<Names>,
    client_ca: Option<Spanned<PathBuf>>,
    client_certificates: Option<Spanned<Demand>>,
}

/// The keys that both kinds of table have.
pub(super) struct RawTlsParameters {
    pub(super) versions: Option<Names>,
    pub(super) suites: Option<Names>,
    pub(super) groups: Option<Names>,
    pub(super) alpn: Option<Names>,
    pub(super) client_ca: Option<Spanned<PathBuf>>,
    pub(super) client_certificates: Option<Spanned<Demand>>,
}

impl RawTls {
    /// Splits off the listeners.
    pub(super) fn parts(self) -> (RawTlsParameters, Vec<Spanned<RawListener>>) {
        let Self { versions, suites, groups, alpn, client_ca, client_certificates, listener } = self;
        (RawTlsParameters { versions, suites, groups, alpn, client_ca, client_certificates }, listener)
    }
}

impl RawListener {
    pub(super) fn parameters(self) -> RawTlsParameters {
        let Self { address: _, versions, suites, groups, alpn, client_ca, client_certificates } = self;
        RawTlsParameters { versions, suites, groups, alpn, client_ca, client_certificates }
    }
}

/// Whether the agent requests a client certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Demand {
    None,
    Optional,
    Required,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFiles {
    pub(super) root: Spanned<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLog {
    pub(super) format: LogFormat,
    pub(super) level: Level,
    pub(super) repeats_max: Within<1, 1_000_000>,
}

/// The most lines of a kind in 10 s: enough to show a problem, in a few kilobytes.
const LOG_REPEATS_MAX: usize = 50;

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// The line of the byte at `offset`, counted from 1.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    1 + text.char_indices().take_while(|(at, _)| *at < offset).filter(|(_, c)| *c == '\n').count()
}

impl Default for RawLog {
    fn default() -> Self {
        Self {
            format: LogFormat::Text,
            level: Level(Targets::new().with_default(tracing::Level::INFO)),
            repeats_max: Within(LOG_REPEATS_MAX),
        }
    }
}
