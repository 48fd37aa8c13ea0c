//! TLS to a Redis server.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use watari_client_tls::{ClientTls, NoSystemRoots, Verifier, roots_of, system_roots};

use super::{BadRedisSettings, read, read_secret};

/// The trusted authorities, and our certificate.
#[derive(Clone)]
pub struct RedisTls(Arc<ClientConfig>);

impl RedisTls {
    /// Trusts the authorities in the PEM file `authorities`, or else those of the system. `client`: our certificate
    /// chain and its key, both PEM, for servers that request them. Other users must not be able to read the key.
    pub fn load(authorities: Option<&Path>, client: Option<(&Path, &Path)>) -> Result<Self, BadRedisSettings> {
        let roots = match authorities {
            Some(path) => roots_of(certificates(path)?)?,
            None => system_roots().map_err(|NoSystemRoots(why)| BadRedisSettings::NoAuthorities(why))?,
        };
        let certificate =
            client.map(|(chain, key)| Ok::<_, BadRedisSettings>((certificates(chain)?, private_key(key)?)));
        let settings =
            ClientTls { certificate: certificate.transpose()?, ..ClientTls::verified_by(Verifier::Roots(roots)) };
        Ok(Self(Arc::new(settings.into_config()?)))
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
