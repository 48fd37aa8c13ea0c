//! The cluster's certificate authority, node certificates and roles.
//!
//! A directory holds all of it, as PEM:
//!
//! | file | what | who needs it |
//! | --- | --- | --- |
//! | `ca.pem` | the authority's certificate | every node |
//! | `ca.key` | its key, mode 0600 | whoever issues certificates; no running node |
//! | `NODE.pem`, `NODE.key` | a node's certificate and key, mode 0600 | that node |
//!
//! A node's certificate names it in a DNS entry of its alternative names, and each of its roles in a URI entry
//! (`urn:watari:role:agent`). Nothing else is trusted: no other root, no certificate of another shape. Files are never
//! overwritten.

mod authority;
mod certificate;
mod files;
mod identity;

use std::path::{Path, PathBuf};

use watari_wire::NodeName;

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

/// Where the certificates lie that a node uses: its cluster's authority, and its own.
pub fn certificate_files(dir: &Path, node: &NodeName) -> [PathBuf; 2] {
    [files::ca_certificate(dir), files::node_certificate(dir, node)]
}

/// What went wrong, and with which file.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file exists that would have to be overwritten.
    #[error("{} exists already and is not overwritten", .0.display())]
    Exists(PathBuf),
    /// A file cannot be read or written.
    #[error("{}: {cause}{}", path.display(), hint(cause))]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: std::io::Error,
    },
    /// A key may be read by every user of the machine.
    #[error("{} can be read by everybody on this machine (chmod 600 it, or make a new one)", .0.display())]
    Exposed(PathBuf),
    /// A file is no PEM of the right kind, or its content is of no use.
    #[error("{}: {cause}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// A file holds a certificate that is not of the right shape.
    #[error("{}: {cause}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: BadCertificate,
    },
    /// A node's certificate names another node.
    #[error("{} is the certificate of {found}", path.display())]
    OtherNode {
        /// The file.
        path: PathBuf,
        /// Whose certificate it is.
        found: watari_wire::NodeName,
    },
    /// What is asked for cannot be put into a certificate.
    #[error("{0}")]
    Request(&'static str),
    /// The certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Generate(#[from] rcgen::Error),
}
