//! The server's settings for handshakes.

use std::iter;
use std::sync::Arc;

use rustls::PeerMisbehaved;
use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, WebPkiClientVerifier};
use watari_client_hello::{Offers, Outline};
use watari_record::Version;

use crate::certificate::{Certificate, ClientRoots};
use crate::connection_sessions::ConnectionSessions;
use crate::error::HandshakeError;
use crate::extract::TrafficSecrets;
use crate::names::Names;
use crate::policy::{BadPolicy, Policy};
use crate::sessions::{PolicyId, Sessions, Wanted};

/// The options of a [`ServerConfig`].
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// The server sends each certificate to clients that ask for one of its names. Several may share a name, with keys
    /// of different kinds. Then the client's signature schemes decide, ECDSA first.
    pub certificates: Vec<Certificate>,
    /// For clients that send no name, or a name without a certificate. If there is none, the server refuses such
    /// clients. May repeat some of `certificates`.
    pub default_certificates: Vec<Certificate>,
    pub policy: Policy,
    /// Application protocols in the server's order of preference (RFC 7301), each of 1 to 255 bytes. The server refuses
    /// a client that offers only others, but not one that offers none. Empty: the server ignores ALPN.
    pub alpn: Vec<Vec<u8>>,
    /// Whether the server requests or requires client certificates.
    pub client_certificates: ClientCertificates,
    /// A name that limits resumption: a session resumes only under the scope that it was established under. It must be
    /// the same at all nodes that resume each other's sessions.
    pub scope: String,
}

/// Whether the server requests a client certificate.
#[derive(Debug, Clone, Default)]
pub enum ClientCertificates {
    /// It does not.
    #[default]
    NotAsked,
    /// It does, and clients may decline. A certificate that a client sends must be from one of these authorities.
    Optional(ClientRoots),
    /// It does, and refuses clients without a certificate from these authorities.
    Required(ClientRoots),
}

/// The server's settings for handshakes. Cheap to clone.
///
/// A session resumes under the [policy id](PolicyId) that it was established under: policy, ALPN, client certificates and
/// scope must be equal, at this node or another. rustls also compares the server name and the cipher suite. So a client
/// gets nothing by resumption that a full handshake would refuse. Certificates are not part of the policy id, because they
/// are renewed.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    rustls: Arc<rustls::ServerConfig>,
    names: Arc<Names>,
    policy_id: PolicyId,
    /// Set if the server requests client certificates.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    has_tls12: bool,
    has_tls13: bool,
}

