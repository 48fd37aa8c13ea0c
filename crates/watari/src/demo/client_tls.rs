//! TLS clients that accept only one version, suite and kind of key.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{
    CipherSuite, ClientConfig, DigitallySignedStruct, Error, SignatureScheme, SupportedCipherSuite,
    SupportedProtocolVersion,
};
use watari_client_tls::{ClientTls, Verifier, roots_of};

use super::error::DemoError;

/// The handshakes that a client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Class {
    pub(super) version: Version,
    pub(super) key: Key,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Version {
    Tls12,
    Tls13,
}

/// The kind of the server's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Key {
    Rsa2048,
    P256,
}

/// The AEADs that the demo tries in each class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Aead {
    Aes128,
    Aes256,
    ChaCha20,
}

impl Class {
    pub(super) const ALL: [Self; 4] = [
        Self { version: Version::Tls12, key: Key::Rsa2048 },
        Self { version: Version::Tls12, key: Key::P256 },
        Self { version: Version::Tls13, key: Key::Rsa2048 },
        Self { version: Version::Tls13, key: Key::P256 },
    ];

    /// The suite of the class that uses `aead`.
    pub(super) fn suite(self, aead: Aead) -> CipherSuite {
        use CipherSuite as S;
        match (self.version, self.key, aead) {
            (Version::Tls13, _, Aead::Aes128) => S::TLS13_AES_128_GCM_SHA256,
            (Version::Tls13, _, Aead::Aes256) => S::TLS13_AES_256_GCM_SHA384,
            (Version::Tls13, _, Aead::ChaCha20) => S::TLS13_CHACHA20_POLY1305_SHA256,
            (Version::Tls12, Key::Rsa2048, Aead::Aes128) => S::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            (Version::Tls12, Key::Rsa2048, Aead::Aes256) => S::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            (Version::Tls12, Key::Rsa2048, Aead::ChaCha20) => S::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
            (Version::Tls12, Key::P256, Aead::Aes128) => S::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            (Version::Tls12, Key::P256, Aead::Aes256) => S::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            (Version::Tls12, Key::P256, Aead::ChaCha20) => S::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        }
    }
}

impl Version {
    fn supported(self) -> &'static SupportedProtocolVersion {
        match self {
            Self::Tls12 => &TLS12,
            Self::Tls13 => &TLS13,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls12 => "TLS 1.2",
            Self::Tls13 => "TLS 1.3",
        })
    }
}

impl Key {
    fn schemes(self) -> &'static [SignatureScheme] {
        match self {
            Self::Rsa2048 => &[SignatureScheme::RSA_PSS_SHA256, SignatureScheme::RSA_PKCS1_SHA256],
            Self::P256 => &[SignatureScheme::ECDSA_NISTP256_SHA256],
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rsa2048 => "RSA-2048",
            Self::P256 => "P-256",
        })
    }
}

/// The TLS configuration of a client that trusts `authority` (DER), offers only `class` with `aead`, and speaks `alpn`.
/// It never resumes, so each of its handshakes is a full one.
pub(super) fn config(authority: &[u8], class: Class, aead: Aead, alpn: &str) -> Result<Arc<ClientConfig>, DemoError> {
    let refused = |error: &dyn fmt::Display| DemoError::ClientTls(error.to_string());
    let mut provider = aws_lc_rs::default_provider();
    let is_wanted = |suite: &SupportedCipherSuite| suite.suite() == class.suite(aead);
    provider.cipher_suites.retain(is_wanted);
    let provider = Arc::new(provider);
    let verifier = OneKind::new(authority, class.key, &provider)?;
    let settings = ClientTls {
        provider,
        versions: vec![class.version.supported()],
        verifier: Verifier::Custom(Arc::new(verifier)),
        certificate: None,
        alpn: vec![alpn.as_bytes().to_vec()],
    };
    let mut config = settings.into_config().map_err(|error| refused(&error))?;
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Verifies as rustls does, but offers the server one kind of signature only. The chain may have others.
#[derive(Debug)]
struct OneKind {
    verifier: Arc<WebPkiServerVerifier>,
    key: Key,
}

impl OneKind {
    fn new(authority: &[u8], key: Key, provider: &Arc<CryptoProvider>) -> Result<Self, DemoError> {
        let refused = |error: &dyn fmt::Display| DemoError::ClientTls(error.to_string());
        let roots = roots_of([CertificateDer::from(authority.to_vec())]).map_err(|error| refused(&error))?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
        Ok(Self { verifier: verifier.map_err(|error| refused(&error))?, key })
    }
}

impl ServerCertVerifier for OneKind {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.key.schemes().to_vec()
    }
}
