//! The sending half of an exchange: the head and the body of a request.
//!
//! ```text
//!   Untouched --first byte--> Begun --all bytes--> Complete
//!       |                       |'--the origin takes no more, or wants none--> Stopped
//!       '--the connection ended: the body is returned
//! ```

use std::io::{self, IoSlice};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use watari_body::{Body, BoxedRequest};
use watari_http1::{Client, ContentSize, Misuse};

use super::connection::ByteStream;
use crate::exchange::error::ExchangeError;

/// What is left to send of a request. At most one piece of the body is held.
pub(super) struct Sending {
    progress: SendingProgress,
    /// `None`: nothing more comes from the body.
    body: Option<Body>,
    /// The first piece of the body, until the first byte is written.
    first_piece: Option<Bytes>,
    queue: Queue,
    has_taken_body: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendingProgress {
    Untouched,
    Begun,
    Complete,
    Stopped,
}

impl Sending {
    /// Puts the head into the queue, and takes the body.
    pub(super) fn new(request: &mut BoxedRequest, state: &mut Client) -> Result<Self, Misuse> {
        let mut queue = Queue::default();
        // The length of a body is given by `Content-Length`. Without it, the content is sent in chunks.
        let size = if request.body.is_end_stream() { ContentSize::None } else { ContentSize::Unknown };
        let content = state.start_request(&request.head, size, &mut queue.front)?;
        let body = mem::replace(&mut request.body, watari_body::empty());
        let body = if content.is_empty() { None } else { Some(body) };
        let progress = SendingProgress::Untouched;
        Ok(Self { progress, body, first_piece: None, queue, has_taken_body: false })
    }

    /// Whether the request was written completely.
    pub(super) fn is_complete(&self) -> bool {
        self.progress == SendingProgress::Complete
    }

    /// Whether nothing more is written.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.progress, SendingProgress::Complete | SendingProgress::Stopped)
    }

    /// Whether a byte was written.
    pub(super) fn has_begun(&self) -> bool {
        self.progress != SendingProgress::Untouched
    }

    /// Whether a part of the body was taken.
    pub(super) fn has_taken_body(&self) -> bool {
        self.has_taken_body
    }

    /// Writes nothing more. The connection cannot be used again.
    pub(super) fn stop(&mut self, state: &mut Client) {
        state.abandon_content();
        (self.progress, self.body, self.queue) = (SendingProgress::Stopped, None, Queue::default());
    }

    /// The body of the request, if no byte of the request was written and the body is still complete.
    pub(super) fn into_untouched(self) -> Option<Body> {
        let is_lost = self.has_taken_body && self.first_piece.is_none();
        if self.progress != SendingProgress::Untouched || is_lost {
            return None;
        }
        let body = self.body.unwrap_or_else(watari_body::empty);
        Some(match self.first_piece {
            Some(first) => Resumed { first: Some(first), rest: body }.boxed_unsync(),
            None => body,
        })
    }

    /// Writes as much as the body gives and the origin takes. Ready when nothing is left.
    pub(super) fn poll(
        &mut self,
        stream: &mut dyn ByteStream,
        state: &mut Client,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), ExchangeError>> {
        while !self.is_over() {
            let is_waiting = self.queue.has_room() && self.poll_body(state, cx)?.is_pending();
            let written = self.queue.poll_write(stream, cx);
            if self.queue.has_written {
                self.touch();
            }
            ready!(written).map_err(ExchangeError::Closed)?;
            if self.body.is_none() {
                self.progress = SendingProgress::Complete;
                self.queue = Queue::default();
            } else if is_waiting {
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Puts the next piece of the body into the queue.
    fn poll_body(&mut self, state: &mut Client, cx: &mut Context<'_>) -> Poll<Result<(), ExchangeError>> {
        let Some(body) = &mut self.body else { return Poll::Ready(Ok(())) };
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx)).transpose().map_err(ExchangeError::Upload)?;
        let is_end = frame.is_none() || body.is_end_stream();
        self.has_taken_body = true;
        self.enqueue(frame, is_end, state).map_err(|misuse| ExchangeError::Upload(misuse.into()))?;
        if is_end {
            self.body = None;
        }
        Poll::Ready(Ok(()))
    }

    fn enqueue(&mut self, frame: Option<Frame<Bytes>>, is_end: bool, state: &mut Client) -> Result<(), Misuse> {
        let queue = &mut self.queue;
        let frame = match frame.map(Frame::into_data) {
            Some(Ok(data)) => {
                let framed = state.encode(data.len())?;
                queue.front.extend_from_slice(framed.prefix());
                queue.back.extend_from_slice(framed.suffix);
                if self.progress == SendingProgress::Untouched {
                    self.first_piece = Some(data.clone());
                }
                queue.data = data;
                None
            }
            Some(Err(frame)) => Some(frame),
            None => None,
        };
        let trailers = frame.and_then(|frame| frame.into_trailers().ok());
        if is_end || trailers.is_some() {
            state.finish(trailers.as_ref(), &mut queue.back)?;
        }
        Ok(())
    }

    /// The body can no longer be returned.
    fn touch(&mut self) {
        if self.progress == SendingProgress::Untouched {
            (self.progress, self.first_piece) = (SendingProgress::Begun, None);
        }
    }
}

/// Bytes to be written, in this order. Framing and data are not copied together.
#[derive(Default)]
struct Queue {
    front: Vec<u8>,
    data: Bytes,
    back: Vec<u8>,
    /// Bytes of all three that were written.
    written: usize,
    /// Whether any byte was ever written.
    has_written: bool,
    /// Whether written bytes may still be in the stream's own buffer.
    is_flush_due: bool,
}

impl Queue {
    /// Whether a piece of the body can be added.
    fn has_room(&self) -> bool {
        self.data.is_empty() && self.back.is_empty()
    }

    /// Writes everything. Then the queue is empty.
    fn poll_write(&mut self, stream: &mut dyn ByteStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut stream = Pin::new(stream);
        let len = self.front.len() + self.data.len() + self.back.len();
        while self.written < len {
            let written = ready!(self.poll_write_some(stream.as_mut(), cx))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
            (self.has_written, self.is_flush_due) = (true, true);
        }
        self.front.clear();
        self.back.clear();
        (self.data, self.written) = (Bytes::new(), 0);
        if self.is_flush_due {
            ready!(stream.poll_flush(cx))?;
            self.is_flush_due = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_some(&self, stream: Pin<&mut dyn ByteStream>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.data.is_empty() && self.back.is_empty() {
            return stream.poll_write(cx, &self.front[self.written..]);
        }
        let mut skipped = self.written;
        let parts = [&self.front[..], &self.data[..], &self.back[..]].map(|part| {
            let start = skipped.min(part.len());
            skipped -= start;
            IoSlice::new(&part[start..])
        });
        stream.poll_write_vectored(cx, &parts)
    }
}

/// A body whose first piece was taken, and is given again.
struct Resumed {
    first: Option<Bytes>,
    rest: Body,
}

impl http_body::Body for Resumed {
    type Data = Bytes;
    type Error = watari_body::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, watari_body::BoxError>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let first_len = self.first.as_ref().map_or(0, Bytes::len) as u64;
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + first_len);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + first_len);
        }
        hint
    }
}
