//! Why an exchange on a connection failed.

use std::io;

use http_body_util::LengthLimitError;
use watari_body::BoxError;
use watari_http1::{ContentFault, ResponseFault, Truncated};

/// Why an exchange failed on its connection. The connection is closed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    /// Origin's fault: the head of its response.
    #[error("invalid head of a response: {0}")]
    Head(#[source] ResponseFault),
    /// Origin's fault: the framing of its response's content.
    #[error("invalid content of a response: {0}")]
    Content(#[source] ContentFault),
    /// Origin's or network's fault: the connection ended, or failed.
    #[error("the connection ended: {0}")]
    Closed(#[source] io::Error),
    /// Client's fault: the body of the request failed.
    #[error("the body of the request failed: {0}")]
    Upload(#[source] BoxError),
    /// The HTTP/2 connection or stream failed.
    #[error("HTTP/2: {0}")]
    Http2(#[source] hyper::Error),
}

impl ExchangeError {
    /// Whether the origin closed the connection instead of responding, as far as is known.
    pub(crate) fn is_reset(&self) -> bool {
        match self {
            Self::Closed(_) => true,
            Self::Http2(error) => !error.is_parse() && !error.is_user(),
            Self::Head(_) | Self::Content(_) | Self::Upload(_) => false,
        }
    }

    /// The error, if the body of the request is the reason.
    pub(crate) fn into_upload(self) -> Result<BoxError, Self> {
        match self {
            Self::Upload(error) => Ok(error),
            Self::Http2(error) if error.is_user() => Ok(error.into()),
            error => Err(error),
        }
    }
}

impl From<ResponseFault> for ExchangeError {
    fn from(fault: ResponseFault) -> Self {
        Self::Head(fault)
    }
}

impl From<ContentFault> for ExchangeError {
    fn from(fault: ContentFault) -> Self {
        Self::Content(fault)
    }
}

impl From<Truncated> for ExchangeError {
    fn from(truncated: Truncated) -> Self {
        Self::Closed(io::Error::new(io::ErrorKind::UnexpectedEof, truncated))
    }
}

/// Whether a body failed because it is longer than the limit.
pub(crate) fn is_too_long(error: &BoxError) -> bool {
    // HTTP/2 wraps the error of the body.
    error.is::<LengthLimitError>()
        || std::error::Error::source(&**error).is_some_and(<dyn std::error::Error>::is::<LengthLimitError>)
}
