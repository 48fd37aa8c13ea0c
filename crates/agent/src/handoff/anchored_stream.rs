//! An end of an anchored stream, as a stream of bytes and as a body.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use watari_body::BoxError;
use watari_values::NodeName;
use watari_wire::{ANCHORED_DATA_LEN_MAX, AnchoredState};

use super::anchors::{Anchors, EndState, StreamEnd};

/// An end of a stream. If it is dropped before both directions have ended, the other end fails.
pub(crate) struct AnchoredStream {
    anchors: Arc<Anchors>,
    end: Arc<StreamEnd>,
}

/// The direction to the owner, as the body of a response.
pub(crate) struct AnchoredBody(Arc<AnchoredStream>);

impl AnchoredStream {
    pub(super) fn new(anchors: Arc<Anchors>, end: Arc<StreamEnd>) -> Self {
        Self { anchors, end }
    }

    pub(super) fn end(&self) -> &StreamEnd {
        &self.end
    }

    /// The agent that has the connection to the origin.
    pub(crate) fn anchor(&self) -> &NodeName {
        &self.end.anchor
    }

    /// The owner's end as it moves, with these bytes appended to its direction. The stream stops until
    /// [`AnchoredStream::thaw`], and is not used any more if the move succeeds. Of an anchor, the state of the first
    /// owner.
    pub(crate) fn export(&self, unwritten: &[u8]) -> AnchoredState {
        self.end.export(unwritten)
    }

    /// Whether the stream can move with a piece that has no room.
    pub(crate) fn is_within_window(&self) -> bool {
        self.end.state().endpoint.is_within_window()
    }

    /// The move was aborted.
    pub(crate) fn thaw(&self) {
        self.end.thaw();
        self.anchors.transmit(&self.end);
    }

    /// Waits until the stream fails. Drops what the other end sends.
    pub(crate) async fn failed(&self) {
        poll_fn(|cx| {
            let has_failed = {
                let mut state = self.end.state();
                state.endpoint.read(&mut [0; 1024]);
                state.reader = Some(cx.waker().clone());
                state.endpoint.failure().is_some()
            };
            self.anchors.transmit(&self.end);
            if has_failed { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Turns the stream into a response's body. Its other direction ends.
    pub(crate) fn into_body(self) -> (Arc<Self>, AnchoredBody) {
        self.end.state().endpoint.end();
        self.anchors.transmit(&self.end);
        let stream = Arc::new(self);
        (stream.clone(), AnchoredBody(stream))
    }

    /// Sends what has become due.
    fn done<T>(&self, result: T) -> Poll<io::Result<T>> {
        self.anchors.transmit(&self.end);
        Poll::Ready(Ok(result))
    }

    fn poll_read_into(&self, cx: &Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let read = {
            let mut state = self.end.state();
            check(&state)?;
            let read = state.endpoint.read(into);
            if read.is_none() {
                state.reader = Some(cx.waker().clone());
            }
            read
        };
        read.map_or(Poll::Pending, |read| self.done(read))
    }
}

impl AsyncRead for AnchoredStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_read_into(cx, buf.initialize_unfilled()).map_ok(|read| buf.advance(read))
    }
}

impl AsyncWrite for AnchoredStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = {
            let mut state = self.end.state();
            check(&state)?;
            let written = state.endpoint.write(bytes);
            if written == 0 {
                state.writer = Some(cx.waker().clone());
                return Poll::Pending;
            }
            written
        };
        self.done(written)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ready when the other end has everything.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let is_sent = {
            let mut state = self.end.state();
            check(&state)?;
            state.endpoint.end();
            state.writer = Some(cx.waker().clone());
            state.endpoint.is_sent()
        };
        self.anchors.transmit(&self.end);
        // The other end may be at this agent, and have answered already.
        if is_sent || self.end.state().endpoint.is_sent() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

impl Drop for AnchoredStream {
    fn drop(&mut self) {
        self.anchors.remove(&self.end);
    }
}

impl Body for AnchoredBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut into = vec![0; ANCHORED_DATA_LEN_MAX];
        self.0.poll_read_into(cx, &mut into).map(|read| match read {
            Ok(0) => None,
            Ok(read) => {
                into.truncate(read);
                Some(Ok(Frame::data(into.into())))
            }
            Err(error) => Some(Err(error.into())),
        })
    }
}

fn check(state: &EndState) -> io::Result<()> {
    state.endpoint.failure().map_or(Ok(()), |failure| Err(io::Error::new(io::ErrorKind::ConnectionReset, failure)))
}
