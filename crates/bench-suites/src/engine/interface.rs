//! What every engine can do.

use super::jvm::JvmError;
use crate::key::Key;
use crate::loopback::LoopbackError;
use crate::row::Measured;
use crate::work::Work;

/// A TLS implementation that can be measured.
pub(crate) trait Engine {
    /// The version that the engine reports.
    fn version(&self) -> String;

    /// The suites that the engine supports and for which there is a key.
    fn offers(&self) -> Vec<Offer>;

    /// Runs the three tasks with a suite.
    fn measure(&mut self, offer: &Offer, work: Work) -> Result<Measured, MeasureError>;
}

/// A suite that an engine offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) suite: String,
    /// The engine's own name for the suite.
    pub(super) own_name: String,
    pub(crate) key: Key,
}

impl Offer {
    /// `None` if there is no key for the suite.
    pub(super) fn new(suite: String, own_name: impl Into<String>) -> Option<Self> {
        Some(Self { key: Key::of_suite(&suite)?, suite, own_name: own_name.into() })
    }
}

/// A suite could not be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MeasureError {
    /// An error between client and server.
    #[error(transparent)]
    Loopback(#[from] LoopbackError),
    /// rustls rejected its configuration.
    #[error("rustls: {0}")]
    Rustls(#[from] ::rustls::Error),
    /// OpenSSL rejected its configuration.
    #[cfg(feature = "openssl")]
    #[error("openssl: {0}")]
    OpenSsl(#[from] ::openssl::error::ErrorStack),
    #[error(transparent)]
    Jvm(#[from] JvmError),
}
