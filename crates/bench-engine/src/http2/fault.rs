//! Classifies errors of HTTP/2 by the side at fault.

use h2::{Error, Reason};

use crate::ending::EndingKind;
use crate::exchange::Retry;

/// The kind of ending that the error means.
pub(super) fn kind(error: &Error) -> EndingKind {
    // h2 itself resets streams, or ends the connection, if the server violates the rules.
    if error.is_library() { EndingKind::Protocol } else { EndingKind::Reset }
}

/// Whether the failed request may be sent again (RFC 9113, section 8.7). After a GOAWAY, h2 fails only streams above
/// the last one that the frame names.
pub(super) fn retry(error: &Error) -> Retry {
    match error.reason() {
        _ if !error.is_remote() => Retry::No,
        _ if error.is_go_away() => Retry::Elsewhere,
        Some(Reason::REFUSED_STREAM) => Retry::Once,
        _ => Retry::No,
    }
}

/// Whether the connection can carry no more requests after this error.
pub(super) fn is_of_connection(error: &Error) -> bool {
    error.is_go_away() || error.is_io()
}
