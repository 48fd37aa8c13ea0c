//! The certificate that a node presents to peers, and the one that it requires of them.

mod any_node;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use watari_values::{NodeName, Role};

use crate::{PkiError, files, peer_identity};

/// A node's certificate and key.
#[derive(Clone)]
pub struct Identity {
    node: NodeName,
    roles: BTreeSet<Role>,
    client: Arc<ClientConfig>,
    any: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Identity {
    /// Reads the identity of `node` from `dir`: `ca.pem`, `NODE.pem`, `NODE.key`.
    ///
    /// Fails if peers would refuse it: a certificate of another authority or of another node, an expired one, or one
    /// with another key.
    pub fn load(dir: &Path, node: &NodeName) -> Result<Self, PkiError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let ca_path = files::ca_certificate(dir);
        let roots = Arc::new(root(&ca_path)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(files::content(&ca_path))?;
        let path = files::node_certificate(dir, node);
        let certificate = read_certificate(&path)?;
        let key_path = files::node_key(dir, node);
        let key = PrivateKeyDer::from_pem_slice(&files::read_key(&key_path)?).map_err(files::content(&key_path))?;
        verifier.verify_client_cert(&certificate, &[], UnixTime::now()).map_err(files::content(&path))?;
        let (found, roles) =
            peer_identity(&certificate).map_err(|cause| PkiError::Certificate { path: path.clone(), cause })?;
        if found != *node {
            return Err(PkiError::OtherNode { path, found });
        }
        let any = any_node::verifier(Arc::clone(&roots), &provider).map_err(files::content(&ca_path))?;
        let client = client_config(&provider, roots, certificate.clone(), key.clone_key());
        let client = client.map_err(files::content(&key_path))?;
        let server = server_config(&provider, verifier, certificate, key);
        Ok(Self {
            node: found,
            roles,
            any: Arc::new(trusting(client.clone(), any)),
            client: Arc::new(client),
            server: Arc::new(server.map_err(files::content(&key_path))?),
        })
    }

    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// The roles that the certificate allows.
    pub fn roles(&self) -> &BTreeSet<Role> {
        &self.roles
    }

    /// For dialing a node. TLS 1.3 only. Presents the node's certificate, and requires a certificate of the cluster's
    /// authority for the dialed name (a node's name is its server name).
    pub fn client_config(&self) -> &Arc<ClientConfig> {
        &self.client
    }

    /// For dialing an address whose node is not known yet. Like [`Identity::client_config`], but for any name. The
    /// caller has to check the certificate ([`peer_identity`]) before it trusts the peer.
    pub fn client_config_for_any(&self) -> &Arc<ClientConfig> {
        &self.any
    }

    /// For accepting. TLS 1.3 only. Presents the node's certificate, and requires one of the cluster's authority.
    pub fn server_config(&self) -> &Arc<ServerConfig> {
        &self.server
    }
}

fn read_certificate(path: &Path) -> Result<CertificateDer<'static>, PkiError> {
    CertificateDer::from_pem_slice(&files::read(path)?).map_err(files::content(path))
}

fn root(path: &Path) -> Result<RootCertStore, PkiError> {
    let mut roots = RootCertStore::empty();
    roots.add(read_certificate(path)?).map_err(files::content(path))?;
    Ok(roots)
}

/// Without resumption: links are long-lived, and a session would outlive the certificate that it depends on.
fn client_config(
    provider: &Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
) -> Result<ClientConfig, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider)).with_protocol_versions(&[&TLS13])?;
    let mut config = builder.with_root_certificates(roots).with_client_auth_cert(vec![certificate], key)?;
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn trusting(mut config: ClientConfig, verifier: Arc<dyn ServerCertVerifier>) -> ClientConfig {
    config.dangerous().set_certificate_verifier(verifier);
    config
}

fn server_config(
    provider: &Arc<CryptoProvider>,
    verifier: Arc<dyn ClientCertVerifier>,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider)).with_protocol_versions(&[&TLS13])?;
    let mut config = builder.with_client_cert_verifier(verifier).with_single_cert(vec![certificate], key)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

#[cfg(test)]
mod tests;
