//! The interface of an engine, and the engines.

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

/// A TLS implementation that can be measured.
pub(super) trait Engine {
    /// The version that the engine reports.
    fn version(&self) -> String;

    /// The suites that the engine supports and for which there is a key.
    fn offers(&self) -> Vec<Offer>;

    /// Runs the three tasks with a suite.
    fn measure(&mut self, offer: &Offer, work: Work) -> Result<Measured, MeasureError>;
}

/// A suite that an engine offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) suite: String,
    /// The engine's own name for the suite.
    pub(super) own_name: String,
    pub(super) key: Key,
}

impl Offer {
    /// `None` if there is no key for the suite.
    fn new(suite: String, own_name: impl Into<String>) -> Option<Self> {
        Some(Self { key: Key::of_suite(&suite)?, suite, own_name: own_name.into() })
    }
}

/// A suite could not be measured.
#[derive(Debug, thiserror::Error)]
pub(super) enum MeasureError {
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

/// An engine is not available.
#[derive(Debug, thiserror::Error)]
pub(super) enum Absent {
    /// The engine is not compiled into this program.
    #[cfg(not(feature = "openssl"))]
    #[error("this program was built without it")]
    NotBuilt,
    /// OpenSSL could not be initialised.
    #[cfg(feature = "openssl")]
    #[error(transparent)]
    OpenSsl(#[from] ::openssl::error::ErrorStack),
    /// There is no JVM that can compile the program.
    #[error(transparent)]
    Jvm(#[from] JvmError),
}

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
