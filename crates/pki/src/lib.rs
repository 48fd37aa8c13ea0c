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
mod error;
mod files;
mod identity;

use std::path::{Path, PathBuf};

use watari_values::NodeName;

pub use authority::{Authority, Issued};
pub use certificate::{Description, Subject, describe, peer_identity};
pub use error::{BadCertificate, PkiError};
pub use identity::Identity;

/// The paths of the certificates that a node uses: its cluster's authority, and its own.
pub fn certificate_files(dir: &Path, node: &NodeName) -> [PathBuf; 2] {
    [files::ca_certificate(dir), files::node_certificate(dir, node)]
}
