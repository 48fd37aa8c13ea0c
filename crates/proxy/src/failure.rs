//! Why a request was not answered by an origin, and what the client is told instead.

use std::io;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError};
use watari_admission::RetryAfter;
use watari_balance::Outcome;

use crate::Body;
use crate::address::OriginAddress;
use crate::client::Client;
use crate::routes::{NoRoute, Refusal};
use crate::upgrade::BadSwitch;

/// Sorted by who is at fault.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The client's: the request cannot be forwarded as it is.
    #[error("bad request: {0}")]
    BadRequest(&'static str),
    /// The client's: a method that ends at a proxy.
    #[error("method not implemented")]
    Method,
    /// The client's: a protocol that no stream can be switched to here.
    #[error("protocol not implemented")]
    Protocol,
    /// The client's: its body ended early.
    #[error("the request's body was cut short")]
    UploadCut(#[source] hyper::Error),
    /// The client's fault: its body stopped coming, or crawls.
    #[error("the request's body stopped coming")]
    UploadStalled,
    /// The client's: its body is longer than it may be.
    #[error("the request's body is too long")]
    UploadTooLong,
    /// The client's: it asks for more in a time than it may.
    #[error("too many requests in a short time")]
    TooFast(RetryAfter),
    /// The client's: as many of its requests are in progress as may be.
    #[error("too many requests at the same time")]
    TooMany,
    /// The client's: nobody from where it is may ask.
    #[error("the client's address is not allowed")]
    NotAllowed,
    /// The client's: nobody may ask.
    #[error("refused by its route")]
    Refused(Refusal),
    /// The client's, or the operator's: nothing is here for such a request.
    #[error("no route")]
    NoRoute(NoRoute),
    /// The operator's: no origin is configured.
    #[error("no origin")]
    NoOrigin,
    /// Ours, or the operator's: the limit of requests in flight is reached.
    #[error("too many requests in flight to {0}")]
    Saturated(OriginAddress),
    /// Nobody's: too many requests wait for the origins, or this one has waited too long.
    #[error("no place at the origins in time")]
    QueueFull(RetryAfter),
    /// The authority's: it cannot be asked whether the request may go on.
    #[error("whether the request may go on cannot be asked: {0}")]
    Auth(#[source] Box<Failure>),
    /// The authority's: its answer is neither yes nor no.
    #[error("{0} was asked whether the request may go on, and answered {1}")]
    AuthAnswer(OriginAddress, StatusCode),
    /// The origin's.
    #[error("no connection to {0}")]
    Connect(OriginAddress, #[source] io::Error),
    /// The origin's, or the network's.
    #[error("connecting to {0} took too long")]
    ConnectTimeout(OriginAddress),
    /// The origin's: it closed a connection it had just accepted.
    #[error("{0} closed the connection")]
    Closed(OriginAddress, #[source] hyper::Error),
    /// The origin's.
    #[error("{0} did not answer in time")]
    ResponseTimeout(OriginAddress),
    /// The origin's: no response, half of one, or none that HTTP knows.
    #[error("bad response from {0}")]
    BadResponse(OriginAddress, #[source] hyper::Error),
    /// The origin's: two lengths, or one beside `Transfer-Encoding`, which is how responses are split (RFC 9112, section 6.3).
    #[error("{0} said in two ways where its response ends")]
    TwoLengths(OriginAddress),
    /// The origin's: a length that is no number (RFC 9110, section 8.6), also where the response has no content.
    #[error("the Content-Length that {0} sends is invalid")]
    BadLength(OriginAddress),
    /// The origin's: it has coded the content for the way, and nobody asked for that.
    #[error("the content that {0} sends has a transfer coding besides chunked")]
    Coded(OriginAddress),
    /// The origin's.
    #[error("{0} switched protocols")]
    BadSwitch(OriginAddress, #[source] BadSwitch),
    /// The origin's: a success that would tell the client that its stream is open.
    #[error("{0} succeeded without switching protocols")]
    NotSwitched(OriginAddress),
    /// The origin's: the connection that it has switched is gone.
    #[error("the connection to {0} was lost as it switched protocols")]
    SwitchLost(OriginAddress, #[source] hyper::Error),
}

impl Failure {
    /// The failure as a metric label.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::BadRequest(_) => "bad_request",
            Self::Method => "method",
            Self::Protocol => "protocol",
            Self::UploadCut(_) => "upload_cut",
            Self::UploadStalled => "upload_stalled",
            Self::UploadTooLong => "upload_too_long",
            Self::TooFast(_) => "client_rate",
            Self::TooMany => "client_concurrency",
            Self::NotAllowed => "not_allowed",
            Self::Refused(_) => "refused",
            Self::QueueFull(_) => "queue",
            Self::Auth(_) | Self::AuthAnswer(..) => "auth",
            Self::NoRoute(_) => "no_route",
            Self::NoOrigin => "no_origin",
            Self::Saturated(_) => "saturated",
            Self::Connect(..) => "connect",
            Self::ConnectTimeout(_) => "connect_timeout",
            Self::Closed(..) => "closed",
            Self::ResponseTimeout(_) => "response_timeout",
            Self::BadResponse(..) => "bad_response",
            Self::TwoLengths(_) => "two_lengths",
            Self::BadLength(_) => "bad_length",
            Self::Coded(_) => "transfer_coding",
            Self::BadSwitch(..) => "bad_switch",
            Self::NotSwitched(_) => "not_switched",
            Self::SwitchLost(..) => "switch_lost",
        }
    }

    /// What it says of the origin.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Connect(..) => Outcome::Unreachable,
            Self::ConnectTimeout(_) | Self::ResponseTimeout(_) => Outcome::TimedOut,
            Self::Closed(..)
            | Self::BadResponse(..)
            | Self::TwoLengths(_)
            | Self::BadLength(_)
            | Self::Coded(_)
            | Self::BadSwitch(..)
            | Self::NotSwitched(_)
            | Self::SwitchLost(..) => Outcome::Broken,
            Self::BadRequest(_)
            | Self::Method
            | Self::Protocol
            | Self::UploadCut(_)
            | Self::UploadStalled
            | Self::UploadTooLong
            | Self::TooFast(_)
            | Self::TooMany
            | Self::NotAllowed
            | Self::Refused(_)
            | Self::NoRoute(_)
            | Self::NoOrigin
            | Self::QueueFull(_)
            | Self::Auth(_)
            | Self::AuthAnswer(..)
            | Self::Saturated(_) => Outcome::Abandoned,
        }
    }

    /// Whether the origin closed the connection instead of answering.
    pub(crate) fn is_reset(&self) -> bool {
        matches!(self, Self::BadResponse(_, error) if !error.is_parse())
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) | Self::UploadCut(_) => StatusCode::BAD_REQUEST,
            Self::Method | Self::Protocol => StatusCode::NOT_IMPLEMENTED,
            Self::UploadStalled => StatusCode::REQUEST_TIMEOUT,
            Self::NoRoute(NoRoute::Host) => StatusCode::MISDIRECTED_REQUEST,
            Self::NoRoute(NoRoute::Path) | Self::Refused(Refusal::NotFound) => StatusCode::NOT_FOUND,
            Self::UploadTooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooFast(_) | Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::NotAllowed | Self::Refused(Refusal::Forbidden) => StatusCode::FORBIDDEN,
            Self::NoOrigin | Self::Saturated(_) | Self::QueueFull(_) | Self::Auth(_) | Self::AuthAnswer(..) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Connect(..)
            | Self::Closed(..)
            | Self::BadResponse(..)
            | Self::TwoLengths(_)
            | Self::BadLength(_)
            | Self::Coded(_)
            | Self::BadSwitch(..)
            | Self::NotSwitched(_)
            | Self::SwitchLost(..) => StatusCode::BAD_GATEWAY,
            Self::ConnectTimeout(_) | Self::ResponseTimeout(_) => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The status and its name; which origin failed, and how, is for the log.
    pub(crate) fn response(&self) -> Response<Body> {
        let status = self.status();
        let text = match self {
            Self::BadRequest(_) | Self::Method | Self::Protocol | Self::UploadCut(_) | Self::UploadStalled => {
                format!("{self}\n")
            }
            _ => format!("{}\n", status.canonical_reason().unwrap_or_default()),
        };
        let length = text.len().into();
        let mut response = Response::new(Full::from(text).map_err(|never| match never {}).boxed_unsync());
        *response.status_mut() = status;
        let fields = response.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        fields.insert(CONTENT_LENGTH, length);
        fields.extend(self.retry_after().map(|retry_after| (RETRY_AFTER, retry_after)));
        response
    }

    /// Why a request could not be sent whose body failed.
    pub(crate) fn of_upload(error: hyper::Error) -> Self {
        let is_too_long =
            std::error::Error::source(&error).is_some_and(<dyn std::error::Error>::is::<LengthLimitError>);
        if is_too_long { Self::UploadTooLong } else { Self::UploadCut(error) }
    }

    /// When the client may come again (RFC 9110, section 10.2.3; RFC 6585, section 4).
    fn retry_after(&self) -> Option<HeaderValue> {
        match self {
            Self::TooFast(wait) | Self::QueueFull(wait) => Some(HeaderValue::from(wait.seconds())),
            // One of its own requests has to end first.
            Self::TooMany => Some(HeaderValue::from_static("1")),
            _ => None,
        }
    }

    fn is_of_client(&self) -> bool {
        matches!(self, Self::Method | Self::Protocol) || self.status().is_client_error()
    }

    /// A client's fault is nothing for an operator to act on.
    pub(crate) fn log(&self, path: &str, client: &Client) {
        let client = client.address();
        let cause = std::error::Error::source(self).map(tracing::field::display);
        if self.is_of_client() {
            tracing::debug!(path, %client, cause, "{self}");
        } else {
            tracing::warn!(path, %client, cause, "{self}");
        }
    }
}
