//! The content that an agent serves.

use bytes::Bytes;
use http::header::EXPECT;
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use watari_body::{Body, BoxError, BoxedRequest};
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

    pub(crate) async fn respond(&self, mut request: BoxedRequest, client: &Client) -> Response<Body> {
        match self {
            Self::Files(files) => match read_content(&mut request).await {
                Ok(()) => files.respond(&request.head).await,
                Err(_) => refusal(StatusCode::BAD_REQUEST, "The request is incomplete.\n"),
            },
            // Boxed: this large future would be copied at each level, also for files.
            Self::Proxy(proxy) => Box::pin(proxy.respond(request, client)).await,
        }
    }
}

/// The most request content that is read without use, in bytes.
const UNWANTED_LEN_MAX: usize = 64 * 1024;

/// Reads the content of a request for a file to its end, up to a limit. So an error in it is found before the answer,
/// and the connection can continue. A request with `Expect` is answered without reading.
async fn read_content(request: &mut BoxedRequest) -> Result<(), BoxError> {
    let mut left = if request.head.headers.contains_key(EXPECT) { 0 } else { UNWANTED_LEN_MAX };
    while left > 0
        && let Some(frame) = request.body.frame().await
    {
        left = left.saturating_sub(frame?.data_ref().map_or(0, Bytes::len));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::VecDeque;
    use std::pin::Pin;
    use std::sync::{Arc, Mutex};
    use std::task::{Context, Poll};

    use http::Request;
    use http_body::Frame;

    use super::*;

    /// A body with pieces of these lengths. The last may be an error.
    #[derive(Clone)]
    struct Pieces(Arc<Mutex<VecDeque<Result<usize, &'static str>>>>);

    impl http_body::Body for Pieces {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
            let piece = self.0.lock().unwrap().pop_front();
            Poll::Ready(piece.map(|piece| piece.map(|len| Frame::data(vec![0; len].into()))))
        }
    }

    /// The number of pieces left unread, or the error of one.
    async fn left(
        request: http::request::Builder,
        pieces: impl Into<VecDeque<Result<usize, &'static str>>>,
    ) -> Result<usize, String> {
        let pieces = Pieces(Arc::new(Mutex::new(pieces.into())));
        let mut request = request.body(pieces.clone()).unwrap().into();
        read_content(&mut request).await.map_err(|error| error.to_string())?;
        Ok(pieces.0.lock().unwrap().len())
    }

    #[tokio::test]
    async fn content_that_nobody_wants_is_read_up_to_a_bound() {
        assert_eq!(left(Request::get("/"), []).await, Ok(0));
        assert_eq!(left(Request::get("/"), [Ok(1), Ok(10_000)]).await, Ok(0));
        assert_eq!(left(Request::get("/"), [Ok(1), Err("cut")]).await, Err("cut".to_owned()));
        assert_eq!(left(Request::get("/"), [Ok(UNWANTED_LEN_MAX - 1), Ok(1), Ok(1)]).await, Ok(1));
        assert_eq!(left(Request::get("/"), [Ok(1 << 20), Ok(1)]).await, Ok(1));
        assert_eq!(left(Request::put("/").header("expect", "100-continue"), [Ok(1)]).await, Ok(1));
    }
}
