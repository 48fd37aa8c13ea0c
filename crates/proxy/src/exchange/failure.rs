//! Why a request has no response from an origin.

use std::io;

use http::StatusCode;
use watari_admission::RetryAfter;
use watari_balance::Outcome;
use watari_body::BoxError;
use watari_http1::ResponseFault;

use crate::exchange::address::OriginAddress;
use crate::exchange::client::Client;
use crate::exchange::error::{ExchangeError, is_too_long};

/// Why a request failed, sorted by the side at fault.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Client's fault: the request cannot be forwarded.
    #[error("bad request: {0}")]
    BadRequest(&'static str),
    /// Client's fault: a method that ends at a proxy.
    #[error("method not implemented")]
    Method,
    /// Client's fault: the proxy cannot switch a stream to this protocol.
    #[error("protocol not implemented")]
    Protocol,
    /// Client's fault: its body ended early.
    #[error("the request's body was cut short")]
    UploadCut(#[source] BoxError),
    /// Client's fault: its body stalled, or is too slow.
    #[error("the request's body came too slowly")]
    UploadStalled,
    /// Client's fault: its body is longer than the limit.
    #[error("the request's body is too long")]
    UploadTooLong,
    /// Client's fault: it exceeds its request rate.
    #[error("too many requests in a short time")]
    TooFast(RetryAfter),
    /// Client's fault: the maximum number of its requests is in progress.
    #[error("too many requests at the same time")]
    TooMany,
    /// Client's fault: its network has no access.
    #[error("the client's address is not allowed")]
    NotAllowed,
    /// Client's fault: the route refuses all requests.
    #[error("refused by its route")]
    Refused(Refusal),
    /// Client's or operator's fault: no route matches the request.
    #[error("no route")]
    NoRoute(NoRoute),
    /// Operator's fault: no origin is configured.
    #[error("no origin")]
    NoOrigin,
    /// Our or the operator's fault: the limit of requests in flight is reached.
    #[error("too many requests in flight to {0}")]
    Saturated(OriginAddress),
    /// No side's fault: too many requests wait for the origins, or this one reached its maximum wait.
    #[error("no slot at the origins: the queue is full, or the wait is over")]
    QueueFull(RetryAfter),
    /// Authority's fault: the request to it failed.
    #[error("the authorization request failed: {0}")]
    Auth(#[source] Box<Failure>),
    /// Authority's fault: its response neither allows nor denies the request.
    #[error("{0} answered the authorization request with {1}")]
    AuthAnswer(OriginAddress, StatusCode),
    /// Origin's fault: the request of another client for the same resource has failed, and this one waited for it.
    #[error("the request that this one waited for has failed")]
    Collapsed(StatusCode),
    /// Origin's fault.
    #[error("cannot connect to {0}")]
    Connect(OriginAddress, #[source] io::Error),
    /// Origin's or network's fault.
    #[error("connecting to {0} took too long")]
    ConnectTimeout(OriginAddress),
    /// Origin's fault: it closed a connection that it had just accepted.
    #[error("{0} closed the connection")]
    Closed(OriginAddress, #[source] ExchangeError),
    /// Origin's fault.
    #[error("{0} did not answer in time")]
    ResponseTimeout(OriginAddress),
    /// Origin's fault: its response is missing, incomplete, or not valid HTTP.
    #[error("bad response from {0}")]
    BadResponse(OriginAddress, #[source] ExchangeError),
    /// Origin's fault: two lengths, or one in addition to `Transfer-Encoding`, which allows response splitting (RFC
    /// 9112, section 6.3).
    #[error("{0} sent a response with conflicting Content-Length or Transfer-Encoding fields")]
    TwoLengths(OriginAddress),
    /// Origin's fault: a length that is not a number (RFC 9110, section 8.6), also in a response without content.
    #[error("{0} sent an invalid Content-Length")]
    BadLength(OriginAddress),
    /// Origin's fault: it has applied a transfer coding that the request did not allow.
    #[error("{0} sent a transfer coding other than chunked")]
    Coded(OriginAddress),
    /// Origin's fault.
    #[error("{0} sent an invalid 101 (Switching Protocols)")]
    BadSwitch(OriginAddress, #[source] BadSwitch),
    /// Origin's fault: a success that would open the client's stream without a switch.
    #[error("{0} answered an upgrade with 2xx instead of 101")]
    NotSwitched(OriginAddress),
}

/// The response to requests that are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// 403: the response admits that the resource may exist.
    Forbidden,
    /// 404: the response does not reveal whether the resource exists.
    NotFound,
}

/// No route matches a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoute {
    /// No route matches its host.
    Host,
    /// Routes match its host, and none matches its path.
    Path,
}

/// The origin's response to an upgrade is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadSwitch {
    #[error("the request asked for no upgrade")]
    Unasked,
    #[error("the request does not list the protocol")]
    Protocol,
    #[error("Sec-WebSocket-Accept does not match the key")]
    Key,
    #[error("it preceded the end of the request")]
    Early,
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
            Self::Collapsed(_) => "collapsed",
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
        }
    }

    /// The outcome for the origin's health.
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
            | Self::NotSwitched(_) => Outcome::Broken,
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
            | Self::Collapsed(_)
            | Self::Saturated(_) => Outcome::Abandoned,
        }
    }

    /// Whether the origin closed the connection instead of responding.
    pub(crate) fn is_reset(&self) -> bool {
        matches!(self, Self::BadResponse(_, error) if error.is_reset())
    }

    /// The status of the client's response.
    pub(crate) fn status(&self) -> StatusCode {
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
            | Self::NotSwitched(_) => StatusCode::BAD_GATEWAY,
            Self::ConnectTimeout(_) | Self::ResponseTimeout(_) => StatusCode::GATEWAY_TIMEOUT,
            Self::Collapsed(status) => *status,
        }
    }

    /// The failure of a request that an origin may have seen, and did not respond to.
    pub(crate) fn of_exchange(origin: &OriginAddress, error: ExchangeError) -> Self {
        let origin = origin.clone();
        match error.into_upload() {
            Ok(error) if is_too_long(&error) => Self::UploadTooLong,
            Ok(error) => Self::UploadCut(error),
            Err(ExchangeError::Head(ResponseFault::Lengths | ResponseFault::LengthAndCoding)) => {
                Self::TwoLengths(origin)
            }
            Err(ExchangeError::Head(ResponseFault::Length)) => Self::BadLength(origin),
            Err(ExchangeError::Head(ResponseFault::Coding)) => Self::Coded(origin),
            Err(ExchangeError::Head(ResponseFault::Upgrade)) => Self::BadSwitch(origin, BadSwitch::Unasked),
            Err(error) => Self::BadResponse(origin, error),
        }
    }

    fn is_of_client(&self) -> bool {
        matches!(self, Self::Method | Self::Protocol) || self.status().is_client_error()
    }

    /// Logs the failure. Faults of clients get the level debug, because an operator cannot act on them.
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
