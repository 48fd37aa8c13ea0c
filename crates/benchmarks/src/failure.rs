//! Why there are no figures.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

/// A run cannot go on. Half a comparison is none: the first failure ends it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The system refuses something.
    #[error("{what}: {cause}")]
    System { what: String, cause: io::Error },
    /// A server is there, and does not do what it is there for.
    #[error("{name} is not ready: {why}; its log ends with: {last_words}")]
    NotReady { name: String, why: String, last_words: String },
    /// What a server sent is not what was asked for.
    #[error("{service} gave a wrong answer: {what}")]
    Answer { service: SocketAddr, what: String },
    /// Some of a load did not come about, or otherwise than asked for.
    #[error("{service} did not do the work it was asked for: {what}")]
    Load { service: SocketAddr, what: String },
    /// The same, and what the servers say of it.
    #[error("{failure}; its logs end with: {last_words}")]
    Served { failure: Box<Failure>, last_words: String },
    /// A load cannot begin.
    #[error("a load cannot begin: {0}")]
    Plan(Box<dyn Error + Send + Sync>),
    /// Connections did not go where they were to go: what was measured is something else.
    #[error("{moved} connections were moved where it should have been {expected}")]
    Moves { moved: u64, expected: u64 },
    /// A load generator did not do what it was to do.
    #[error("{name} did not get all it asked for: {said}")]
    Generator { name: &'static str, said: String },
    /// TLS in this process: certificates, configurations, connections in memory.
    #[error("TLS, {what}: {cause}")]
    Tls { what: &'static str, cause: String },
    /// A database of sessions.
    #[error(transparent)]
    Database(#[from] watari_session_stores::DatabaseError),
    /// A store does not hold what was put into it, or holds something else.
    #[error("{found} of {asked} sessions were found {place}")]
    Sessions { place: &'static str, asked: u64, found: u64 },
    /// The cluster's certificates.
    #[error(transparent)]
    Pki(#[from] watari_pki::PkiError),
}

/// For `map_err`: says what the system was asked for.
pub(crate) fn doing(what: impl Into<String>) -> impl FnOnce(io::Error) -> Failure {
    let what = what.into();
    |cause| Failure::System { what, cause }
}

/// For `map_err`: no load came of it.
pub(crate) fn planning(cause: impl Error + Send + Sync + 'static) -> Failure {
    Failure::Plan(Box::new(cause))
}

/// For `map_err`: says what TLS was asked for.
pub(crate) fn tls<E: ToString>(what: &'static str) -> impl FnOnce(E) -> Failure {
    move |cause| Failure::Tls { what, cause: cause.to_string() }
}
