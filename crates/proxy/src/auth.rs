//! An authority elsewhere says whether a request may go on, and who asks.
//!
//! It is asked by a request of its own with the fields of the client's, without the body. Answers:
//!
//! * 2xx: the request goes on, with some fields of the answer instead of its own ones of those names.
//! * 401, 403, or a redirection (to where one logs in): this is the client's answer.
//! * anything else, or nothing in time: the client gets 503. What cannot be asked about is not allowed.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use tokio::time::timeout;

use crate::body::ResponseBody;
use crate::client::Client;
use crate::connect::InvalidTransport;
use crate::failure::Failure;
use crate::fields;
use crate::origin::{Origin, Outcome};
use crate::pool::{self, PoolConfig};
use crate::request::Repeatable;
use crate::{Body, Limits, Metrics, OriginAddress, Transport};

/// Whom to ask whether a request may go on.
#[derive(Debug, Clone)]
pub struct AuthConfig {
    /// Where the authority is, and what it is asked for.
    pub url: AuthUrl,
    /// How it is spoken to.
    pub transport: Transport,
    /// The fields of its answer that a request goes on with; see [`AuthConfig::may_copy`].
    pub copy: Vec<HeaderName>,
    /// How long it may take.
    pub timeout: Duration,
}

/// Where an authority is, and what it is asked for: `http://HOST/PATH`, with or without a port and a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthUrl {
    address: OriginAddress,
    target: PathAndQuery,
}

/// A text is no [`AuthUrl`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("whom to ask is given as http://HOST/PATH or https://HOST/PATH, with or without a port")]
pub struct InvalidAuthUrl;

/// An authority, and the connections to it.
#[derive(Debug)]
pub(crate) struct Auth {
    origin: Arc<Origin>,
    target: PathAndQuery,
    host: HeaderValue,
    copy: Vec<HeaderName>,
    timeout: Duration,
}

/// What frames a message, or is for one connection only (RFC 9110, section 7.6.1), is not the authority's to say.
static NOT_COPIED: [HeaderName; 7] = [CONNECTION, CONTENT_LENGTH, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

/// What is about the body of the client's request or its connection, or about a part or a version of what it asks for.
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

/// What authorities are called in metrics.
const POOL: &str = "auth";

/// What is read of an answer that nobody wants, so that its connection can be used again, in bytes.
const DRAINED_MAX: usize = 64 * 1024;

impl AuthConfig {
    /// Whether a field of this name can be taken over from the authority's answer.
    pub fn may_copy(name: &HeaderName) -> bool {
        !NOT_COPIED.contains(name)
    }
}

impl AuthUrl {
    /// Where the authority is.
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
    pub(crate) fn new(config: AuthConfig, metrics: &Metrics) -> Result<Self, InvalidTransport> {
        let AuthConfig { url: AuthUrl { address, target }, transport, copy, timeout } = config;
        let limits = Limits { connect_timeout: timeout, response_timeout: timeout, ..Limits::default() };
        let host = HeaderValue::try_from(address.authority()).expect("what is part of a URI can be in a field");
        let pool = PoolConfig { transport, limits, ..PoolConfig::plain(POOL, [address]) };
        let origin = pool::origins(&pool, metrics)?.remove(0);
        Ok(Self { origin, target, host, copy, timeout })
    }

    /// Asks whether the request with this head may go on; then the head says what the authority does. Else returns the
    /// client's answer.
    pub(crate) async fn ask(&self, head: &mut Parts, client: &Client) -> Result<Option<Response<Body>>, Failure> {
        let question = self.question(head)?;
        let answer = timeout(self.timeout, self.answer(&question, client)).await;
        let answer = answer.map_err(|_| self.silent())??;
        match answer.status() {
            status if status.is_success() => {
                self.copy(answer.headers(), &mut head.headers);
                Ok(None)
            }
            status if is_for_client(status) => Ok(Some(answer)),
            status => Err(Failure::AuthAnswer(self.origin.address.clone(), status)),
        }
    }

    fn question(&self, head: &Parts) -> Result<Repeatable, Failure> {
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
        Ok(Repeatable { method: Method::GET, uri: Uri::from(self.target.clone()), headers })
    }

    /// The answer; if the request may go on, without the body, which is read within the same time.
    async fn answer(&self, question: &Repeatable, client: &Client) -> Result<Response<Body>, Failure> {
        match self.origin.exchange(question.request(), None, Some(question), client).await {
            Outcome::Answered(answer) if answer.status().is_success() => {
                let (head, body) = answer.into_parts();
                drain(body).await;
                Ok(Response::from_parts(head, crate::body::empty()))
            }
            Outcome::Answered(answer) => Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync())),
            Outcome::Untouched(_, failure) | Outcome::Failed(failure) => Err(Failure::Auth(Box::new(failure))),
        }
    }

    fn silent(&self) -> Failure {
        Failure::Auth(Box::new(Failure::ResponseTimeout(self.origin.address.clone())))
    }

    /// What the client says in fields of these names does not count, also where the authority says nothing.
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

async fn drain(body: ResponseBody) {
    // A connection that still has something to say is closed instead.
    let _ = Limited::new(body, DRAINED_MAX).collect().await;
}
