//! Why a request was not answered by an origin, and what the client is told instead.

use std::io;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Full};

use crate::Body;
use crate::client::Client;
use crate::origin::OriginAddress;

/// Sorted by who is at fault.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The client's: the request cannot be forwarded as it is.
    #[error("bad request: {0}")]
    BadRequest(&'static str),
    /// The client's: a method that ends at a proxy.
    #[error("method not implemented")]
    Method,
    /// The client's: its body ended early.
    #[error("the request's body was cut short")]
    UploadCut(#[source] hyper::Error),
    /// The client's: its body stopped coming.
    #[error("the request's body stopped coming")]
    UploadStalled,
    /// The operator's: no origin is configured.
    #[error("no origin")]
    NoOrigin,
    /// Ours, or the operator's: the limit of requests in flight is reached.
    #[error("too many requests in flight to {0}")]
    Saturated(OriginAddress),
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
    /// The origin's: it switched protocols although it was not asked to.
    #[error("{0} switched protocols unasked")]
    UnaskedUpgrade(OriginAddress),
}

impl Failure {
    /// The failure as a metric label.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::BadRequest(_) => "bad_request",
            Self::Method => "method",
            Self::UploadCut(_) => "upload_cut",
            Self::UploadStalled => "upload_stalled",
            Self::NoOrigin => "no_origin",
            Self::Saturated(_) => "saturated",
            Self::Connect(..) => "connect",
            Self::ConnectTimeout(_) => "connect_timeout",
            Self::Closed(..) => "closed",
            Self::ResponseTimeout(_) => "response_timeout",
            Self::BadResponse(..) => "bad_response",
            Self::UnaskedUpgrade(_) => "unasked_upgrade",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) | Self::UploadCut(_) => StatusCode::BAD_REQUEST,
            Self::Method => StatusCode::NOT_IMPLEMENTED,
            Self::UploadStalled => StatusCode::REQUEST_TIMEOUT,
            Self::NoOrigin | Self::Saturated(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Connect(..) | Self::Closed(..) | Self::BadResponse(..) | Self::UnaskedUpgrade(_) => {
                StatusCode::BAD_GATEWAY
            }
            Self::ConnectTimeout(_) | Self::ResponseTimeout(_) => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The status and its name; which origin failed, and how, is for the log.
    pub(crate) fn response(&self) -> Response<Body> {
        let status = self.status();
        let text = match self {
            Self::BadRequest(_) | Self::Method | Self::UploadCut(_) | Self::UploadStalled => {
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
        response
    }

    /// A client's fault is nothing for an operator to act on.
    pub(crate) fn log(&self, path: &str, client: &Client) {
        let client = client.address();
        let cause = std::error::Error::source(self).map(tracing::field::display);
        match self {
            Self::BadRequest(_) | Self::Method | Self::UploadCut(_) | Self::UploadStalled => {
                tracing::debug!(path, %client, cause, "{self}");
            }
            _ => tracing::warn!(path, %client, cause, "{self}"),
        }
    }
}
