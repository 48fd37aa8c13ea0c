//! Serves a connection before its client has sent Finished (early data: RFC 8446, section 2.3; RFC 8470).
//!
//! ```text
//!                     Finished                    its tickets are kept
//!  ExpectsFinished -------------> KeepsTickets ------------------------> Open
//!        |  rustls opens and seals    no sealing        the record layer opens and seals
//!        |                                 |
//!        '--- the handshake times out -----'---> Unfinished: the agent sends the client the alert, if there is one,
//!             or fails                           or resets the connection
//! ```
//!
//! Until `Open`, HTTP runs over an [`EarlyStream`](stream::EarlyStream), which reads and writes as the state requires.
//! In state `Open`, the final stream is taken out of it, and the connection is like any other. An
//! [`Opening`](opening::Opening) drives the states.
//!
//! 1. A task that polls HTTP polls the `Opening` first. So the `EarlyStream` wakes no task: it waits for the same
//!    events as the `Opening`, or for room on the leg.
//! 2. Nothing is sealed between Finished and `Open`: the record layer continues where rustls stopped, after the
//!    tickets.
//! 3. Before `Open`, the agent does not announce the connection and does not move it. It answers only requests that are
//!    safe to repeat ([`Gate`](gate::Gate)). This holds although early data is accepted only under an approval, which
//!    permits a single use.
//! 4. The handshake timeout runs until `Open`.

pub(crate) mod gate;
pub(crate) mod opening;
mod pending;
pub(crate) mod stream;
