//! What a server offers in its handshakes.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, NoServerSessionStorage, WebPkiClientVerifier};

use crate::certificate::{Certificate, ClientRoots};
use crate::error::HandshakeError;
use crate::extract::TrafficSecrets;
use crate::names::Names;

/// What a [`ServerConfig`] is made of.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// Each is served to clients that ask for a name it is issued for. Several may share a name, with keys of different
    /// kinds: the client's signature schemes decide, ECDSA first.
    pub certificates: Vec<Certificate>,
    /// Served to clients that ask for no name, or for one that no certificate is issued for. Where there is none, such
    /// clients are refused. May repeat some of `certificates`.
    pub default_certificates: Vec<Certificate>,
    /// Application protocols, the server's preference first (RFC 7301), each of 1 to 255 bytes. A client that
    /// offers only others is refused; one that offers none is not. Empty: ALPN is not spoken.
    pub alpn: Vec<Vec<u8>>,
    /// Whether clients must show who they are.
    pub client_certificates: ClientCertificates,
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
/// TLS 1.3 and 1.2 with the AEAD suites and forward secrecy; X25519MLKEM768 before X25519 and the NIST curves, as the
/// client prefers. Sessions are resumed from tickets alone, sealed with keys that this value draws and keeps to itself.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    rustls: Arc<rustls::ServerConfig>,
    names: Arc<Names>,
}

impl ServerConfig {
    /// Checks `options`.
    pub fn new(options: &ServerOptions) -> Result<Self, ConfigError> {
        options.check()?;
        let names = Arc::new(Names::new(&options.certificates, &options.default_certificates));
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut rustls = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(ConfigError::Rustls)?
            .with_client_cert_verifier(options.client_certificates.verifier(&provider)?)
            .with_cert_resolver(Arc::clone(&names) as _);
        rustls.alpn_protocols.clone_from(&options.alpn);
        rustls.session_storage = Arc::new(NoServerSessionStorage {});
        rustls.ticketer = aws_lc_rs::Ticketer::new().map_err(ConfigError::Rustls)?;
        rustls.enable_secret_extraction = true;
        Ok(Self { rustls: Arc::new(rustls), names })
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

    /// The rustls configuration of one connection, whose TLS 1.3 traffic secrets go to `traffic_secrets`.
    ///
    /// rustls gives these secrets to a `KeyLog` of the configuration and to nobody else. A log shared by all connections
    /// would have to tell them apart by the client's random, which the client chooses: two connections could be made to
    /// collide. A copy of the configuration is a dozen reference counts and two short lists: some
    /// 140 ns, where the handshake takes hundreds of microseconds.
    pub(crate) fn for_connection(&self, traffic_secrets: Arc<TrafficSecrets>) -> Arc<rustls::ServerConfig> {
        let mut rustls = (*self.rustls).clone();
        rustls.key_log = traffic_secrets;
        Arc::new(rustls)
    }
}

impl ServerOptions {
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
        Ok(())
    }
}

impl ClientCertificates {
    fn verifier(&self, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, ConfigError> {
        let builder = |roots: &ClientRoots| {
            WebPkiClientVerifier::builder_with_provider(Arc::clone(roots.store()), Arc::clone(provider))
        };
        let verifier = match self {
            Self::NotAsked => return Ok(WebPkiClientVerifier::no_client_auth()),
            Self::Optional(roots) => builder(roots).allow_unauthenticated().build(),
            Self::Required(roots) => builder(roots).build(),
        };
        verifier.map_err(|error| ConfigError::BadClientRoots(error.to_string()))
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
    /// The authorities for client certificates cannot be used.
    #[error("the authorities for client certificates cannot be used: {0}")]
    BadClientRoots(String),
    /// rustls refuses, for want of randomness for the ticket keys.
    #[error("the TLS library refuses the configuration: {0}")]
    Rustls(#[source] rustls::Error),
}
