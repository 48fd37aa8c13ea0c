//! Errors that end a part of a run.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

/// The first error ends a part of the run, because an incomplete comparison is of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// An operation of the system failed.
    #[error("{what}: {cause}")]
    System { what: String, cause: io::Error },
    /// A process did not become ready in time.
    #[error("{name} is not ready: {why}; its log ends with: {last_words}")]
    NotReady { name: String, why: String, last_words: String },
    /// A server sent another response than expected.
    #[error("{service} gave a wrong answer: {what}")]
    Answer { service: SocketAddr, what: String },
    /// A part of a load did not end as expected.
    #[error("{service} did not do the work it was asked for: {what}")]
    Load { service: SocketAddr, what: String },
    /// Another failure, with the ends of the servers' logs.
    #[error("{failure}; its logs end with: {last_words}")]
    Served { failure: Box<Failure>, last_words: String },
    /// A load cannot begin.
    #[error("a load cannot begin: {0}")]
    Plan(Box<dyn Error + Send + Sync>),
    /// Connections or downloads did not move as expected, so the figures would have another meaning.
    #[error("{moved} connections were moved where it should have been {expected}")]
    Moves { moved: u64, expected: u64 },
    /// A load generator, or a program that reads captures, failed.
    #[error("{name} did not get all it asked for: {said}")]
    Generator { name: &'static str, said: String },
    /// TLS in this process: certificates, configurations, connections in memory.
    #[error("TLS, {what}: {cause}")]
    Tls { what: &'static str, cause: String },
    /// The session database failed.
    #[error(transparent)]
    Database(#[from] watari_session_stores::DatabaseError),
    /// A store found fewer or more sessions than expected.
    #[error("{found} of {asked} sessions were found {place}")]
    Sessions { place: &'static str, asked: u64, found: u64 },
    /// The cluster's certificates could not be issued.
    #[error(transparent)]
    Pki(#[from] watari_pki::PkiError),
}

/// For `map_err`: names the operation that failed.
pub(crate) fn doing(what: impl Into<String>) -> impl FnOnce(io::Error) -> Failure {
    let what = what.into();
    |cause| Failure::System { what, cause }
}

/// For `map_err`: the load cannot begin.
pub(crate) fn planning(cause: impl Error + Send + Sync + 'static) -> Failure {
    Failure::Plan(Box::new(cause))
}

/// For `map_err`: names the operation of TLS that failed.
pub(crate) fn tls<E: ToString>(what: &'static str) -> impl FnOnce(E) -> Failure {
    move |cause| Failure::Tls { what, cause: cause.to_string() }
}
