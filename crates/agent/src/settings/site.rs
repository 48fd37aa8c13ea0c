//! The content that an agent serves.

use std::pin::pin;

use bytes::Bytes;
use http::header::EXPECT;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use watari_body::{Body, BoxError};
use watari_files::Files;
use watari_proxy::{Client, Proxy, ReopenError};

use super::refusal::refusal;

pub enum Site {
    /// Files from a directory.
    Files(Files),
    /// Responses from origins.
    Proxy(Box<Proxy>),
}

/// The agent serves files, so there is no proxy.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the agent serves files, and has no origins")]
pub struct NoProxy;

impl Site {
    /// Starts the background tasks. Further calls do nothing.
    pub(crate) fn start(&self) {
        match self {
            Self::Files(_) => {}
            Self::Proxy(proxy) => proxy.start(),
        }
    }

    /// Whether responses come from origins. Then informational responses may precede them, and an HTTP/2 stream may
    /// become a tunnel (RFC 8441).
    pub(crate) fn has_origins(&self) -> bool {
        matches!(self, Self::Proxy(_))
    }

    /// Opens the log files again, after a rotation. Blocks until they are open.
    pub fn reopen_logs(&self) -> Result<(), ReopenError> {
        match self {
            Self::Files(_) => Ok(()),
            Self::Proxy(proxy) => proxy.reopen_log(),
        }
    }

    pub(crate) async fn respond<B>(&self, request: Request<B>, client: &Client) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        match self {
            Self::Files(files) => match without_content(request).await {
                Ok(request) => files.respond(request).await,
                Err(_) => refusal(StatusCode::BAD_REQUEST, "The request is incomplete.\n"),
            },
            Self::Proxy(proxy) => proxy.respond(request, client).await,
        }
    }
}

/// The most request content that is read without use, in bytes.
const UNWANTED_LEN_MAX: usize = 64 * 1024;

/// Reads the content of a request for a file to its end, up to a limit. So an error in it is found before the answer,
/// and the connection can continue. A request with `Expect` is answered without reading.
async fn without_content<B>(request: Request<B>) -> Result<Request<()>, B::Error>
where
    B: http_body::Body<Data = Bytes>,
{
    let (head, body) = request.into_parts();
    let mut body = pin!(body);
    let mut left = if head.headers.contains_key(EXPECT) { 0 } else { UNWANTED_LEN_MAX };
    while left > 0
        && let Some(frame) = body.frame().await
    {
        left = left.saturating_sub(frame?.data_ref().map_or(0, Bytes::len));
    }
    Ok(Request::from_parts(head, ()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::VecDeque;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http_body::Frame;

    use super::*;

    /// A body with pieces of these lengths. The last may be an error.
    struct Pieces(VecDeque<Result<usize, &'static str>>);

    impl http_body::Body for &mut Pieces {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
            let piece = self.get_mut().0.pop_front();
            Poll::Ready(piece.map(|piece| piece.map(|len| Frame::data(vec![0; len].into()))))
        }
    }

    /// The number of pieces left unread, or the error of one.
    async fn left(
        request: http::request::Builder,
        pieces: impl Into<VecDeque<Result<usize, &'static str>>>,
    ) -> Result<usize, &'static str> {
        let mut pieces = Pieces(pieces.into());
        without_content(request.body(&mut pieces).unwrap()).await?;
        Ok(pieces.0.len())
    }

    #[tokio::test]
    async fn content_that_nobody_wants_is_read_up_to_a_bound() {
        assert_eq!(left(Request::get("/"), []).await, Ok(0));
        assert_eq!(left(Request::get("/"), [Ok(1), Ok(10_000)]).await, Ok(0));
        assert_eq!(left(Request::get("/"), [Ok(1), Err("cut")]).await, Err("cut"));
        assert_eq!(left(Request::get("/"), [Ok(UNWANTED_LEN_MAX - 1), Ok(1), Ok(1)]).await, Ok(1));
        assert_eq!(left(Request::get("/"), [Ok(1 << 20), Ok(1)]).await, Ok(1));
        assert_eq!(left(Request::put("/").header("expect", "100-continue"), [Ok(1)]).await, Ok(1));
    }
}
