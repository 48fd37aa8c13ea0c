//! The TLS server handshake by rustls, ending in record-layer state.
//!
//! ```text
//!  client's bytes --> Handshake::receive --> bytes to the client
//!                          |
//!                          '--> Established: watari_record::Secrets, what was agreed on,
//!                               and the input behind the client's Finished, untouched
//! ```
//!
//! * [`ServerConfig`] says what is served: [`Certificate`]s by name, a [`Policy`], ALPN, client certificates.
//! * [`Handshake`] is one handshake: bytes in, bytes out. It owns no socket and waits for nothing.
//! * [`Sessions`] says how clients resume sessions; [`Tickets`] seals them, and the driver keeps others.
//! * [`HandshakeError`] says why a handshake came to nothing, and who is at fault.
//!
//! Nothing else in the workspace drives a client's handshake with rustls, and nothing here seals or opens a record
//! after the handshake. The clock is the one rustls reads itself, for certificates and tickets. There is early data only
//! where the driver says so for each connection, and `SSLKEYLOGFILE` is never honoured.

mod certificate;
mod config;
mod desk;
mod error;
mod expect_finished;
mod extract;
mod handshake;
mod names;
mod policy;
mod record_cut;
mod rejected;
mod session_value;
mod sessions;
mod validity;

pub use certificate::{Certificate, CertificateError, ClientRoots};
pub use config::{ClientCertificates, ConfigError, ServerConfig, ServerOptions};
pub use error::{Failed, HandshakeError, Stage};
pub use handshake::{EarlyData, Established, Handshake, Info, Progress};
pub use policy::{BadPolicy, Group, Policy};
pub use sessions::{Found, Kept, Miss, Origin, Provided, Sessions, Terms, Tickets, Wanted};
pub use validity::{Validity, ValidityState};
