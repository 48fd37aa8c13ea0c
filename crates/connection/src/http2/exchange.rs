//! One request of an HTTP/2 connection, and its response.

use std::fmt::Display;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, Response, StatusCode};
use http_body::Body;
use watari_http2::Code;
use watari_http2::server::{Server, StreamId};

use super::output::Output;
use crate::connection::Service;
use crate::content::{Incomplete, Source};
use crate::interim::Interim;

/// Fields that no response has over HTTP/2 (RFC 9113, section 8.2.2).
const OF_CONNECTIONS: [HeaderName; 5] = [
    CONNECTION,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

pub(super) struct Exchange<S: Service> {
    stream: StreamId,
    content: Option<IncomingContent>,
    phase: Phase<S>,
    /// Informational responses, until the response has begun.
    interim: Interim,
}

enum Phase<S: Service> {
    Answering(S::Answering),
    Responding {
        body: S::Body,
        /// Data of the body that are not framed.
        pending: Bytes,
    },
    Answered,
}

/// The content of a request, until the service has read all of it or reads no more.
struct IncomingContent {
    source: Source,
    /// Content that has come and was not read. One buffer, because a client may send it byte by byte.
    received: BytesMut,
    /// All of it has come.
    is_complete: bool,
    trailers: Option<HeaderMap>,
    /// The client waits for 100 (Continue).
    expects_continue: bool,
}

impl<S: Service> Exchange<S> {
    /// A request that the service answers. `content`: the source of its content, if it has any.
    pub(super) fn answering(
        stream: StreamId,
        content: Option<(Source, bool)>,
        answering: S::Answering,
        interim: Interim,
    ) -> Self {
        let content = content.map(|(source, expects_continue)| IncomingContent {
            source,
            received: BytesMut::new(),
            is_complete: false,
            trailers: None,
            expects_continue,
        });
        Self { stream, content, phase: Phase::Answering(answering), interim }
    }

    /// A request that is not answered by the service.
    pub(super) fn refused(stream: StreamId, response: Response<S::Body>, sending: &mut Sending<'_, S>) -> Self {
        let mut refused = Self { stream, content: None, phase: Phase::Answered, interim: Interim::default() };
        refused.respond(response, sending);
        refused
    }

    pub(super) fn stream(&self) -> StreamId {
        self.stream
    }

    /// Content of the request has come.
    pub(super) fn receive(&mut self, data: &[u8], ends: bool, sending: &mut Sending<'_, S>, cx: &mut Context<'_>) {
        if let Some(content) = &mut self.content {
            content.received.extend_from_slice(data);
            content.is_complete = ends;
        } else {
            sending.http.release(self.stream, data.len(), sending.output.framing());
        }
        self.pass_content(sending, cx);
    }

    /// The content is complete, with trailers.
    pub(super) fn complete(&mut self, trailers: HeaderMap, sending: &mut Sending<'_, S>, cx: &mut Context<'_>) {
        if let Some(content) = &mut self.content {
            (content.is_complete, content.trailers) = (true, Some(trailers));
        }
        self.pass_content(sending, cx);
    }

    /// The client sends no more.
    pub(super) fn end_of_input(&mut self) {
        if let Some(content) = self.content.take_if(|content| !content.is_complete) {
            content.source.fail(Incomplete::Ended);
        }
    }

    /// Whether neither side has anything left to do here.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Answered) && self.content.is_none()
    }

    /// Passes content on that the service wants, and asks it for its response, if there is room for that. Returns whether
    /// there is no room: the exchange has to be polled again when there is.
    pub(super) fn poll(&mut self, sending: &mut Sending<'_, S>, cx: &mut Context<'_>) -> bool {
        self.pass_content(sending, cx);
        let Phase::Answering(answering) = &mut self.phase else { return false };
        if !sending.output.has_room() {
            return true;
        }
        let response = Pin::new(answering).poll(cx);
        for (status, fields) in self.interim.take(cx) {
            sending.http.send_informational(self.stream, status, &fields, sending.output.framing());
        }
        if let Poll::Ready(response) = response {
            self.respond(response, sending);
        }
        self.pass_content(sending, cx);
        false
    }

    /// Passes content on that the service wants.
    fn pass_content(&mut self, sending: &mut Sending<'_, S>, cx: &mut Context<'_>) {
        let Some(content) = &mut self.content else { return self.end_request(sending) };
        // Registers the task before the content is found to be read on: it may be dropped at any time.
        let is_wanted = content.source.is_wanted(cx);
        if content.source.is_dropped() {
            self.discard_content(sending);
            return self.end_request(sending);
        }
        let out = sending.output.framing();
        if content.received.is_empty() && !content.is_complete && content.expects_continue {
            if is_wanted && matches!(self.phase, Phase::Answering(_)) {
                content.expects_continue = false;
                sending.http.send_informational(self.stream, StatusCode::CONTINUE, &HeaderMap::new(), out);
            }
            return;
        }
        if is_wanted && !content.received.is_empty() {
            let data = content.received.split().freeze();
            sending.http.release(self.stream, data.len(), out);
            content.source.provide(data);
            // Registers the task for the next read.
            content.source.is_wanted(cx);
        }
        if let Some(content) = self.content.take_if(|content| content.is_complete && content.received.is_empty()) {
            content.source.complete(content.trailers);
        }
    }

    fn discard_content(&mut self, sending: &mut Sending<'_, S>) {
        if let Some(content) = self.content.take() {
            sending.http.release(self.stream, content.received.len(), sending.output.framing());
        }
    }

    /// The service reads no more of a request whose response is complete (RFC 9113, section 8.1).
    fn end_request(&self, sending: &mut Sending<'_, S>) {
        if matches!(self.phase, Phase::Answered) {
            sending.http.reset(self.stream, Code::NoError, sending.output.framing());
        }
    }

    fn respond(&mut self, response: Response<S::Body>, sending: &mut Sending<'_, S>) {
        self.interim = Interim::default();
        let (mut head, body) = response.into_parts();
        let fields = &mut head.headers;
        for name in &OF_CONNECTIONS {
            fields.remove(name);
        }
        fields.entry(DATE).or_insert_with(|| sending.service.date());
        let ends = body.is_end_stream();
        if let Some(len) = body.size_hint().exact().filter(|_| !ends && may_have_length(head.status)) {
            head.headers.entry(CONTENT_LENGTH).or_insert_with(|| len.into());
        }
        sending.http.send_head(self.stream, &head, ends, sending.output.framing());
        if ends {
            self.set_answered(sending);
        } else {
            self.phase = Phase::Responding { body, pending: Bytes::new() };
        }
    }

    /// The response is complete.
    fn set_answered(&mut self, sending: &mut Sending<'_, S>) {
        self.phase = Phase::Answered;
        if self.content.as_ref().is_none_or(|content| content.source.is_dropped()) {
            self.discard_content(sending);
            self.end_request(sending);
        }
    }

    /// Sends a frame of the response's content, if there is any and the client has room for it. Returns whether there
    /// may be more at once.
    pub(super) fn send(&mut self, sending: &mut Sending<'_, S>, cx: &mut Context<'_>) -> bool {
        let Phase::Responding { body, pending } = &mut self.phase else { return false };
        // The end needs no window, so the body is asked for its next piece in any case.
        if pending.is_empty() {
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Pending => return false,
                Poll::Ready(None) => return self.end(None, sending),
                Poll::Ready(Some(Err(error))) => return self.fail(&error, sending),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) if data.is_empty() => return true,
                    Ok(data) => *pending = data,
                    Err(frame) => return self.end(frame.into_trailers().ok(), sending),
                },
            }
        }
        let len = pending.len().min(sending.http.capacity(self.stream));
        if len == 0 {
            return false;
        }
        let data = pending.split_to(len);
        let ends = pending.is_empty() && body.is_end_stream();
        sending.http.start_data(self.stream, len, ends, sending.output.framing());
        sending.output.push(data);
        if ends {
            self.set_answered(sending);
        }
        true
    }

    fn end(&mut self, trailers: Option<HeaderMap>, sending: &mut Sending<'_, S>) -> bool {
        let out = sending.output.framing();
        match trailers {
            Some(trailers) => sending.http.send_trailers(self.stream, &trailers, out),
            None => sending.http.start_data(self.stream, 0, true, out),
        }
        self.set_answered(sending);
        true
    }

    /// The source of the response has failed. The client must not take what it has for the whole.
    fn fail(&mut self, error: &impl Display, sending: &mut Sending<'_, S>) -> bool {
        tracing::debug!(stream = self.stream, %error, "response cut");
        sending.http.reset(self.stream, Code::InternalError, sending.output.framing());
        (self.phase, self.content) = (Phase::Answered, None);
        true
    }
}

/// What an exchange sends with.
pub(super) struct Sending<'a, S> {
    pub(super) http: &'a mut Server,
    pub(super) output: &'a mut Output,
    pub(super) service: &'a S,
}

/// RFC 9110, section 8.6.
fn may_have_length(status: StatusCode) -> bool {
    !status.is_informational() && status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED
}
