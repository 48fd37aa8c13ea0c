//! TLS to origins: trusted authorities, and the client certificate.

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

/// TLS settings for origins.
#[derive(Debug, Clone)]
pub struct OriginTls {
    /// Trusted authorities and the client certificate. The ALPN settings are replaced.
    pub config: ClientConfig,
    /// The server name (SNI) that is sent, and that the certificate must contain. `None`: the host of the origin's
    /// address.
    pub server_name: Option<ServerName<'static>>,
}

/// The files cannot be used for TLS to origins.
#[derive(Debug, thiserror::Error)]
pub enum InvalidTls {
    /// The text is not PEM, or has no section of the required kind.
    #[error("{0}")]
    Pem(#[from] pem::Error),
    /// A certificate cannot be parsed, or the key belongs to another certificate.
    #[error("{0}")]
    Rustls(#[from] rustls::Error),
    /// There is no certificate in the configured text, or in the system's store.
    #[error("there are no CA certificates")]
    NoAuthorities,
}

/// Trusts the authorities in `roots` (PEM), or else those of the system. `identity` is a certificate chain and its key,
/// both PEM, for origins that request client certificates.
pub fn client_config(roots: Option<&[u8]>, identity: Option<(&[u8], &[u8])>) -> Result<ClientConfig, InvalidTls> {
    let roots = roots.map_or_else(system_roots, roots_of)?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let builder = ClientConfig::builder_with_provider(provider.into()).with_safe_default_protocol_versions()?;
    let builder = builder.with_root_certificates(roots);
    let Some((chain, key)) = identity else { return Ok(builder.with_no_client_auth()) };
    let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>()?;
    Ok(builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key)?)?)
}

fn roots_of(pem: &[u8]) -> Result<RootCertStore, InvalidTls> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate?)?;
    }
    if roots.is_empty() { Err(InvalidTls::NoAuthorities) } else { Ok(roots) }
}

/// Skips certificates of the system that cannot be parsed: every such store contains old ones.
fn system_roots() -> Result<RootCertStore, InvalidTls> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if added == 0 { Err(InvalidTls::NoAuthorities) } else { Ok(roots) }
}
