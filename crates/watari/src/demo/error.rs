//! Why a demo fails.

use std::io;
use std::path::PathBuf;

use watari_pki::PkiError;

/// The demo did not start, did not keep running, or failed a check.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    #[error("{doing}: {cause}")]
    System { doing: String, cause: io::Error },
    #[error("cannot make the cluster's certificates: {0}")]
    Pki(#[from] PkiError),
    #[error("cannot make the site's certificates: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot set up the clients' TLS: {0}")]
    ClientTls(String),
    #[error("the process {name} ended ({status}); its last output: {last_words}")]
    Ended { name: String, status: String, last_words: String },
    #[error("the cluster was not ready within {seconds} s: {waiting_for}")]
    NotReady { seconds: u64, waiting_for: String },
    #[error("{failed} of the demo's checks failed; the nodes' logs are in {}", logs.display())]
    Failed { failed: usize, logs: PathBuf },
}

pub(super) fn doing(what: impl Into<String>) -> impl FnOnce(io::Error) -> DemoError {
    let doing = what.into();
    move |cause| DemoError::System { doing, cause }
}
