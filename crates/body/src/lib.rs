//! The types of HTTP bodies and requests that all parts of an agent share: a directory and the proxy make bodies, the
//! agent sends them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Request, Response, StatusCode, request};
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};

/// The body of every response of an agent, from any source, and of every request to an origin. If its source fails, it
/// ends with an error and never as if it were complete. The connection then has to end so that the peer can detect
/// that.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// The reason that a body could not be completed.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A request, as all parts of an agent pass it on. Many futures hold it at the same time, so it is small: the head is
/// boxed, and so is the body, unless it is empty.
#[derive(Debug)]
pub struct BoxedRequest {
    pub head: Box<request::Parts>,
    pub body: Body,
    /// Gets the informational responses (RFC 9110, section 15.2) that precede the response. `None`: they are dropped.
    pub on_informational: Option<OnInformational>,
}

/// A callback for informational responses, with their status and fields.
#[derive(Clone)]
pub struct OnInformational(Arc<dyn Fn(StatusCode, HeaderMap) + Send + Sync>);

/// Whether the rest of a response continues at another agent. An extension of a response whose source needs to know why
/// its body is dropped before the end.
#[derive(Debug, Clone, Default)]
pub struct Departure(Arc<AtomicBool>);

impl BoxedRequest {
    /// A request without content.
    pub fn without_content(head: request::Parts) -> Self {
        Self { head: Box::new(head), body: empty(), on_informational: None }
    }
}

impl<B> From<Request<B>> for BoxedRequest
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn from(request: Request<B>) -> Self {
        let (head, body) = request.into_parts();
        let body = if body.is_end_stream() { empty() } else { body.map_err(Into::into).boxed_unsync() };
        Self { head: Box::new(head), body, on_informational: None }
    }
}

impl OnInformational {
    pub fn new(callback: impl Fn(StatusCode, HeaderMap) + Send + Sync + 'static) -> Self {
        Self(Arc::new(callback))
    }

    pub fn received(&self, status: StatusCode, fields: HeaderMap) {
        (self.0)(status, fields);
    }
}

impl fmt::Debug for OnInformational {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnInformational").finish_non_exhaustive()
    }
}

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
/// content.
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
