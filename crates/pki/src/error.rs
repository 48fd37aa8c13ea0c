//! Errors, with the file that each is about.

use std::path::PathBuf;

use watari_values::NodeName;

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
        found: NodeName,
    },
    /// The request cannot be put into a certificate.
    #[error("{0}")]
    Request(&'static str),
    #[error("cannot make a certificate: {0}")]
    Generate(#[from] rcgen::Error),
}

/// The command that makes a missing file.
fn hint(cause: &std::io::Error) -> &'static str {
    if cause.kind() == std::io::ErrorKind::NotFound {
        " (`watari pki init` makes an authority, and `watari pki issue` a node's certificate and key)"
    } else {
        ""
    }
}

/// The reason that a certificate is not one of the cluster's nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadCertificate {
    /// It is not valid X.509.
    #[error("the certificate cannot be read")]
    Unreadable,
    /// It is an authority's. A node must not present it.
    #[error("the certificate is an authority's, not a node's")]
    Authority,
    #[error("the certificate has no alternative names")]
    NoNames,
    #[error("the certificate does not name exactly one node")]
    NotOneNode,
    #[error("the certificate has an alternative name that is neither a node nor a role")]
    ForeignName,
    #[error("the certificate names no cluster")]
    NoCluster,
}
