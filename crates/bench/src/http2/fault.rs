//! What errors of HTTP/2 say about who is at fault.

use h2::{Error, Reason};

use crate::ending::EndingKind;
use crate::exchange::Retry;

/// What happened.
pub(super) fn kind(error: &Error) -> EndingKind {
    // h2 itself resets streams, or gives the connection up, where the server breaks the rules.
    if error.is_library() { EndingKind::Protocol } else { EndingKind::Reset }
}

/// Whether the request that this hit was certainly not processed (RFC 9113, section 8.7). Of a GOAWAY h2 only tells streams above
/// the last one that it names.
pub(super) fn retry(error: &Error) -> Retry {
    match error.reason() {
        _ if !error.is_remote() => Retry::No,
        _ if error.is_go_away() => Retry::Elsewhere,
        Some(Reason::REFUSED_STREAM) => Retry::Once,
        _ => Retry::No,
    }
}

/// Whether the connection carries nothing any more after this.
pub(super) fn is_of_connection(error: &Error) -> bool {
    error.is_go_away() || error.is_io()
}
