//! The TLS server handshake with rustls. It ends in a state for the record layer.
//!
//! ```text
//!  client's bytes --> Handshake::receive --> bytes to the client
//!                          |
//!                          '--> Established: watari_record::Secrets, the negotiated values,
//!                               and the input after the client's Finished, unread
//! ```
//!
//! * [`ServerConfig`] has the server's settings: [`Certificate`]s by name, a [`Policy`], ALPN, client certificates.
//! * [`Handshake`] is one handshake: bytes in, bytes out. It owns no socket and does not wait.
//! * [`Sessions`] has the settings for resumption. [`Tickets`] seals sessions into tickets, and the driver stores
//!   others.
//! * [`HandshakeError`] is the reason why a handshake failed, with the side at fault.
//!
//! No other crate of the workspace does a client's handshake with rustls. Nothing here seals or opens a record after
//! the handshake. rustls reads the clock itself, for certificates and tickets. Early data needs the driver's approval
//! for each connection. `SSLKEYLOGFILE` is never honoured.

mod certificate;
mod config;
mod connection_sessions;
mod error;
mod expect_finished;
mod extract;
mod handshake;
mod names;
mod policy;
mod progress;
mod record_cut;
mod rejected;
mod session_value;
mod sessions;
mod validity;

pub use certificate::{Certificate, CertificateError, ClientRoots};
pub use config::{ClientCertificates, ConfigError, ServerConfig, ServerOptions};
pub use error::{Failed, HandshakeError, Stage};
pub use handshake::Handshake;
pub use policy::{BadPolicy, Group, Policy};
pub use progress::{EarlyData, Established, Info, Progress};
pub use sessions::{Found, Miss, NewSession, PolicyId, Provided, SessionSource, Sessions, Tickets, Wanted};
pub use validity::{Validity, ValidityState};
