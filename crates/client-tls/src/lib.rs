//! TLS settings of clients: connections to origins, Redis servers, receivers of alerts and measured servers.
//!
//! * [`ClientTls`] has all settings and makes a [`ClientConfig`]. [`from_pem`] makes one from PEM texts.
//! * [`system_roots`] and [`roots_of`] are the trusted authorities.
//!
//! This crate reads no file except the system's certificates. Callers read their files, and name them in errors.

use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

/// The settings of a client. [`ClientTls::verified_by`] has the defaults.
#[derive(Debug)]
pub struct ClientTls {
    /// Cipher suites, groups and signature algorithms.
    pub provider: Arc<CryptoProvider>,
    pub versions: Vec<&'static SupportedProtocolVersion>,
    pub verifier: Verifier,
    /// A certificate chain and its key, for servers that request a client certificate.
    pub certificate: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    /// The offered protocols, in order of preference. Empty: the client offers none.
    pub alpn: Vec<Vec<u8>>,
}

/// What the server's certificate is verified by.
#[derive(Debug)]
pub enum Verifier {
    /// One of these authorities has issued it for the server's name.
    Roots(RootCertStore),
    Custom(Arc<dyn ServerCertVerifier>),
}

/// The system has no certificates of authorities that can be parsed. The text is the cause.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the system's certificates cannot be used: {0}")]
pub struct NoSystemRoots(pub String);

/// PEM texts cannot be used for TLS.
#[derive(Debug, thiserror::Error)]
pub enum PemError {
    /// The text is not PEM, or has no section of the required kind.
    #[error("{0}")]
    Pem(#[from] pem::Error),
    /// A certificate cannot be parsed, or the key belongs to another certificate.
    #[error("{0}")]
    Rustls(#[from] rustls::Error),
    /// There is no certificate in the text of the authorities, or in the system's store.
    #[error("there are no CA certificates")]
    NoAuthorities,
}

impl ClientTls {
    /// The versions and cipher suites of rustls, without a client certificate and without ALPN.
    pub fn verified_by(verifier: Verifier) -> Self {
        Self {
            provider: Arc::new(aws_lc_rs::default_provider()),
            versions: rustls::DEFAULT_VERSIONS.to_vec(),
            verifier,
            certificate: None,
            alpn: Vec::new(),
        }
    }

    /// Checks the settings. Fails if the certificate and its key do not match, or if no cipher suite has one of the
    /// versions.
    pub fn into_config(self) -> Result<ClientConfig, rustls::Error> {
        let builder = ClientConfig::builder_with_provider(self.provider).with_protocol_versions(&self.versions)?;
        let builder = match self.verifier {
            Verifier::Roots(roots) => builder.with_root_certificates(roots),
            Verifier::Custom(verifier) => builder.dangerous().with_custom_certificate_verifier(verifier),
        };
        let mut config = match self.certificate {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key)?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = self.alpn;
        Ok(config)
    }
}

/// Trusts the authorities in `roots` (PEM), or else those of the system. `identity` is a certificate chain and its key,
/// both PEM, for servers that request client certificates.
pub fn from_pem(roots: Option<&[u8]>, identity: Option<(&[u8], &[u8])>) -> Result<ClientConfig, PemError> {
    let roots = match roots {
        Some(roots) => roots_of(certificates(roots)?)?,
        None => system_roots().map_err(|_| PemError::NoAuthorities)?,
    };
    if roots.is_empty() {
        return Err(PemError::NoAuthorities);
    }
    let certificate = match identity {
        Some((chain, key)) => Some((certificates(chain)?, PrivateKeyDer::from_pem_slice(key)?)),
        None => None,
    };
    Ok(ClientTls { certificate, ..ClientTls::verified_by(Verifier::Roots(roots)) }.into_config()?)
}

/// The authorities that this system trusts. Skips certificates that cannot be parsed: every such store contains old
/// ones.
pub fn system_roots() -> Result<RootCertStore, NoSystemRoots> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    if roots.add_parsable_certificates(found.certs).0 == 0 {
        return Err(NoSystemRoots(
            found.errors.first().map_or_else(|| "there are none".to_owned(), ToString::to_string),
        ));
    }
    Ok(roots)
}

/// These authorities. Fails at the first certificate that cannot be parsed.
pub fn roots_of(
    certificates: impl IntoIterator<Item = CertificateDer<'static>>,
) -> Result<RootCertStore, rustls::Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate)?;
    }
    Ok(roots)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    CertificateDer::pem_slice_iter(pem).collect()
}
