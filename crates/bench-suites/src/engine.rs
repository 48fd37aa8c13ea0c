//! The engines, behind one interface.
//!
//! Imports: `loopback`, which runs the engines of this process; `certificates`, `key`, `row` and `work`; `paper` for the
//! names of suites.

pub(crate) mod interface;
mod jsse;
mod jvm;
#[cfg(feature = "openssl")]
mod openssl;
mod rustls;

use self::interface::Engine;
use self::jvm::JvmError;
use crate::certificates::Certificates;
use crate::engine_name::EngineName;

/// An engine is not available.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Absent {
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

pub(crate) fn open<'a>(name: EngineName, certificates: &'a Certificates) -> Result<Box<dyn Engine + 'a>, Absent> {
    match name {
        EngineName::Rustls => Ok(Box::new(rustls::Rustls::new(certificates))),
        #[cfg(feature = "openssl")]
        EngineName::OpenSsl => Ok(Box::new(openssl::OpenSsl::new(certificates)?)),
        #[cfg(not(feature = "openssl"))]
        EngineName::OpenSsl => Err(Absent::NotBuilt),
        EngineName::Jsse => Ok(Box::new(jsse::Jsse::start(certificates)?)),
    }
}
