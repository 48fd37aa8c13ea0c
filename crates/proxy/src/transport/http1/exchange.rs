//! One request on a connection, and its response.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, StatusCode, response};
use http_body::Frame;
use tokio::io::AsyncReadExt;
use tokio::sync::Notify;
use watari_body::{Body, BoxedRequest, OnInformational};
use watari_http1::{Client, Content, Limits, Misuse, Next};

use super::connection::{Http1, Switched};
use super::sending::Sending;
use crate::exchange::error::ExchangeError;
use crate::exchange::fields;

/// A request on a connection, and its response. Dropping it closes the connection.
///
/// The caller waits for [`Exchange::response`], then takes frames from [`Exchange::poll_frame`] until there is none, and
/// then the connection by [`Exchange::into_connection`]. Both also send the request.
pub(crate) struct Exchange {
    connection: Http1,
    state: Client,
    sending: Sending,
    /// Bytes of the origin that were not consumed. Pieces of content share its memory.
    input: BytesMut,
    /// How much to read at once, in bytes. It grows with the content.
    read_len: usize,
    /// The data to come, in bytes, if its length is known.
    remaining: Option<u64>,
    trailers: Option<Box<HeaderMap>>,
    /// The error of a write. The origin may have responded before it stopped reading.
    unwritten: Option<ExchangeError>,
    /// Notified by 100 (Continue), if the request expects it.
    wanted: Option<Arc<Notify>>,
    on_informational: Option<OnInformational>,
}

impl Exchange {
    /// Prepares a request, and takes its body. `wanted` is notified when the origin asks for the body, if the request
    /// expects that.
    pub(crate) fn new(
        connection: Http1,
        request: &mut BoxedRequest,
        wanted: Option<Arc<Notify>>,
    ) -> Result<Box<Self>, Misuse> {
        let mut state = Client::new(LIMITS);
        let sending = Sending::new(request, &mut state)?;
        Ok(Box::new(Self {
            connection,
            state,
            sending,
            input: BytesMut::new(),
            read_len: READ_LEN_MIN,
            remaining: None,
            trailers: None,
            unwritten: None,
            wanted,
            on_informational: request.on_informational.clone(),
        }))
    }

    /// Sends the request until the head of the final response arrives, which may be a 101. The rest of the request is
    /// sent with the following calls.
    pub(crate) async fn response(&mut self) -> Result<response::Parts, ExchangeError> {
        poll_fn(|cx| self.poll_response(cx)).await
    }

    /// The body of the request, if no byte of the request was written.
    pub(crate) fn into_untouched(self: Box<Self>) -> Option<Body> {
        self.sending.into_untouched()
    }

    /// Whether nothing more of the request is to be sent.
    pub(crate) fn is_sent(&self) -> bool {
        self.sending.is_over()
    }

