//! Authorities, certificates and keys, made once per run.

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use rcgen::{CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use watari_handshake::{Certificate, ClientRoots};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Rsa2048,
    P256,
}

impl KeyKind {
    pub(crate) const BOTH: [Self; 2] = [Self::Rsa2048, Self::P256];

    /// One key of each kind for all tests, because an RSA key takes long to make.
    pub(crate) fn key(self) -> &'static KeyPair {
        static RSA: OnceLock<KeyPair> = OnceLock::new();
        static P256: OnceLock<KeyPair> = OnceLock::new();
        match self {
            Self::Rsa2048 => RSA.get_or_init(|| KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap()),
            Self::P256 => P256.get_or_init(|| KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()),
        }
    }
}

/// A certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// The authority that clients trust.
    pub(crate) fn of_servers() -> &'static Self {
        static AUTHORITY: OnceLock<Authority> = OnceLock::new();
        AUTHORITY.get_or_init(|| Self::new("servers"))
    }

    /// The authority that servers trust.
    pub(crate) fn of_clients() -> &'static Self {
        static AUTHORITY: OnceLock<Authority> = OnceLock::new();
        AUTHORITY.get_or_init(|| Self::new("clients"))
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate and its key, in PEM.
    pub(crate) fn issue_pem(&self, kind: KeyKind, names: &[&str]) -> (String, String) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let leaf = CertificateParams::new(names).unwrap().signed_by(kind.key(), &self.0).unwrap();
        (leaf.pem(), kind.key().serialize_pem())
    }

    pub(crate) fn issue(&self, kind: KeyKind, names: &[&str]) -> Certificate {
        let (chain, key) = self.issue_pem(kind, names);
        Certificate::from_pem(chain.as_bytes(), key.as_bytes()).unwrap()
    }

    /// A client certificate and its key.
    pub(crate) fn issue_to_client(&self, names: &[&str]) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let key = KeyKind::P256.key();
        let leaf = CertificateParams::new(names).unwrap().signed_by(key, &self.0).unwrap();
        (leaf.der().clone(), PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }

    /// The same, valid until `end`.
    pub(crate) fn issue_to_client_until(&self, end: SystemTime) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let key = KeyKind::P256.key();
        let mut params = CertificateParams::new(vec!["client.example.com".to_owned()]).unwrap();
        params.not_after = end.into();
        let leaf = params.signed_by(key, &self.0).unwrap();
        (leaf.der().clone(), PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }

    pub(crate) fn client_roots(&self) -> ClientRoots {
        ClientRoots::from_pem(self.pem().as_bytes()).unwrap()
    }

    pub(crate) fn store(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        Arc::new(roots)
    }
}
