//! Files of the agents.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_RANGE, ETAG, RANGE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};

use crate::network::{Network, NodeId};
use crate::resource::{Resource, bytes};

/// The response to a request for a file, or for one range of it.
pub(crate) fn respond(network: &Network, node: NodeId, file: Resource, request: &HeaderMap) -> Response<FileBody> {
    let range = request.get(RANGE).and_then(|range| {
        let (first, last) = range.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse::<u64>().ok()?, last.parse::<u64>().ok()?))
    });
    let (first, last) = range.unwrap_or((0, file.len - 1));
    let body = FileBody { network: network.clone(), node, file: file.file, position: first, end: last + 1 };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(ETAG, HeaderValue::try_from(file.etag(0)).expect("digits"));
    if range.is_some() {
        let value = format!("bytes {first}-{last}/{}", file.len);
        headers.insert(CONTENT_RANGE, HeaderValue::try_from(value).expect("digits"));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    response
}

/// A part of a file. Sometimes the next piece is late.
pub(crate) struct FileBody {
    network: Network,
    node: NodeId,
    file: u64,
    position: u64,
    end: u64,
}

impl FileBody {
    /// No bytes.
    pub(crate) fn empty(network: &Network, node: NodeId) -> Self {
        Self { network: network.clone(), node, file: 0, position: 0, end: 0 }
    }
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
        let piece = bytes(self.file, self.position..self.position + len);
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
