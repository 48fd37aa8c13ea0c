//! Keys and certificates in memory, because workers on other machines may need them.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

use super::error::TlsError;

/// The content of a PEM file.
#[derive(Clone)]
pub struct Pem {
    path: PathBuf,
    /// Possibly a private key.
    content: Arc<Zeroizing<Vec<u8>>>,
}

impl Pem {
    pub fn read(path: &Path) -> Result<Self, TlsError> {
        let content = read(path).map_err(|error| TlsError::Read(path.to_owned(), error))?;
        Ok(Self::of(path.to_owned(), content))
    }

    /// Content that was read elsewhere. Error messages name `path`.
    pub fn of(path: PathBuf, content: Vec<u8>) -> Self {
        Self { path, content: Arc::new(Zeroizing::new(content)) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn content(&self) -> &[u8] {
        &self.content
    }

    pub(super) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.content).collect();
        let found = found.map_err(|error| TlsError::File(self.path.clone(), error))?;
        if found.is_empty() { Err(TlsError::Empty(self.path.clone())) } else { Ok(found) }
    }

    pub(super) fn private_key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(&self.content).map_err(|error| TlsError::File(self.path.clone(), error))
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pem").field(&self.path).finish()
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Allocated in full: a vector that grows leaves a copy behind.
    let mut content = Vec::with_capacity(LEN_MAX + 1);
    File::open(path)?.take(LEN_MAX as u64 + 1).read_to_end(&mut content)?;
    if content.len() > LEN_MAX { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(content) }
}

/// Four times the size of a system's trusted certificates.
const LEN_MAX: usize = 1 << 20;
