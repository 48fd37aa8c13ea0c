//! What a server offers in its handshakes.

use std::iter;
use std::sync::Arc;

use rustls::PeerMisbehaved;
use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, WebPkiClientVerifier};
use watari_record::Version;
use watari_wire::client_hello::{Offers, Outline};

use crate::certificate::{Certificate, ClientRoots};
use crate::desk::Desk;
use crate::error::HandshakeError;
use crate::extract::TrafficSecrets;
use crate::names::Names;
use crate::policy::{BadPolicy, Policy};
use crate::sessions::{Sessions, Terms, Wanted};

/// What a [`ServerConfig`] is made of.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// Each is served to clients that ask for a name it is issued for. Several may share a name, with keys of different
    /// kinds: the client's signature schemes decide, ECDSA first.
    pub certificates: Vec<Certificate>,
    /// Served to clients that ask for no name, or for one that no certificate is issued for. Where there is none, such
    /// clients are refused. May repeat some of `certificates`.
    pub default_certificates: Vec<Certificate>,
    /// Versions, cipher suites, groups.
    pub policy: Policy,
    /// Application protocols, the server's preference first (RFC 7301), each of 1 to 255 bytes. A client that
    /// offers only others is refused; one that offers none is not. Empty: ALPN is not spoken.
    pub alpn: Vec<Vec<u8>>,
    /// Whether clients must show who they are.
    pub client_certificates: ClientCertificates,
    /// What sessions belong to besides: those of another scope are not resumed. The same at every node that shall resume them.
    pub scope: String,
}

/// Whether clients are asked for a certificate.
#[derive(Debug, Clone, Default)]
pub enum ClientCertificates {
    /// They are not.
    #[default]
    NotAsked,
    /// They are, and may decline; a certificate they do show must be one of these authorities'.
    Optional(ClientRoots),
    /// They are, and without a certificate of these authorities they are refused.
    Required(ClientRoots),
}

/// What a server offers in its handshakes. Cheap to clone.
///
/// A session is resumed under the [terms](Terms) under which it was established, by any value whose options have the same
/// policy, ALPN, demands on clients and scope, at this node or another; rustls adds the server's name and the cipher suite. So
/// nobody gets by resumption what a full handshake would not give. Certificates are no part of it: they are renewed.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    rustls: Arc<rustls::ServerConfig>,
    names: Arc<Names>,
    terms: Terms,
    /// Where clients are asked for certificates.
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
            terms: options.terms(),
            verifier,
            has_tls12: options.policy.versions.contains(&Version::Tls12),
            has_tls13: options.policy.versions.contains(&Version::Tls13),
        })
    }

    /// The desk for a client whose `ClientHello` is this message, and what is wanted for it.
    pub(crate) fn desk(&self, sessions: &Sessions, hello: &[u8]) -> (Desk, Wanted) {
        let offers = Offers::of(hello);
        let is_tls13 = self.has_tls13 && offers.as_ref().is_some_and(|offers| offers.tls13);
        Desk::new(sessions, self.terms, self.verifier.clone(), is_tls13, offers.as_ref())
    }

    /// Refuses a `ClientHello` that the RFCs have refused with a certain alert, where rustls has another or goes on. What cannot be
    /// read is left to rustls.
    pub(crate) fn check_outline(&self, hello: &[u8]) -> Result<(), HandshakeError> {
        let Some(outline) = Outline::of(hello) else { return Ok(()) };
        let offers = |version: Version| outline.offers(version.iana());
        let is_tls13 = self.has_tls13 && offers(Version::Tls13);
        let is_tls12 = self.has_tls12 && offers(Version::Tls12);
        // RFC 8446, appendix D.5: SSL 3.0, even beside newer versions.
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

    /// Whether there is a certificate for the name that `hello` asks for, of a kind the client verifies, and a protocol
    /// in common. rustls would find out as well, but only after it has exchanged keys.
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

    /// The rustls configuration of one connection, whose TLS 1.3 traffic secrets go to `traffic_secrets`, and whose sessions,
    /// as many as there are `tickets`, to `desk`, which has decided on early data.
    ///
    /// Our order of suites decides, unless the client `prefers_chacha20`: then it has no hardware for AES, and its own order does.
    ///
    /// rustls gives these secrets to a `KeyLog` of the configuration and to nobody else. A log shared by all connections
    /// would have to tell them apart by the client's random, which the client chooses: two connections could be made to
    /// collide. A copy of the configuration is a dozen reference counts and two short lists: some
    /// 140 ns, where the handshake takes hundreds of microseconds.
    pub(crate) fn for_connection(
        &self,
        traffic_secrets: Arc<TrafficSecrets>,
        desk: &Arc<Desk>,
        tickets: usize,
        prefers_chacha20: bool,
    ) -> Arc<rustls::ServerConfig> {
        let mut rustls = (*self.rustls).clone();
        rustls.ignore_client_order = !prefers_chacha20;
        rustls.send_tls13_tickets = tickets;
        rustls.key_log = traffic_secrets;
        rustls.session_storage = Arc::clone(desk) as _;
        rustls.ticketer = Arc::clone(desk) as _;
        rustls.max_early_data_size = desk.early_data_max();
        rustls.send_half_rtt_data = desk.approves_early_data();
        Arc::new(rustls)
    }
}

