//! What an external authority is asked about a request, and what its responses mean.
//!
//! The request to the authority has the fields of the client's request, without the body. Its responses:
//!
//! * 2xx: the request proceeds. Some fields of the response replace the request's fields of those names.
//! * 401, 403, or a redirect (to a login page): the client gets this response.
//! * Any other response, or none in time: the client gets 503. Without an answer, a request is not allowed.

use std::str::FromStr;
use std::time::Duration;

use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use watari_body::{Body, BoxedRequest};

use crate::exchange::address::OriginAddress;
use crate::exchange::failure::Failure;
use crate::exchange::fields;
use crate::transport::connect::Transport;

/// How to ask the authority.
#[derive(Debug, Clone)]
pub struct AuthConfig {
    /// The URL of the authority.
    pub url: AuthUrl,
    pub transport: Transport,
    /// The fields of its response that a request gets; see [`AuthConfig::may_copy`].
    pub copy: Vec<HeaderName>,
    /// The timeout of the request to the authority.
    pub timeout: Duration,
}

/// The URL of an authority: `http://HOST/PATH` or `https://HOST/PATH`, with an optional port and query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthUrl {
    address: OriginAddress,
    target: PathAndQuery,
}

/// The text is not an [`AuthUrl`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH")]
pub struct InvalidAuthUrl;

/// An authority: what it is asked, and what its responses mean.
#[derive(Debug)]
pub(crate) struct Auth {
    address: OriginAddress,
    target: PathAndQuery,
    host: HeaderValue,
    copy: Vec<HeaderName>,
}

/// Fields that frame a message, or are for one connection only (RFC 9110, section 7.6.1). They are not copied from the
/// authority's response.
static NOT_COPIED: [HeaderName; 7] = [CONNECTION, CONTENT_LENGTH, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

/// Fields about the body of the client's request or its connection, or about a part or a version of the content. The
/// request to the authority has none of them.
static NOT_ASKED: [HeaderName; 16] = [
    ACCEPT_ENCODING,
    CONNECTION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    EXPECT,
    HOST,
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_RANGE,
    IF_UNMODIFIED_SINCE,
    RANGE,
    TE,
    TRAILER,
    UPGRADE,
];

static X_FORWARDED_METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
static X_FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

impl AuthConfig {
    /// Whether a field of this name can be copied from the authority's response.
    pub fn may_copy(name: &HeaderName) -> bool {
        !NOT_COPIED.contains(name)
    }
}

impl AuthUrl {
    pub fn address(&self) -> &OriginAddress {
        &self.address
    }
}

impl FromStr for AuthUrl {
    type Err = InvalidAuthUrl;

    fn from_str(text: &str) -> Result<Self, InvalidAuthUrl> {
        let uri: Uri = text.parse().map_err(|_| InvalidAuthUrl)?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return Err(InvalidAuthUrl) };
        let address = format!("{scheme}://{authority}").parse().map_err(|_| InvalidAuthUrl)?;
        Ok(Self { address, target: uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")) })
    }
}

impl Auth {
    pub(crate) fn new(config: AuthConfig) -> Self {
        let AuthConfig { url: AuthUrl { address, target }, copy, .. } = config;
        let host = HeaderValue::try_from(address.authority()).expect("the authority of a URI is a valid field value");
        Self { address, target, host, copy }
    }

    /// The request to the authority about the request with this head.
    pub(crate) fn question(&self, head: &Parts) -> Result<BoxedRequest, Failure> {
        let mut headers = head.headers.clone();
        for name in &NOT_ASKED {
            headers.remove(name);
        }
        headers.insert(HOST, self.host.clone());
        let values = [(&X_FORWARDED_METHOD, head.method.as_str()), (&X_FORWARDED_URI, target(head))];
        for (name, value) in values {
            let value = HeaderValue::from_str(value).map_err(|_| Failure::BadRequest("invalid target"))?;
            headers.insert(name.clone(), value);
        }
        let (mut question, ()) = Request::new(()).into_parts();
        (question.uri, question.headers) = (Uri::from(self.target.clone()), headers);
        Ok(BoxedRequest::without_content(question))
    }

    /// Decides by the authority's response. If the request with this head may proceed, copies fields into the head, and
    /// returns `None`. Otherwise returns the client's response.
    pub(crate) fn decide(&self, answer: Response<Body>, head: &mut Parts) -> Result<Option<Response<Body>>, Failure> {
        match answer.status() {
            status if status.is_success() => {
                self.copy(answer.headers(), &mut head.headers);
                Ok(None)
            }
            status if is_for_client(status) => Ok(Some(answer)),
            status => Err(Failure::AuthAnswer(self.address.clone(), status)),
        }
    }

    /// Whether requests get a field that is not among these.
    pub(crate) fn copies_beyond(&self, names: &[HeaderName]) -> bool {
        self.copy.iter().any(|copied| !names.contains(copied))
    }

    /// Replaces the client's fields of these names. They are removed even if the authority sends none.
    fn copy(&self, answer: &HeaderMap, request: &mut HeaderMap) {
        for name in &self.copy {
            fields::remove_if(request, |field| fields::are_alike(name.as_str(), field));
            for value in answer.get_all(name) {
                request.append(name.clone(), value.clone());
            }
        }
    }
}

fn target(head: &Parts) -> &str {
    head.uri.path_and_query().map_or("/", PathAndQuery::as_str)
}

fn is_for_client(status: StatusCode) -> bool {
    let redirects = status.is_redirection() && status != StatusCode::NOT_MODIFIED;
    redirects || status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN
}
