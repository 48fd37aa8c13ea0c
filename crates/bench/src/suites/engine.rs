//! What an engine is to this benchmark, and which there are.

mod jsse;
#[cfg(feature = "openssl")]
mod openssl;
mod rustls;

use super::certificates::Certificates;
use super::key::Key;
use super::loopback::LoopbackError;
use super::row::Measured;
use super::{EngineName, Work};
use jsse::JvmError;

/// An implementation of TLS that can be measured.
pub(super) trait Engine {
    /// Its version, as far as it tells.
    fn version(&self) -> String;

    /// The suites it has, and for which there is a key.
    fn offers(&self) -> Vec<Offer>;

    /// Does a suite's work.
    fn measure(&mut self, offer: &Offer, work: Work) -> Result<Measured, MeasureError>;
}

/// A suite of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// Its IANA name.
    pub(super) suite: String,
    /// The engine's own name of it.
    pub(super) own_name: String,
    /// The server's key.
    pub(super) key: Key,
}

impl Offer {
    /// Unless there is no key for the suite.
    fn new(suite: String, own_name: impl Into<String>) -> Option<Self> {
        Some(Self { key: Key::of_suite(&suite)?, suite, own_name: own_name.into() })
    }
}

/// Why a suite could not be measured.
#[derive(Debug, thiserror::Error)]
pub(super) enum MeasureError {
    /// Something went wrong between client and server.
    #[error(transparent)]
    Loopback(#[from] LoopbackError),
    /// rustls refused its configuration.
    #[error("rustls: {0}")]
    Rustls(#[from] ::rustls::Error),
    /// OpenSSL refused its configuration.
    #[cfg(feature = "openssl")]
    #[error("openssl: {0}")]
    OpenSsl(#[from] ::openssl::error::ErrorStack),
    /// The JVM.
    #[error(transparent)]
    Jvm(#[from] JvmError),
}

/// Why an engine is not to be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum Absent {
    /// Left out of this build.
    #[cfg(not(feature = "openssl"))]
    #[error("this program was built without it")]
    NotBuilt,
    /// OpenSSL could not be set up.
    #[cfg(feature = "openssl")]
    #[error(transparent)]
    OpenSsl(#[from] ::openssl::error::ErrorStack),
    /// No JVM that compiles.
    #[error(transparent)]
    Jvm(#[from] JvmError),
}

/// Sets an engine up.
pub(super) fn open<'a>(name: EngineName, certificates: &'a Certificates) -> Result<Box<dyn Engine + 'a>, Absent> {
    match name {
        EngineName::Rustls => Ok(Box::new(rustls::Rustls::new(certificates))),
        #[cfg(feature = "openssl")]
        EngineName::OpenSsl => Ok(Box::new(openssl::OpenSsl::new(certificates)?)),
        #[cfg(not(feature = "openssl"))]
        EngineName::OpenSsl => Err(Absent::NotBuilt),
        EngineName::Jsse => Ok(Box::new(jsse::Jsse::start(certificates)?)),
    }
}
