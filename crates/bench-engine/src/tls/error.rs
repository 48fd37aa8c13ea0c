//! Errors of the TLS options.

use std::io;
use std::path::PathBuf;

use watari_client_tls::NoSystemRoots;

/// The TLS options cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {path}: {1}", path = .0.display())]
    Read(PathBuf, io::Error),
    /// The file is not PEM of the expected kind.
    #[error("cannot read {path}: {1}", path = .0.display())]
    File(PathBuf, rustls::pki_types::pem::Error),
    /// The file contains no certificate.
    #[error("there is no certificate in {path}", path = .0.display())]
    Empty(PathBuf),
    /// The certificates of the system cannot be used.
    #[error(transparent)]
    System(#[from] NoSystemRoots),
    /// The system has no entropy.
    #[error("the system provides no random numbers")]
    Random,
    /// rustls rejected the configuration.
    #[error("TLS cannot be prepared: {0}")]
    Rustls(#[from] rustls::Error),
    /// No verifier can be built from these authorities.
    #[error("these roots cannot be used: {0}")]
    Roots(#[from] rustls::client::VerifierBuilderError),
}
