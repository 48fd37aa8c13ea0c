//! The type of HTTP bodies that all parts of an agent share: a directory and the proxy make them, the agent sends them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_LENGTH;
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};

/// The body of every response of an agent, from any source, and of every request to an origin. If its source fails, it
/// ends with an error and never as if it were complete. The connection then has to end so that the peer can detect
/// that.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// The reason that a body could not be completed.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Whether the rest of a response continues at another agent. An extension of a response whose source needs to know why
/// its body is dropped before the end.
#[derive(Debug, Clone, Default)]
pub struct Departure(Arc<AtomicBool>);

impl Departure {
    /// Records that the rest continues elsewhere. The body is dropped next.
    pub fn departs(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn has_departed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// An empty body. Allocates nothing.
pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A body of these bytes.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// The response to HEAD in place of this one to GET (RFC 9110, section 9.3.2): the same fields with the length, and no
/// content. hyper sends the content of such a response over HTTP/2.
pub fn without_content(response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    if body.is_end_stream() {
        return Response::from_parts(head, body);
    }
    if let Some(len) = body.size_hint().exact() {
        head.headers.entry(CONTENT_LENGTH).or_insert(len.into());
    }
    Response::from_parts(head, empty())
}
