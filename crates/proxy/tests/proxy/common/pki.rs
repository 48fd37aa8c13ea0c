//! Certificates of origins and clients.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use watari_client_tls::from_pem;
use watari_proxy::{HttpVersion, OriginTls, Transport};

/// An authority, a certificate of it for `localhost`, and its key, all PEM.
pub(crate) struct Pki {
    ca: String,
    chain: String,
    key: KeyPair,
}

impl Pki {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let chain = CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
        Self { ca: ca.pem(), chain: chain.pem(), key }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(pem(&self.ca)).unwrap();
        roots
    }

    /// Requests a certificate of `clients`, if given.
    pub(crate) fn server(&self, clients: Option<&Self>, alpn: &[&[u8]]) -> ServerConfig {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = match clients {
            Some(clients) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(clients.roots().into(), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
            None => builder.with_no_client_auth(),
        };
        let key = self.key.serialize_der().try_into().unwrap();
        let mut config = builder.with_single_cert(vec![pem(&self.chain)], key).unwrap();
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        config
    }

    /// Trusts this authority, and sends the certificate of `identity`.
    pub(crate) fn transport(&self, version: HttpVersion, identity: Option<&Self>) -> Transport {
        let identity = identity.map(|pki| (pki.chain.clone(), pki.key.serialize_pem()));
        let identity = identity.as_ref().map(|(chain, key)| (chain.as_bytes(), key.as_bytes()));
        let config = from_pem(Some(self.ca.as_bytes()), identity).unwrap();
        Transport { version, tls: Some(OriginTls { config, server_name: None }), proxy_protocol: false }
    }
}

fn pem(text: &str) -> rustls::pki_types::CertificateDer<'static> {
    rustls::pki_types::pem::PemObject::from_pem_slice(text.as_bytes()).unwrap()
}
