//! The responses to requests that failed.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response};
use watari_body::{Body, full};

use crate::exchange::failure::Failure;

/// The client's response. It has the status and its name, or the reason of some faults of the client. Only the log
/// names the origin and its failure.
pub(super) fn response(failure: &Failure) -> Response<Body> {
    let status = failure.status();
    let text = match failure {
        Failure::BadRequest(_)
        | Failure::Method
        | Failure::Protocol
        | Failure::UploadCut(_)
        | Failure::UploadStalled => format!("{failure}\n"),
        _ => format!("{}\n", status.canonical_reason().unwrap_or_default()),
    };
    let length = text.len().into();
    let mut response = Response::new(full(text));
    *response.status_mut() = status;
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    fields.insert(CONTENT_LENGTH, length);
    fields.extend(retry_after(failure).map(|retry_after| (RETRY_AFTER, retry_after)));
    response
}

/// The value of `Retry-After` (RFC 9110, section 10.2.3; RFC 6585, section 4).
fn retry_after(failure: &Failure) -> Option<HeaderValue> {
    match failure {
        Failure::TooFast(wait) | Failure::QueueFull(wait) => Some(HeaderValue::from(wait.seconds())),
        // One of the client's own requests must end first.
        Failure::TooMany => Some(HeaderValue::from_static("1")),
        _ => None,
    }
}