impl ServerConfig {
    /// Checks `options`.
    pub fn new(options: &ServerOptions) -> Result<Self, ConfigError> {
        options.check()?;
        let names = Arc::new(Names::new(&options.certificates, &options.default_certificates));
        let provider = options.policy.provider();
        let verifier = options.client_certificates.verifier(&provider)?;
        let mut rustls = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&options.policy.rustls_versions())
            .map_err(ConfigError::Rustls)?
            .with_client_cert_verifier(verifier.clone().unwrap_or_else(WebPkiClientVerifier::no_client_auth))
            .with_cert_resolver(Arc::clone(&names) as _);
        rustls.alpn_protocols.clone_from(&options.alpn);
        rustls.enable_secret_extraction = true;
        Ok(Self {
            rustls: Arc::new(rustls),
            names,
            policy_id: options.policy_id(),
            verifier,
            has_tls12: options.policy.versions.contains(&Version::Tls12),
            has_tls13: options.policy.versions.contains(&Version::Tls13),
        })
    }

    /// The desk for the client that sent this `ClientHello`, and the sessions and seeds that the handshake needs first.
    pub(crate) fn connection_sessions(&self, sessions: &Sessions, hello: &[u8]) -> (ConnectionSessions, Wanted) {
        let offers = Offers::of(hello);
        let is_tls13 = self.has_tls13 && offers.as_ref().is_some_and(|offers| offers.tls13);
        ConnectionSessions::new(sessions, self.policy_id, self.verifier.clone(), is_tls13, offers.as_ref())
    }

    /// Refuses a `ClientHello` for which the RFCs require a specific alert, and rustls sends another or continues. If
    /// the message cannot be parsed, rustls handles it.
    pub(crate) fn check_outline(&self, hello: &[u8]) -> Result<(), HandshakeError> {
        let Some(outline) = Outline::of(hello) else { return Ok(()) };
        let offers = |version: Version| outline.offers(version.iana());
        let is_tls13 = self.has_tls13 && offers(Version::Tls13);
        let is_tls12 = self.has_tls12 && offers(Version::Tls12);
        // SSL 3.0, even together with newer versions (RFC 8446, appendix D.5).
        if outline.legacy_version <= 0x0300 || !(is_tls12 || is_tls13) {
            return Err(HandshakeError::NoCommonVersion);
        }
        // RFC 7507, section 3.
        if outline.is_fallback && self.has_tls13 && !is_tls13 {
            return Err(HandshakeError::Fallback);
        }
        if is_tls13 {
            return check_extensions(&outline);
        }
        // RFC 5746, section 3.6.
        if outline.renegotiates { Err(HandshakeError::RenegotiationInfo) } else { Ok(()) }
    }

    /// Checks that there is a certificate for the requested name, of a kind that the client verifies, and a common
    /// protocol. rustls checks this too, but only after the key exchange.
    pub(crate) fn check(&self, hello: &ClientHello<'_>) -> Result<(), HandshakeError> {
        let name = hello.server_name();
        let candidates = self.names.candidates(name);
        if candidates.is_empty() {
            return Err(name.map_or(HandshakeError::NoName, |name| HandshakeError::UnknownName(name.to_owned())));
        }
        if !candidates.iter().any(|candidate| candidate.signs_with(hello.signature_schemes())) {
            return Err(HandshakeError::NoCommonSignature);
        }
        let ours = &self.rustls.alpn_protocols;
        let is_ours = |protocol: &[u8]| ours.iter().any(|ours| ours == protocol);
        let nothing_in_common = hello.alpn().is_some_and(|mut theirs| !theirs.any(is_ours));
        if nothing_in_common && !ours.is_empty() {
            return Err(HandshakeError::NoCommonAlpn);
        }
        Ok(())
    }

    /// The rustls configuration of one connection. Its TLS 1.3 traffic secrets go to `traffic_secrets`. Its sessions go
    /// to `connection_sessions`, which has decided on early data; `tickets` is their number.
    ///
    /// The server's order of suites decides, unless the client `prefers_chacha20`. Then the client has no hardware for
    /// AES, and its own order decides.
    ///
    /// rustls gives these secrets only to the configuration's `KeyLog`. A log for all connections would have to tell
    /// them apart by the client's random. The client chooses that, and could make two connections collide. A copy of
    /// the configuration is a dozen reference counts and two short lists: about 140 ns, while the handshake takes
    /// hundreds of microseconds.
    pub(crate) fn for_connection(
        &self,
        traffic_secrets: Arc<TrafficSecrets>,
        connection_sessions: &Arc<ConnectionSessions>,
        tickets: usize,
        prefers_chacha20: bool,
    ) -> Arc<rustls::ServerConfig> {
        let mut rustls = (*self.rustls).clone();
        rustls.ignore_client_order = !prefers_chacha20;
        rustls.send_tls13_tickets = tickets;
        rustls.key_log = traffic_secrets;
        rustls.session_storage = Arc::clone(connection_sessions) as _;
        rustls.ticketer = Arc::clone(connection_sessions) as _;
        rustls.max_early_data_size = connection_sessions.early_data_max();
        rustls.send_half_rtt_data = connection_sessions.approves_early_data();
        Arc::new(rustls)
    }
}

impl ServerOptions {
    /// The values that sessions are bound to. The order in a list does not matter for security, so the lists are
    /// sorted.
    fn policy_id(&self) -> PolicyId {
        let Policy { versions, suites, groups } = &self.policy;
        let lists = [
            sorted(versions.iter().map(ToString::to_string)),
            sorted(suites.iter().map(ToString::to_string)),
            sorted(groups.iter().map(ToString::to_string)),
            sorted(self.alpn.iter().cloned()),
            self.client_certificates.policy_id(),
            vec![self.scope.clone().into_bytes()],
        ];
        let lengths = lists.each_ref().map(|list| (list.len() as u64).to_be_bytes());
        let parts = lists.iter().zip(&lengths);
        PolicyId::of(parts.flat_map(|(list, length)| iter::once(&length[..]).chain(list.iter().map(Vec::as_slice))))
    }

    fn check(&self) -> Result<(), ConfigError> {
        if self.certificates.is_empty() && self.default_certificates.is_empty() {
            return Err(ConfigError::NoCertificate);
        }
        if let Some(index) = self.certificates.iter().position(|certificate| certificate.names().is_empty()) {
            return Err(ConfigError::NoName { index });
        }
        let fits = |protocol: &Vec<u8>| (1..=255).contains(&protocol.len());
        if !self.alpn.iter().all(fits) {
            return Err(ConfigError::BadAlpn);
        }
        self.policy.check()?;
        self.check_signatures()
    }

