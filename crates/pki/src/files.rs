//! Reads and writes the files of the directory.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use watari_values::NodeName;
use zeroize::Zeroizing;

use crate::error::PkiError;

/// The largest file to read, in bytes. No certificate or key is larger, but a wrong path may lead to a large file.
const FILE_LEN_MAX: u64 = 64 << 10;
const CERTIFICATE_MODE: u32 = 0o644;
const KEY_MODE: u32 = 0o600;

pub(crate) fn ca_certificate(dir: &Path) -> PathBuf {
    dir.join("ca.pem")
}

pub(crate) fn ca_key(dir: &Path) -> PathBuf {
    dir.join("ca.key")
}

pub(crate) fn node_certificate(dir: &Path, node: &NodeName) -> PathBuf {
    dir.join(format!("{node}.pem"))
}

pub(crate) fn node_key(dir: &Path, node: &NodeName) -> PathBuf {
    dir.join(format!("{node}.key"))
}

/// Creates the directory with mode 0700, if it does not exist.
pub(crate) fn create_dir(dir: &Path) -> Result<(), PkiError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(at(dir))
}

/// Writes both files, or neither. Fails if one exists.
pub(crate) fn write_pair(certificate: (&Path, &str), key: (&Path, &str)) -> Result<(), PkiError> {
    if certificate.0.exists() {
        return Err(PkiError::Exists(certificate.0.to_owned()));
    }
    write_new(key.0, key.1, KEY_MODE)?;
    write_new(certificate.0, certificate.1, CERTIFICATE_MODE).inspect_err(|_| {
        // A key without its certificate would make the next attempt fail.
        let _ = fs::remove_file(key.0);
    })
}

fn write_new(path: &Path, content: &str, mode: u32) -> Result<(), PkiError> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let mut file = match opened {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(PkiError::Exists(path.to_owned())),
        opened => opened.map_err(at(path))?,
    };
    file.write_all(content.as_bytes()).and_then(|()| file.sync_all()).map_err(at(path))
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, PkiError> {
    let mut content = Vec::new();
    let file = File::open(path).map_err(at(path))?;
    read_limited(path, file, &mut content)?;
    Ok(content)
}

/// Reads a key file. Fails if all users may read it.
pub(crate) fn read_key(path: &Path) -> Result<Zeroizing<Vec<u8>>, PkiError> {
    let file = File::open(path).map_err(at(path))?;
    let mode = file.metadata().map_err(at(path))?.permissions().mode();
    if mode & 0o007 != 0 {
        return Err(PkiError::Exposed(path.to_owned()));
    }
    // Allocated once at full size: growing would leave copies of the key behind.
    let mut content = Zeroizing::new(Vec::with_capacity(FILE_LEN_MAX as usize + 1));
    read_limited(path, file, &mut content)?;
    Ok(content)
}

fn read_limited(path: &Path, file: File, content: &mut Vec<u8>) -> Result<(), PkiError> {
    let len = file.take(FILE_LEN_MAX + 1).read_to_end(content).map_err(at(path))?;
    if len as u64 > FILE_LEN_MAX {
        let cause = "too large for a certificate or a key".to_owned();
        return Err(PkiError::Content { path: path.to_owned(), cause });
    }
    Ok(())
}

/// Adds `path` to a system error.
pub(crate) fn at(path: &Path) -> impl FnOnce(std::io::Error) -> PkiError {
    let path = path.to_owned();
    move |cause| PkiError::File { path, cause }
}

/// Adds `path` to a library's error about the content.
pub(crate) fn content<E: ToString>(path: &Path) -> impl FnOnce(E) -> PkiError {
    let path = path.to_owned();
    move |cause| PkiError::Content { path, cause: cause.to_string() }
}
