//! The names of the engines.

use std::fmt;
use std::str::FromStr;

/// A TLS implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EngineName {
    /// rustls with aws-lc-rs.
    Rustls,
    /// OpenSSL's libssl.
    OpenSsl,
    /// JSSE of the JDK, the engine of the paper.
    Jsse,
}

impl EngineName {
    pub const ALL: [Self; 3] = [Self::Rustls, Self::OpenSsl, Self::Jsse];

    /// The name on the command line and in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rustls => "rustls",
            Self::OpenSsl => "openssl",
            Self::Jsse => "jsse",
        }
    }
}

impl fmt::Display for EngineName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

impl FromStr for EngineName {
    type Err = UnknownEngine;

    fn from_str(name: &str) -> Result<Self, UnknownEngine> {
        Self::ALL.into_iter().find(|engine| engine.as_str() == name).ok_or(UnknownEngine)
    }
}

/// No engine has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engines are rustls, openssl and jsse")]
pub struct UnknownEngine;
