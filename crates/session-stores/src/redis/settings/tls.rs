//! TLS to a Redis server.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{BadRedisSettings, read, read_secret};

/// The trusted authorities, and our certificate.
#[derive(Clone)]
pub struct RedisTls(Arc<ClientConfig>);

impl RedisTls {
    /// Trusts the authorities in the PEM file `authorities`, or else those of the system. `client`: our certificate
    /// chain and its key, both PEM, for servers that request them. Other users must not be able to read the key.
    pub fn load(authorities: Option<&Path>, client: Option<(&Path, &Path)>) -> Result<Self, BadRedisSettings> {
        let roots = authorities.map_or_else(system_roots, roots_of)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = builder.with_root_certificates(roots);
        let config = match client {
            Some((chain, key)) => builder.with_client_auth_cert(certificates(chain)?, private_key(key)?)?,
            None => builder.with_no_client_auth(),
        };
        Ok(Self(Arc::new(config)))
    }

    pub(in crate::redis) async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        TlsConnector::from(Arc::clone(&self.0)).connect(name, stream).await
    }
}

impl fmt::Debug for RedisTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisTls").finish_non_exhaustive()
    }
}

fn roots_of(path: &Path) -> Result<RootCertStore, BadRedisSettings> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

/// Skips certificates of the system that cannot be parsed: every such directory contains old ones.
fn system_roots() -> Result<RootCertStore, BadRedisSettings> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    if roots.add_parsable_certificates(found.certs).0 == 0 {
        let why = found.errors.first().map_or_else(|| "none found".to_owned(), ToString::to_string);
        return Err(BadRedisSettings::NoAuthorities(why));
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, BadRedisSettings> {
    let content = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    match found {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(content_error(path, "contains no certificate")),
        Err(cause) => Err(content_error(path, &cause.to_string())),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, BadRedisSettings> {
    let content = read_secret(path)?;
    PrivateKeyDer::from_pem_slice(&content).map_err(|cause| content_error(path, &cause.to_string()))
}

fn content_error(path: &Path, why: &str) -> BadRedisSettings {
    BadRedisSettings::Content { path: path.to_owned(), why: why.to_owned() }
}