    /// Checks that each version has a suite that a certificate can sign for.
    fn check_signatures(&self) -> Result<(), ConfigError> {
        let certificates = || self.certificates.iter().chain(&self.default_certificates);
        let signs = |version: Version| {
            let mut suites = self.policy.usable_suites().filter(|suite| suite.version() == version);
            suites.any(|suite| certificates().any(|certificate| certificate.fits(suite)))
        };
        match self.policy.versions.iter().find(|version| !signs(**version)) {
            Some(version) => Err(ConfigError::NoKeyForSuites(*version)),
            None => Ok(()),
        }
    }
}

/// RFC 8446, sections 9.2, 4.2.9 and 4.2.11. A client that offers a PSK may omit the signature algorithms. rustls
/// requires them nevertheless, because the server may not accept the PSK.
fn check_extensions(outline: &Outline) -> Result<(), HandshakeError> {
    let (has_groups, has_share) = (outline.has(Outline::SUPPORTED_GROUPS), outline.has(Outline::KEY_SHARE));
    let has_psk = outline.has(Outline::PRE_SHARED_KEY);
    let required = [
        ("signature_algorithms", outline.has(Outline::SIGNATURE_ALGORITHMS)),
        ("supported_groups", has_groups || (has_psk && !has_share)),
        ("key_share", has_share || (has_psk && !has_groups)),
        ("psk_key_exchange_modes", outline.has(Outline::PSK_KEY_EXCHANGE_MODES) || !has_psk),
    ];
    if let Some((name, _)) = required.into_iter().find(|(_, is_there)| !is_there) {
        return Err(HandshakeError::MissingExtension(name));
    }
    if has_psk && outline.extensions.last() != Some(&Outline::PRE_SHARED_KEY) {
        return Err(HandshakeError::Misbehaved(PeerMisbehaved::PskExtensionMustBeLast));
    }
    Ok(())
}

fn sorted<T: Into<Vec<u8>>>(values: impl Iterator<Item = T>) -> Vec<Vec<u8>> {
    let mut values: Vec<_> = values.map(Into::into).collect();
    values.sort();
    values
}

impl ClientCertificates {
    /// The values that sessions are bound to: the requirement, and the authorities.
    fn policy_id(&self) -> Vec<Vec<u8>> {
        let (demand, roots) = match self {
            Self::NotAsked => return vec![b"not asked".to_vec()],
            Self::Optional(roots) => (b"optional".to_vec(), roots),
            Self::Required(roots) => (b"required".to_vec(), roots),
        };
        let mut policy_id = sorted(roots.keys());
        policy_id.insert(0, demand);
        policy_id
    }

    /// `None`: the server requests no certificate.
    fn verifier(&self, provider: &Arc<CryptoProvider>) -> Result<Option<Arc<dyn ClientCertVerifier>>, ConfigError> {
        let builder = |roots: &ClientRoots| {
            WebPkiClientVerifier::builder_with_provider(Arc::clone(roots.store()), Arc::clone(provider))
        };
        let verifier = match self {
            Self::NotAsked => return Ok(None),
            Self::Optional(roots) => builder(roots).allow_unauthenticated().build(),
            Self::Required(roots) => builder(roots).build(),
        };
        verifier.map(Some).map_err(|error| ConfigError::BadClientRoots(error.to_string()))
    }
}

/// Why [`ServerOptions`] make no [`ServerConfig`]. The configuration is at fault.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("a TLS server needs at least one certificate")]
    NoCertificate,
    /// The certificate would never be selected.
    #[error("certificate {index} (counted from 0) has no DNS name, so it can only be a default certificate")]
    NoName {
        /// Its index in [`ServerOptions::certificates`].
        index: usize,
    },
    /// RFC 7301 encodes the length of a name in one byte, and forbids zero.
    #[error("an ALPN protocol name has 1 to 255 bytes")]
    BadAlpn,
    /// The server would refuse every client of a version.
    #[error(transparent)]
    BadPolicy(#[from] BadPolicy),
    /// TLS 1.2 suites include the kind of key that signs.
    #[error("{0} is enabled, but no certificate has a key of a type that its cipher suites use")]
    NoKeyForSuites(Version),
    /// The authorities for client certificates cannot be used.
    #[error("the authorities for client certificates cannot be used: {0}")]
    BadClientRoots(String),
    /// rustls refuses the configuration.
    #[error("the TLS library refuses the configuration: {0}")]
    Rustls(#[source] rustls::Error),
}