    /// Whether the response is complete, with all its frames.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.state.is_response_complete() && self.trailers.is_none()
    }

    /// The data to come, in bytes, if its length is known.
    pub(crate) fn remaining(&self) -> Option<u64> {
        self.remaining
    }

    /// The connection, if another exchange can use it.
    pub(crate) fn into_connection(mut self: Box<Self>) -> Option<Http1> {
        let is_reusable = self.is_end_stream() && self.sending.is_complete() && self.input.is_empty();
        (is_reusable && self.state.next_exchange() == Some(Next::Idle)).then_some(self.connection)
    }

    /// The connection after a 101.
    pub(crate) fn into_switched(mut self: Box<Self>) -> Option<Switched> {
        let is_switched = self.sending.is_complete() && self.state.next_exchange() == Some(Next::Tunnel);
        is_switched.then_some(Switched { connection: self.connection, ahead: self.input })
    }

    /// Sends the rest of the request.
    pub(crate) async fn send_rest(&mut self) {
        poll_fn(|cx| self.poll_send(cx).map(drop)).await;
    }

    /// The next frame of the response's content. `None` at its end.
    pub(crate) async fn frame(&mut self) -> Option<Result<Frame<Bytes>, ExchangeError>> {
        poll_fn(|cx| self.poll_frame(cx)).await
    }

    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Result<response::Parts, ExchangeError>> {
        // An idle connection was checked when it was taken.
        if std::mem::take(&mut self.connection.is_new) && !self.connection.is_open() {
            return Poll::Ready(Err(ExchangeError::Closed(io::ErrorKind::ConnectionReset.into())));
        }
        loop {
            // Sends as much as possible. The response does not wait for that.
            if let Poll::Ready(Err(error)) = self.poll_send(cx) {
                return Poll::Ready(Err(error));
            }
            while let Some(response) = self.parse()? {
                if let Some(head) = self.on_response(response) {
                    return Poll::Ready(Ok(head));
                }
                // The origin may have asked for the body.
                if let Poll::Ready(Err(error)) = self.poll_send(cx) {
                    return Poll::Ready(Err(error));
                }
            }
            let len = ready!(self.poll_read(cx))?;
            if len == 0 {
                let end = self.state.end_of_input();
                let unwritten = self.unwritten.take();
                return Poll::Ready(Err(unwritten.unwrap_or_else(|| closed(end))));
            }
        }
    }

    /// The next response in the input.
    fn parse(&mut self) -> Result<Option<watari_http1::Response>, ExchangeError> {
        let response = if self.input.is_empty() { None } else { self.state.parse_response(&self.input)? };
        if let Some(response) = &response {
            self.input.advance(response.consumed);
        }
        Ok(response)
    }

    /// Returns the head, if it is the final one.
    fn on_response(&mut self, response: watari_http1::Response) -> Option<response::Parts> {
        let watari_http1::Response { head, content, .. } = response;
        if head.status == StatusCode::CONTINUE {
            self.wanted.iter().for_each(|wanted| wanted.notify_one());
            return None;
        }
        if head.status.is_informational() && head.status != StatusCode::SWITCHING_PROTOCOLS {
            if let Some(callback) = &self.on_informational {
                let mut fields = head.headers;
                fields::remove_hop_by_hop(&mut fields);
                callback.received(head.status, fields);
            }
            return None;
        }
        // The origin decided without the body, so it does not get it (RFC 9110, section 10.1.1).
        if self.wanted.is_some() && !self.sending.has_taken_body() {
            self.sending.stop(&mut self.state);
        }
        self.remaining = match content {
            Content::None => Some(0),
            Content::Length(length) => Some(length),
            Content::Chunked | Content::UntilClose => None,
        };
        self.read_len = self.remaining.map_or(READ_LEN_MIN, read_len);
        Some(head)
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        if let Poll::Ready(Err(error)) = self.poll_send(cx) {
            return Poll::Ready(Some(Err(error)));
        }
        Poll::Ready(ready!(self.poll_content(cx)).transpose())
    }

    fn poll_content(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, ExchangeError>> {
        loop {
            if let Some(frame) = self.decode()? {
                return Poll::Ready(Ok(Some(frame)));
            }
            if self.state.is_response_complete() {
                return Poll::Ready(Ok(None));
            }
            if ready!(self.poll_read(cx))? == 0 {
                self.state.end_of_input()?;
            }
        }
    }

    /// The next frame in the input.
    fn decode(&mut self) -> Result<Option<Frame<Bytes>>, ExchangeError> {
        if self.state.is_response_complete() {
            return Ok(self.trailers.take().map(|trailers| Frame::trailers(*trailers)));
        }
        let found = self.state.decode(&self.input)?;
        self.trailers = found.trailers;
        if found.data.is_empty() {
            self.input.advance(found.consumed);
            return Ok(self.trailers.take().map(|trailers| Frame::trailers(*trailers)));
        }
        let data = self.input.split_to(found.consumed).freeze().slice(found.data);
        self.remaining = self.remaining.map(|remaining| remaining.saturating_sub(data.len() as u64));
        Ok(Some(Frame::data(data)))
    }

    /// Reads once. 0 at the end of the connection.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, ExchangeError>> {
        let room = self.input.capacity() - self.input.len();
        if room < ROOM_MIN {
            self.input.reserve(self.read_len);
        }
        let room = self.input.capacity() - self.input.len();
        let read = pin!(self.connection.stream.read_buf(&mut self.input)).poll(cx);
        let len = ready!(read).map_err(|error| self.unwritten.take().unwrap_or(ExchangeError::Closed(error)))?;
        if len == room {
            self.read_len = read_len(2 * self.read_len as u64);
        }
        Poll::Ready(Ok(len))
    }

    /// Sends what is left of the request. Fails only if its body fails: an origin that reads no more may have
    /// responded.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ExchangeError>> {
        if self.sending.is_over() {
            return Poll::Ready(Ok(()));
        }
        match ready!(self.sending.poll(&mut *self.connection.stream, &mut self.state, cx)) {
            Err(error @ ExchangeError::Closed(_)) if self.sending.has_begun() => {
                self.sending.stop(&mut self.state);
                self.unwritten = Some(error);
                Poll::Ready(Ok(()))
            }
            result => Poll::Ready(result),
        }
    }
}

/// The largest head of a response is as large as the largest buffer. The target is not limited here.
const LIMITS: Limits = Limits { head_bytes_max: 128 << 10, fields_max: 100, target_bytes_max: usize::MAX };

/// How much is read at once, in bytes. One buffer for each exchange in progress has about this length.
const READ_LEN_MIN: usize = 8 << 10;
const READ_LEN_MAX: usize = 64 << 10;
/// The buffer grows if it has less room than this for a read, in bytes.
const ROOM_MIN: usize = 2 << 10;

/// How much to read at once if this much is expected, in bytes.
fn read_len(expected: u64) -> usize {
    usize::try_from(expected).unwrap_or(READ_LEN_MAX).clamp(READ_LEN_MIN, READ_LEN_MAX)
}

fn closed(end: Result<(), watari_http1::Truncated>) -> ExchangeError {
    match end {
        Ok(()) => ExchangeError::Closed(io::ErrorKind::UnexpectedEof.into()),
        Err(truncated) => truncated.into(),
    }
}
