//! `[agent.tls]` and `[[agent.tls.listener]]`

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use watari_handshake::{Group, Policy};
use watari_record::{CipherSuite, Version};

use crate::config::spanned::{Spanned, Texts};
use crate::config::value::{FilePath, ListenerAddress};

/// The versions, as the file names them.
pub(crate) const VERSIONS: [(&str, Version); 2] = [("1.2", Version::Tls12), ("1.3", Version::Tls13)];
/// The protocols that an agent can speak above TLS, in its order of preference.
pub(crate) const ALPN: [&str; 2] = ["h2", "http/1.1"];

/// The parameters of handshakes.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawTls {
    /// The versions that the agent accepts.
    #[serde(default)]
    #[schemars(schema_with = "versions", extend("default" = VERSIONS.map(|(name, _)| name)))]
    versions: Option<Texts>,
    /// The cipher suites, by their IANA names, in the order of preference. The agent takes the first that the client
    /// offers too, and the client's first if that is CHACHA20.
    #[serde(default)]
    #[schemars(schema_with = "suites", extend("default" = names(&Policy::default().suites, CipherSuite::name)))]
    suites: Option<Texts>,
    /// The groups of key exchanges, in the order of preference.
    #[serde(default)]
    #[schemars(schema_with = "groups", extend("default" = names(&Policy::default().groups, Group::name)))]
    groups: Option<Texts>,
    /// The protocols above TLS, in the order of preference. The agent refuses clients that offer only others. Clients
    /// without ALPN get HTTP/1.1.
    #[serde(default)]
    #[schemars(schema_with = "protocols", extend("default" = ALPN))]
    alpn: Option<Texts>,
    /// The authorities of client certificates, in PEM. `client_certificates` requires it.
    client_ca: Option<Spanned<FilePath>>,
    /// Whether the agent requests client certificates.
    #[schemars(extend("default" = Demand::None))]
    client_certificates: Option<Spanned<Demand>>,
    #[serde(default)]
    listener: Vec<Spanned<RawListener>>,
}

/// Parameters for clients that connect to one address of a dispatcher. Keys that are not set are as in `[agent.tls]`.
/// Certificates are the same. A session of one listener does not resume at another.
// The same keys as in `RawTls`: serde cannot flatten tables whose values have spans.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawListener {
    /// The address that clients connect to, or the port alone for all addresses.
    pub(crate) address: Spanned<ListenerAddress>,
    /// As in `[agent.tls]`.
    #[serde(default)]
    #[schemars(schema_with = "versions")]
    versions: Option<Texts>,
    /// As in `[agent.tls]`.
    #[serde(default)]
    #[schemars(schema_with = "suites")]
    suites: Option<Texts>,
    /// As in `[agent.tls]`.
    #[serde(default)]
    #[schemars(schema_with = "groups")]
    groups: Option<Texts>,
    /// As in `[agent.tls]`.
    #[serde(default)]
    #[schemars(schema_with = "protocols")]
    alpn: Option<Texts>,
    /// As in `[agent.tls]`.
    client_ca: Option<Spanned<FilePath>>,
    /// As in `[agent.tls]`.
    client_certificates: Option<Spanned<Demand>>,
}

/// The keys that both kinds of table have.
pub(crate) struct RawTlsParameters {
    pub(crate) versions: Option<Texts>,
    pub(crate) suites: Option<Texts>,
    pub(crate) groups: Option<Texts>,
    pub(crate) alpn: Option<Texts>,
    pub(crate) client_ca: Option<Spanned<FilePath>>,
    pub(crate) client_certificates: Option<Spanned<Demand>>,
}

impl RawTls {
    /// Splits off the listeners.
    pub(crate) fn parts(self) -> (RawTlsParameters, Vec<Spanned<RawListener>>) {
        let Self { versions, suites, groups, alpn, client_ca, client_certificates, listener } = self;
        (RawTlsParameters { versions, suites, groups, alpn, client_ca, client_certificates }, listener)
    }
}

impl RawListener {
    pub(crate) fn parameters(self) -> RawTlsParameters {
        let Self { address: _, versions, suites, groups, alpn, client_ca, client_certificates } = self;
        RawTlsParameters { versions, suites, groups, alpn, client_ca, client_certificates }
    }
}

/// Whether the agent requests a client certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Demand {
    /// The agent requests none.
    None,
    /// Clients may have one.
    Optional,
    /// The agent refuses clients without one.
    Required,
}

fn versions(_: &mut SchemaGenerator) -> Schema {
    list_of(&VERSIONS.map(|(name, _)| name))
}

fn suites(_: &mut SchemaGenerator) -> Schema {
    list_of(&names(&CipherSuite::ALL, CipherSuite::name))
}

fn groups(_: &mut SchemaGenerator) -> Schema {
    list_of(&names(&Group::ALL, Group::name))
}

fn protocols(_: &mut SchemaGenerator) -> Schema {
    list_of(&ALPN)
}

fn list_of(names: &[&str]) -> Schema {
    json_schema!({ "type": "array", "items": { "type": "string", "enum": names }, "uniqueItems": true })
}

fn names<T: Copy>(values: &[T], name: impl Fn(T) -> &'static str) -> Vec<&'static str> {
    values.iter().copied().map(name).collect()
}
