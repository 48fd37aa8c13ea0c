//! The cluster's certificate authority, node certificates and roles.
//!
//! A directory has all files, in PEM format:
//!
//! | file | content | needed by |
//! | --- | --- | --- |
//! | `ca.pem` | the authority's certificate | every node |
//! | `ca.key` | its key, mode 0600 | the operator who issues certificates; no running node |
//! | `NODE.pem`, `NODE.key` | a node's certificate and key (mode 0600) | that node |
//!
//! A node's certificate has the node's name in a DNS entry of its alternative names, and each of its roles in a URI
//! entry (`urn:watari:role:agent`). Nothing else is trusted: no other root, and no certificate of another form. Files
//! are never overwritten.

mod authority;
mod certificate;
mod files;
mod identity;

use std::path::{Path, PathBuf};

use watari_values::NodeName;

pub use authority::{Authority, Issued};
pub use certificate::{BadCertificate, Description, Subject, describe, peer_identity};
pub use identity::Identity;

/// The command that makes a missing file.
fn hint(cause: &std::io::Error) -> &'static str {
    if cause.kind() == std::io::ErrorKind::NotFound {
        " (`watari pki init` makes an authority, and `watari pki issue` a node's certificate and key)"
    } else {
        ""
    }
}

/// The paths of the certificates that a node uses: its cluster's authority, and its own.
pub fn certificate_files(dir: &Path, node: &NodeName) -> [PathBuf; 2] {
    [files::ca_certificate(dir), files::node_certificate(dir, node)]
}

/// An error, with the file that it is about.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file exists that would have to be overwritten.
    #[error("{} exists already and is not overwritten", .0.display())]
    Exists(PathBuf),
    /// A file cannot be read or written.
    #[error("{}: {cause}{}", path.display(), hint(cause))]
    File {
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// All users of the machine may read a key.
    #[error("{} is readable by all users: chmod 600 it, or make a new one", .0.display())]
    Exposed(PathBuf),
    /// A file is no PEM of the right kind, or has invalid content.
    #[error("{}: {cause}", path.display())]
    Content {
        path: PathBuf,
        /// The parser's error.
        cause: String,
    },
    /// A file has a certificate of the wrong form.
    #[error("{}: {cause}", path.display())]
    Certificate {
        path: PathBuf,
        /// The violated rule.
        cause: BadCertificate,
    },
    /// The certificate in a node's file names another node.
    #[error("{} is the certificate of {found}", path.display())]
    OtherNode {
        path: PathBuf,
        /// The node in the certificate.
        found: watari_values::NodeName,
    },
    /// The request cannot be put into a certificate.
    #[error("{0}")]
    Request(&'static str),
    #[error("cannot make a certificate: {0}")]
    Generate(#[from] rcgen::Error),
}
