//! Certificates and keys from the operator.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, SignatureAlgorithm, SignatureScheme};
use watari_record::CipherSuite;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroizing;

/// A certificate chain and the private key of its leaf. Cheap to clone.
#[derive(Clone)]
pub struct Certificate {
    key: Arc<CertifiedKey>,
    names: Arc<[String]>,
}

impl Certificate {
    /// Reads a chain (leaf first) and its unencrypted private key (PKCS #8, PKCS #1 or SEC1) from PEM. Checks that the
    /// key belongs to the leaf. One text may hold both: sections of other kinds are skipped.
    pub fn from_pem(chain_pem: &[u8], key_pem: &[u8]) -> Result<Self, CertificateError> {
        let chain = certificates_from_pem(chain_pem)?;
        let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|error| match error {
            pem::Error::NoItemsFound if is_encrypted_key(key_pem) => CertificateError::EncryptedKey,
            pem::Error::NoItemsFound => CertificateError::NoKey,
            error => CertificateError::Pem(error),
        })?;
        Self::new(chain, &Zeroizing::new(key))
    }

    /// Like [`Certificate::from_pem`], from DER.
    pub fn from_der(chain: Vec<Vec<u8>>, key: &[u8]) -> Result<Self, CertificateError> {
        let key = PrivateKeyDer::try_from(key).map_err(|_| CertificateError::UnsupportedKey)?;
        Self::new(chain.into_iter().map(CertificateDer::from).collect(), &key)
    }

    /// The DNS names of the leaf (RFC 6125: subject alternative names only), in lower case.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    fn new(chain: Vec<CertificateDer<'static>>, key: &PrivateKeyDer<'_>) -> Result<Self, CertificateError> {
        let leaf = chain.first().ok_or(CertificateError::NoCertificate)?;
        let names = dns_names(leaf)?.into();
        let key = any_supported_type(key).map_err(|_| CertificateError::UnsupportedKey)?;
        let key = CertifiedKey::new(chain, key);
        key.keys_match().map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => CertificateError::KeyMismatch,
            error => CertificateError::BadCertificate(error.to_string()),
        })?;
        Ok(Self { key: Arc::new(key), names })
    }

    pub(crate) fn certified_key(&self) -> &Arc<CertifiedKey> {
        &self.key
    }

    /// Whether the key can make a signature of one of `schemes`.
    pub(crate) fn signs_with(&self, schemes: &[SignatureScheme]) -> bool {
        self.key.key.choose_scheme(schemes).is_some()
    }

    /// Whether the key can sign in handshakes with `suite`.
    pub(crate) fn fits(&self, suite: CipherSuite) -> bool {
        let is_rsa = self.key.key.algorithm() == SignatureAlgorithm::RSA;
        match suite.name() {
            name if name.contains("_ECDSA_") => !is_rsa,
            name if name.contains("_RSA_") => is_rsa,
            // TLS 1.3 negotiates signature schemes separately from suites.
            _ => true,
        }
    }

    /// The order in which certificates of one name are tried: a P-256 signature costs a fraction of an RSA one.
    pub(crate) fn preference(&self) -> u8 {
        match self.key.key.algorithm() {
            SignatureAlgorithm::ECDSA => 0,
            SignatureAlgorithm::RSA => 2,
            _ => 1,
        }
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("names", &self.names).finish_non_exhaustive()
    }
}

/// The certificate authorities whose client certificates the server accepts. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ClientRoots(Arc<RootCertStore>);

impl ClientRoots {
    /// Reads the authorities' certificates from PEM.
    pub fn from_pem(roots_pem: &[u8]) -> Result<Self, CertificateError> {
        Self::new(certificates_from_pem(roots_pem)?)
    }

    /// Like [`ClientRoots::from_pem`], from DER.
    pub fn from_der(roots: Vec<Vec<u8>>) -> Result<Self, CertificateError> {
        Self::new(roots.into_iter().map(CertificateDer::from).collect())
    }

    fn new(roots: Vec<CertificateDer<'static>>) -> Result<Self, CertificateError> {
        if roots.is_empty() {
            return Err(CertificateError::NoCertificate);
        }
        let mut store = RootCertStore::empty();
        for root in roots {
            store.add(root).map_err(|error| CertificateError::BadCertificate(error.to_string()))?;
        }
        Ok(Self(Arc::new(store)))
    }

    /// Subject, key and constraints of each authority.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Vec<u8>> {
        self.0.roots.iter().map(|root| {
            let constraints = root.name_constraints.as_deref().unwrap_or_default();
            [&root.subject[..], &root.subject_public_key_info, constraints].map(digest).concat()
        })
    }

    pub(crate) fn store(&self) -> &Arc<RootCertStore> {
        &self.0
    }
}

fn digest(bytes: &[u8]) -> Vec<u8> {
    aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes).as_ref().to_vec()
}

/// Why a certificate or its key cannot be used. The configuration is at fault.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The text is not PEM.
    #[error("cannot be read as PEM: {0}")]
    Pem(#[source] pem::Error),
    /// No section BEGIN CERTIFICATE.
    #[error("contains no certificate")]
    NoCertificate,
    /// No section BEGIN PRIVATE KEY (or RSA or EC PRIVATE KEY).
    #[error("contains no private key")]
    NoKey,
    /// A password protects the key.
    #[error("the private key is encrypted; store it decrypted, readable by the service alone")]
    EncryptedKey,
    /// The key is not RSA of 2048 to 8192 bits, ECDSA over P-256, P-384 or P-521, or Ed25519.
    #[error("the private key is damaged, or its type is not supported")]
    UnsupportedKey,
    /// A certificate cannot be parsed.
    #[error("a certificate is damaged: {0}")]
    BadCertificate(String),
    /// Chain and key are not a pair, or the chain does not begin with the leaf.
    #[error("the private key does not belong to the first certificate of the chain")]
    KeyMismatch,
}

pub(crate) fn certificates_from_pem(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(CertificateError::Pem)
}

fn is_encrypted_key(pem: &[u8]) -> bool {
    let mark = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";
    pem.windows(mark.len()).any(|window| window == mark)
}

pub(crate) fn dns_names(leaf: &CertificateDer<'_>) -> Result<Vec<String>, CertificateError> {
    let damaged = |error: &dyn fmt::Display| CertificateError::BadCertificate(error.to_string());
    let (_, leaf) = X509Certificate::from_der(leaf).map_err(|error| damaged(&error))?;
    let names = leaf.subject_alternative_name().map_err(|error| damaged(&error))?;
    let general_names = names.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
    let dns_name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    };
    Ok(general_names.iter().filter_map(dns_name).collect())
}
