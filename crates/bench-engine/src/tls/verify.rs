//! The verification of server certificates.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Accepts any certificate if the server has its key.
pub(super) fn trusting(provider: &CryptoProvider) -> Arc<dyn ServerCertVerifier> {
    Arc::new(Trusting(provider.signature_verification_algorithms))
}

#[derive(Debug)]
struct Trusting(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// Verifies a chain once, and stores it: a load generator receives the same chain thousands of times per second.
#[derive(Debug)]
struct Remembering {
    inner: Arc<WebPkiServerVerifier>,
    good: Mutex<Option<Chain>>,
}

/// A chain that was valid for a name.
#[derive(Debug, PartialEq)]
struct Chain {
    name: ServerName<'static>,
    certificates: Vec<CertificateDer<'static>>,
}

/// Accepts chains that lead to one of `roots`.
pub(super) fn checking(
    roots: RootCertStore,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, VerifierBuilderError> {
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build()?;
    Ok(Arc::new(Remembering { inner, good: Mutex::new(None) }))
}

impl ServerCertVerifier for Remembering {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let presented = || std::iter::once(end_entity).chain(intermediates);
        let mut good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        if good.as_ref().is_some_and(|chain| chain.name == *name && presented().eq(&chain.certificates)) {
            return Ok(ServerCertVerified::assertion());
        }
        let verified = self.inner.verify_server_cert(end_entity, intermediates, name, ocsp, now)?;
        let certificates = presented().map(|certificate| certificate.clone().into_owned()).collect();
        *good = Some(Chain { name: name.to_owned(), certificates });
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
