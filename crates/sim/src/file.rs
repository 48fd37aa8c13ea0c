//! The site: files whose bytes are a function of the offset.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_RANGE, ETAG, RANGE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use watari_connection::{Content, Interim, Service};
use watari_http1::Refused;

use crate::network::{Network, NodeId};
use crate::random::mix;

/// The byte at `offset` of a file.
pub(crate) fn byte(file: u64, offset: u64) -> u8 {
    (mix(file ^ (offset / 8).wrapping_mul(0x2545_f491_4f6c_dd1d)) >> (offset % 8 * 8)) as u8
}

/// The path of a file.
pub(crate) fn path(file: u64, len: u64) -> String {
    format!("/{file}/{len}")
}

fn parse_path(path: &str) -> Option<(u64, u64)> {
    let mut numbers = path.split('/').skip(1).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Answers requests for files, and takes uploads of files.
#[derive(Clone)]
pub(crate) struct Files {
    pub(crate) network: Network,
    /// The agent that serves them.
    pub(crate) node: NodeId,
}

impl Service for Files {
    type Body = FileBody;
    type Answering = Pin<Box<dyn Future<Output = Response<FileBody>>>>;

    fn answer(&mut self, request: Request<Content>, _interim: &mut Interim) -> Self::Answering {
        let files = self.clone();
        Box::pin(async move {
            if request.method() == Method::PUT {
                files.take_upload(request).await
            } else {
                files.respond(request.uri().path(), request.headers().get(RANGE))
            }
        })
    }

    fn refuse(&mut self, _refused: &Refused) -> Response<FileBody> {
        self.network.violation("a request that a client has not sent arrived".to_owned());
        self.status(StatusCode::BAD_REQUEST)
    }

    fn date(&self) -> HeaderValue {
        HeaderValue::from_static("Wed, 25 Nov 2026 00:00:00 GMT")
    }
}

impl Files {
    /// The response to a request for a file, or for one range of it.
    pub(crate) fn respond(&self, path: &str, range: Option<&HeaderValue>) -> Response<FileBody> {
        let Some((file, len)) = parse_path(path) else { return self.status(StatusCode::NOT_FOUND) };
        let range = range.and_then(|range| {
            let (first, last) = range.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
            Some((first.parse::<u64>().ok()?, last.parse::<u64>().ok()?))
        });
        let (first, last) = range.unwrap_or((0, len - 1));
        let mut response = Response::new(self.body(file, first, last + 1));
        let headers = response.headers_mut();
        headers.insert(ETAG, HeaderValue::try_from(format!("\"{file}-{len}\"")).expect("digits"));
        if range.is_some() {
            let value = format!("bytes {first}-{last}/{len}");
            headers.insert(CONTENT_RANGE, HeaderValue::try_from(value).expect("digits"));
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        response
    }

    /// Reads an upload, and checks every byte.
    async fn take_upload(self, request: Request<Content>) -> Response<FileBody> {
        let (head, mut content) = request.into_parts();
        let Some((file, len)) = parse_path(head.uri.path()) else { return self.status(StatusCode::NOT_FOUND) };
        let mut position = 0;
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut content).poll_frame(cx)).await {
            // The connection is cut.
            let Ok(frame) = frame else { return self.status(StatusCode::BAD_REQUEST) };
            let data = frame.into_data().unwrap_or_default();
            if (position..).zip(&data).any(|(offset, got)| byte(file, offset) != *got) {
                self.network.violation(format!("a wrong byte was uploaded to {} after {position}", self.node));
            }
            position += data.len() as u64;
        }
        if position != len {
            self.network.violation(format!("{position} bytes of an upload of {len} arrived at {}", self.node));
        }
        self.status(StatusCode::NO_CONTENT)
    }

    fn status(&self, status: StatusCode) -> Response<FileBody> {
        let mut response = Response::new(self.body(0, 0, 0));
        *response.status_mut() = status;
        response
    }

    pub(crate) fn body(&self, file: u64, position: u64, end: u64) -> FileBody {
        FileBody { network: self.network.clone(), node: self.node, file, position, end }
    }
}

/// A part of a file. Sometimes the next piece is late.
pub(crate) struct FileBody {
    network: Network,
    node: NodeId,
    file: u64,
    position: u64,
    end: u64,
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.position == self.end {
            return Poll::Ready(None);
        }
        if self.network.random(|random| random.one_in(6)) {
            let late = self.network.random(|random| random.millis(0..8));
            self.network.wake_in(self.node, late);
            return Poll::Pending;
        }
        let len = self.network.random(|random| random.within(1..40_000)).min(self.end - self.position);
        let piece = (self.position..self.position + len).map(|offset| byte(self.file, offset)).collect::<Vec<_>>();
        self.position += len;
        Poll::Ready(Some(Ok(Frame::data(piece.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.position == self.end
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.end - self.position)
    }
}