impl ServerOptions {
    /// What sessions are bound to. In each list the order is a matter of taste, and not of trust.
    fn terms(&self) -> Terms {
        let Policy { versions, suites, groups } = &self.policy;
        let lists = [
            sorted(versions.iter().map(ToString::to_string)),
            sorted(suites.iter().map(ToString::to_string)),
            sorted(groups.iter().map(ToString::to_string)),
            sorted(self.alpn.iter().cloned()),
            self.client_certificates.terms(),
            vec![self.scope.clone().into_bytes()],
        ];
        let lengths = lists.each_ref().map(|list| (list.len() as u64).to_be_bytes());
        let parts = lists.iter().zip(&lengths);
        Terms::of(parts.flat_map(|(list, length)| iter::once(&length[..]).chain(list.iter().map(Vec::as_slice))))
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

    /// Whether each version has a suite that a certificate can sign for.
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

/// RFC 8446, sections 9.2, 4.2.9 and 4.2.11. A client that offers a PSK may leave the signature algorithms out there; rustls wants
/// them all the same, for the PSK may not be accepted.
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
    /// What sessions are bound to: the demand, and the authorities.
    fn terms(&self) -> Vec<Vec<u8>> {
        let (demand, roots) = match self {
            Self::NotAsked => return vec![b"not asked".to_vec()],
            Self::Optional(roots) => (b"optional".to_vec(), roots),
            Self::Required(roots) => (b"required".to_vec(), roots),
        };
        let mut terms = sorted(roots.keys());
        terms.insert(0, demand);
        terms
    }

    /// `None`: no client is asked.
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
    /// Nothing could be served.
    #[error("a TLS server needs at least one certificate")]
    NoCertificate,
    /// No client could ask for it.
    #[error("certificate {index} (counted from 0) is issued for no DNS name, so it can only be a default certificate")]
    NoName {
        /// Its place in [`ServerOptions::certificates`].
        index: usize,
    },
    /// RFC 7301 gives a name one byte of length, and none of it zero.
    #[error("an ALPN protocol name has 1 to 255 bytes")]
    BadAlpn,
    /// Every client of a version would be refused.
    #[error(transparent)]
    BadPolicy(#[from] BadPolicy),
    /// TLS 1.2 suites name the kind of key that signs.
    #[error("{0} is accepted, and no certificate has a key of the kind that its cipher suites sign with")]
    NoKeyForSuites(Version),
    /// The authorities for client certificates cannot be used.
    #[error("the authorities for client certificates cannot be used: {0}")]
    BadClientRoots(String),
    /// rustls refuses.
    #[error("the TLS library refuses the configuration: {0}")]
    Rustls(#[source] rustls::Error),
}
