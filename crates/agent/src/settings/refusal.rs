//! Responses of the agent itself.

use bytes::Bytes;
use http::{Response, StatusCode};
use watari_body::Body;

/// A response with a short text.
pub(crate) fn refusal(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(watari_body::full(text));
    *response.status_mut() = status;
    let content_type = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
    response
}
