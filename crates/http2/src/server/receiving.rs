//! Frames of the client.

use std::time::Instant;

use super::head::Head;
use super::stream::{Closed, Stream};
use super::{
    Block, CLOSED_MAX, Content, Event, Expects, FRAME_LEN_MAX, Fault, Received, SHUTDOWN_PING, STREAM_MAX, Server,
    Shutdown, StreamId, find, frame, reset_frame, setting,
};
use crate::Code;
use crate::frames::{self, Frame, HEADER_LEN, flags, kind};

/// The largest window (RFC 9113, section 6.9.1).
const WINDOW_MAX: i64 = (1 << 31) - 1;
/// A client's limits on frames are within these (RFC 9113, section 6.5.2).
const PEER_FRAME_LEN_MAX: u32 = (1 << 24) - 1;
/// The size of the client's table before its settings, in bytes (RFC 9113, section 6.5.2).
const INITIAL_TABLE_LEN: u32 = 4096;
/// RFC 9113, section 3.4.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Why a frame may not come on its stream.
#[derive(Clone, Copy)]
enum Refused {
    /// The stream has ended before.
    Gone,
    With(Code),
}

impl Server {
    /// Takes the next frame from the start of `input`, and writes what it requires to `out`. Calls `now` only when the
    /// tokens seem to be used up.
    ///
    /// # Errors
    /// [`Fault`] if the connection has to end. The GOAWAY is in `out`.
    pub fn receive(
        &mut self,
        input: &[u8],
        now: impl FnOnce() -> Instant,
        out: &mut Vec<u8>,
    ) -> Result<Received, Fault> {
        let received = self.receive_frame(input, now, out);
        if let Err(fault) = &received {
            out.extend(frames::goaway(self.last_stream, fault.code));
        }
        received
    }

    fn receive_frame(
        &mut self,
        input: &[u8],
        now: impl FnOnce() -> Instant,
        out: &mut Vec<u8>,
    ) -> Result<Received, Fault> {
        match &mut self.expects {
            Expects::Preface => return self.receive_preface(input),
            Expects::Content(_) => return Ok(self.receive_content(input, 0, out)),
            Expects::Settings | Expects::Frame | Expects::Block(_) => {}
        }
        let Some((header, behind)) = input.split_first_chunk::<HEADER_LEN>() else { return Ok(Received::NOTHING) };
        let frame = frames::parse(header);
        if frame.len > FRAME_LEN_MAX {
            return Err(Fault::frame_len("a frame is too long"));
        }
        self.check_order(&frame)?;
        if frame.kind == kind::DATA {
            return self.receive_data(&frame, behind, now, out);
        }
        let len = frame.len as usize;
        let Some(payload) = behind.get(..len) else { return Ok(Received::NOTHING) };
        self.count_received(&frame, now)?;
        let event = self.take(&frame, payload, out)?;
        Ok(Received { taken: HEADER_LEN + len, event })
    }

    fn receive_preface(&mut self, input: &[u8]) -> Result<Received, Fault> {
        let len = input.len().min(PREFACE.len());
        if input[..len] != PREFACE[..len] {
            return Err(Fault::protocol("the connection does not begin as HTTP/2"));
        }
        if len < PREFACE.len() {
            return Ok(Received::NOTHING);
        }
        self.expects = Expects::Settings;
        Ok(Received { taken: len, event: None })
    }

    /// RFC 9113, sections 3.4 and 6.10.
    fn check_order(&mut self, frame: &Frame) -> Result<(), Fault> {
        match &self.expects {
            Expects::Settings if frame.kind != kind::SETTINGS || frame.flags & flags::ACK != 0 => {
                Err(Fault::protocol("the first frame is not SETTINGS"))
            }
            Expects::Block(block) if frame.kind != kind::CONTINUATION || frame.stream != block.stream => {
                Err(Fault::protocol("a header block is not continued"))
            }
            Expects::Block(_) => Ok(()),
            _ if frame.kind == kind::CONTINUATION => Err(Fault::protocol("a CONTINUATION continues nothing")),
            _ => Ok(()),
        }
    }

    fn take(&mut self, frame: &Frame, payload: &[u8], out: &mut Vec<u8>) -> Result<Option<Event>, Fault> {
        match frame.kind {
            kind::HEADERS => self.take_headers(frame, payload, out),
            kind::CONTINUATION => self.take_continuation(frame, payload, out),
            kind::PRIORITY => self.take_priority(frame, payload, out),
            kind::RST_STREAM => self.take_reset(frame, payload, out),
            kind::SETTINGS => self.take_settings(frame, payload, out),
            kind::PUSH_PROMISE => Err(Fault::protocol("a client may not push")),
            kind::PING => self.take_ping(frame, payload, out),
            kind::GOAWAY if frame.stream != 0 => Err(Fault::protocol("a GOAWAY is on a stream")),
            kind::GOAWAY if payload.len() < 8 => Err(Fault::frame_len("a GOAWAY is too short")),
            kind::WINDOW_UPDATE => self.take_window_update(frame, payload, out),
            // Unknown frames, and a GOAWAY of a client, to which no streams are pushed (RFC 9113, sections 4.1, 6.8).
            _ => Ok(None),
        }
    }

    /// RFC 9113, section 6.1.
    fn receive_data(
        &mut self,
        frame: &Frame,
        behind: &[u8],
        now: impl FnOnce() -> Instant,
        out: &mut Vec<u8>,
    ) -> Result<Received, Fault> {
        let is_padded = frame.flags & flags::PADDED != 0;
        let (padding, head_len) = match (is_padded, behind.first()) {
            (true, None) if frame.len > 0 => return Ok(Received::NOTHING),
            (true, Some(padding)) if frame.len > 0 => (usize::from(*padding), 1),
            (true, _) => return Err(Fault::frame_len("a padded frame is too short")),
            (false, _) => (0, 0),
        };
        let len = frame.len as usize;
        let left = len.checked_sub(head_len + padding).ok_or(Fault::protocol("the padding of a frame is too long"))?;
        // Padding pays for nothing.
        self.count_received(&Frame { len: left as u32, ..*frame }, now)?;
        if !self.has_begun(frame.stream) {
            return Err(Fault::protocol("content is on a stream that has not begun"));
        }
        self.receivable -= i64::from(frame.len);
        if self.receivable < 0 {
            return Err(Fault::new(Code::FlowControlError, "the content exceeds the window of the connection"));
        }
        let ends = frame.flags & flags::END_STREAM != 0;
        let mut content = Content { stream: frame.stream, left, padding, ends };
        let event = match self.accept_data(frame, left, ends) {
            Ok(()) => {
                self.release(frame.stream, head_len + padding, out);
                None
            }
            Err(refused) => {
                self.return_window(len, out);
                // It is skipped.
                content = Content { stream: 0, left: 0, padding: left + padding, ends: false };
                self.refuse_frame(frame.stream, refused, out)
            }
        };
        self.expects = Expects::Content(content);
        let taken = HEADER_LEN + head_len;
        let received = self.receive_content(&behind[head_len..], taken, out);
        Ok(Received { taken: taken + received.taken, event: event.or(received.event) })
    }

    /// Counts a frame of content on a stream.
    fn accept_data(&mut self, frame: &Frame, content: usize, ends: bool) -> Result<(), Refused> {
        let Some(found) = find(&mut self.streams, frame.stream) else { return Err(Refused::Gone) };
        if found.is_request_complete {
            return Err(Refused::With(Code::StreamClosed));
        }
        found.receivable -= i64::from(frame.len);
        if found.receivable < 0 {
            return Err(Refused::With(Code::FlowControlError));
        }
        if !found.counts_content(content as u64, ends) {
            return Err(Refused::With(Code::ProtocolError));
        }
        found.unread += frame.len;
        Ok(())
    }

    /// Takes content, which begins `at` bytes behind the start of the caller's input, and padding.
    fn receive_content(&mut self, input: &[u8], at: usize, out: &mut Vec<u8>) -> Received {
        let Expects::Content(content) = &mut self.expects else { return Received::NOTHING };
        let data = content.left.min(input.len());
        content.left -= data;
        let padding = content.padding.min(input.len() - data);
        content.padding -= padding;
        let (stream, is_whole) = (content.stream, content.left == 0);
        let ends = is_whole && std::mem::take(&mut content.ends);
        if is_whole && content.padding == 0 {
            self.expects = Expects::Frame;
        }
        let event = (stream > 0 && (data > 0 || ends)).then(|| {
            if ends {
                self.end_request(stream, out);
            }
            Event::Data { stream, data: at..at + data, ends }
        });
        Received { taken: data + padding, event }
    }

    /// RFC 9113, section 6.2.
    fn take_headers(&mut self, frame: &Frame, payload: &[u8], out: &mut Vec<u8>) -> Result<Option<Event>, Fault> {
        if frame.stream.is_multiple_of(2) {
            return Err(Fault::protocol("a client begins streams with odd numbers"));
        }
        let mut block = unpadded(frame, payload)?;
        let mut depends_on_itself = false;
        if frame.flags & flags::PRIORITY != 0 {
            let (priority, rest) =
                block.split_first_chunk::<5>().ok_or(Fault::frame_len("a HEADERS frame is too short"))?;
            depends_on_itself = dependency(*priority) == frame.stream;
            block = rest;
        }
        let ends = frame.flags & flags::END_STREAM != 0;
        if frame.flags & flags::END_HEADERS != 0 {
            return self.take_block(frame.stream, ends, depends_on_itself, block, out);
        }
        self.expects = Expects::Block(Block { stream: frame.stream, ends, depends_on_itself, bytes: block.to_vec() });
        Ok(None)
    }

    /// RFC 9113, section 6.10.
    fn take_continuation(&mut self, frame: &Frame, payload: &[u8], out: &mut Vec<u8>) -> Result<Option<Event>, Fault> {
        let Expects::Block(block) = &mut self.expects else { return Ok(None) };
        // A block is hardly larger than the list that it encodes.
        if block.bytes.len() + payload.len() > 2 * self.limits.list_len_max as usize + FRAME_LEN_MAX as usize {
            return Err(Fault::new(Code::EnhanceYourCalm, "a header block is too long"));
        }
        block.bytes.extend_from_slice(payload);
        if frame.flags & flags::END_HEADERS == 0 {
            return Ok(None);
        }
        let Expects::Block(block) = std::mem::replace(&mut self.expects, Expects::Frame) else { return Ok(None) };
        self.take_block(block.stream, block.ends, block.depends_on_itself, &block.bytes, out)
    }

    /// A header block is complete.
    fn take_block(
        &mut self,
        stream: StreamId,
        ends: bool,
        depends_on_itself: bool,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, Fault> {
        let mut head = Head::new(self.limits.list_len_max as usize);
        let decoded = self.decoder.decode(block, |name, value| head.add(name, value));
        decoded.map_err(|_| Fault::new(Code::CompressionError, "a header block is malformed"))?;
        if stream <= self.last_stream {
            return self.take_trailers(stream, ends, head, out);
        }
        if self.is_excluded(stream) {
            return Ok(None);
        }
        self.last_stream = stream;
        if depends_on_itself {
            return Ok(self.reset_new(stream, Code::ProtocolError, out));
        }
        if self.streams.len() >= self.limits.streams_max as usize {
            return Ok(self.reset_new(stream, Code::RefusedStream, out));
        }
        if head.is_too_long() {
            self.streams.push(Stream::new(stream, self.peer.window, ends, None));
            return Ok(Some(Event::TooLong { stream }));
        }
        let Ok(request) = head.into_request(ends, self.limits.allows_protocol) else {
            return Ok(self.reset_new(stream, Code::ProtocolError, out));
        };
        self.streams.push(Stream::new(stream, self.peer.window, ends, request.content_len));
        let (head, content_len) = (Box::new(request.parts), request.content_len);
        Ok(Some(Event::Request { stream, head, content_len, ends }))
    }

    /// RFC 9113, section 8.1.
    fn take_trailers(
        &mut self,
        stream: StreamId,
        ends: bool,
        head: Head,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, Fault> {
        let refused = match find(&mut self.streams, stream) {
            None => match self.closed_by(stream) {
                Some(Closed::Here) => return Ok(None),
                Some(Closed::There) => Refused::Gone,
                Some(Closed::Ended) => {
                    return Err(Fault::new(Code::StreamClosed, "a header block is on a stream that has ended"));
                }
                None if self.closed.len() < CLOSED_MAX => {
                    return Err(Fault::protocol("a stream begins with a number below that of an earlier one"));
                }
                // It may have been open, and is forgotten.
                None => {
                    self.refuse(stream, Code::StreamClosed, out);
                    return Ok(None);
                }
            },
            Some(found) if found.is_request_complete => Refused::With(Code::StreamClosed),
            Some(found) if !ends || !found.is_content_complete() => Refused::With(Code::ProtocolError),
            Some(_) if head.is_too_long() => Refused::With(Code::EnhanceYourCalm),
            Some(_) => match head.into_trailers() {
                Ok(fields) => {
                    self.end_request(stream, out);
                    return Ok(Some(Event::Trailers { stream, fields }));
                }
                Err(_) => Refused::With(Code::ProtocolError),
            },
        };
        Ok(self.refuse_frame(stream, refused, out))
    }

    /// RFC 9113, section 6.3.
    fn take_priority(&mut self, frame: &Frame, payload: &[u8], out: &mut Vec<u8>) -> Result<Option<Event>, Fault> {
        if frame.stream == 0 {
            return Err(Fault::protocol("a PRIORITY frame is on no stream"));
        }
        let code = match payload.first_chunk::<5>() {
            Some(priority) if payload.len() == 5 && dependency(*priority) != frame.stream => return Ok(None),
            Some(_) if payload.len() == 5 => Code::ProtocolError,
            _ => Code::FrameSizeError,
        };
        // Priorities may be given to streams that have not begun, or have ended (RFC 9113, section 5.1).
        if find(&mut self.streams, frame.stream).is_some() {
            return Ok(self.reset_stream(frame.stream, code, out));
        }
        if self.has_begun(frame.stream) {
            self.refuse(frame.stream, code, out);
            return Ok(None);
        }
        // No stream is reset before it has begun.
        Err(Fault::new(code, "a PRIORITY frame is malformed"))
    }

    /// RFC 9113, section 6.4.
    fn take_reset(&mut self, frame: &Frame, payload: &[u8], out: &mut Vec<u8>) -> Result<Option<Event>, Fault> {
        if payload.len() != 4 {
            return Err(Fault::frame_len("an RST_STREAM has another length than 4"));
        }
        if !self.has_begun(frame.stream) {
            return Err(Fault::protocol("an RST_STREAM is on a stream that has not begun"));
        }
        let was_open = self.close(frame.stream, Closed::There, out);
        Ok(was_open.then_some(Event::Reset { stream: frame.stream }))
    }

    /// RFC 9113, section 6.5.
    fn take_settings(&mut self, frame: &Frame, payload: &[u8], out: &mut Vec<u8>) -> Result<Option<Event>, Fault> {
        if frame.stream != 0 {
            return Err(Fault::protocol("a SETTINGS frame is on a stream"));
        }
        let is_answer = frame.flags & flags::ACK != 0;
        let (settings, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() || (is_answer && !settings.is_empty()) {
            return Err(Fault::frame_len("a SETTINGS frame has no valid length"));
        }
        if is_answer {
            return Ok(None);
        }
        self.expects = Expects::Frame;
        for [name @ .., a, b, c, d] in settings {
            self.take_setting(u16::from_be_bytes(*name), u32::from_be_bytes([*a, *b, *c, *d]))?;
        }
        self::frame(out, kind::SETTINGS, flags::ACK, 0, &[]);
        Ok(Some(Event::Window { stream: None }))
    }

    /// RFC 9113, section 6.5.2; RFC 8441, section 3.
    fn take_setting(&mut self, name: u16, value: u32) -> Result<(), Fault> {
        match name {
            setting::ENABLE_PUSH | setting::ENABLE_CONNECT_PROTOCOL if value > 1 => {
                Err(Fault::protocol("a setting is neither 0 nor 1"))
            }
            setting::MAX_FRAME_SIZE if !(FRAME_LEN_MAX..=PEER_FRAME_LEN_MAX).contains(&value) => {
                Err(Fault::protocol("the limit on frames is outside its range"))
            }
            setting::MAX_FRAME_SIZE => {
                self.peer.frame_len_max = value;
                Ok(())
            }
            setting::INITIAL_WINDOW_SIZE => self.resize_windows(value.into()),
            setting::HEADER_TABLE_SIZE => {
                self.is_table_reduced |= value < INITIAL_TABLE_LEN;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// RFC 9113, section 6.9.2.
    fn resize_windows(&mut self, window: i64) -> Result<(), Fault> {
        const TOO_LARGE: Fault = Fault::new(Code::FlowControlError, "a window is too large");
        if window > WINDOW_MAX {
            return Err(TOO_LARGE);
        }
        let change = window - self.peer.window;
        self.peer.window = window;
        for stream in &mut self.streams {
            stream.window += change;
            if stream.window > WINDOW_MAX {
                return Err(TOO_LARGE);
            }
        }
        Ok(())
    }

    /// RFC 9113, section 6.7.
    fn take_ping(&mut self, frame: &Frame, payload: &[u8], out: &mut Vec<u8>) -> Result<Option<Event>, Fault> {
        if frame.stream != 0 {
            return Err(Fault::protocol("a PING is on a stream"));
        }
        let Ok(data) = <[u8; 8]>::try_from(payload) else {
            return Err(Fault::frame_len("a PING has another length than 8"));
        };
        if frame.flags & flags::ACK == 0 {
            self::frame(out, kind::PING, flags::ACK, 0, &data);
            return Ok(None);
        }
        if data == SHUTDOWN_PING && self.shutdown == Shutdown::Announced {
            self.shutdown = Shutdown::Final;
            out.extend(frames::goaway(self.last_stream, Code::NoError));
        }
        Ok(None)
    }

    /// RFC 9113, section 6.9.
    fn take_window_update(&mut self, frame: &Frame, payload: &[u8], out: &mut Vec<u8>) -> Result<Option<Event>, Fault> {
        let Ok(increment) = <[u8; 4]>::try_from(payload) else {
            return Err(Fault::frame_len("a WINDOW_UPDATE has another length than 4"));
        };
        let increment = i64::from(u32::from_be_bytes(increment) & STREAM_MAX);
        if frame.stream == 0 {
            let was_used_up = self.window <= 0;
            self.window += increment;
            return match increment {
                0 => Err(Fault::protocol("a window is increased by 0")),
                _ if self.window > WINDOW_MAX => Err(Fault::new(Code::FlowControlError, "a window is too large")),
                _ => Ok(was_used_up.then_some(Event::Window { stream: None })),
            };
        }
        if !self.has_begun(frame.stream) {
            return Err(Fault::protocol("a WINDOW_UPDATE is on a stream that has not begun"));
        }
        let Some(found) = find(&mut self.streams, frame.stream) else { return Ok(None) };
        let was_used_up = found.window <= 0;
        found.window += increment;
        if increment == 0 || found.window > WINDOW_MAX {
            let code = if increment == 0 { Code::ProtocolError } else { Code::FlowControlError };
            return Ok(self.reset_stream(frame.stream, code, out));
        }
        Ok((was_used_up && found.window > 0).then_some(Event::Window { stream: Some(frame.stream) }))
    }

    fn count_received(&mut self, frame: &Frame, now: impl FnOnce() -> Instant) -> Result<(), Fault> {
        self.budget.received(frame, !self.is_excluded(frame.stream));
        self.budget.check(now).map_err(|_| Fault::FLOOD)
    }

    /// Whether the client has begun this stream, or may have begun it after the last one that is accepted.
    fn has_begun(&self, stream: StreamId) -> bool {
        !stream.is_multiple_of(2) && (stream <= self.last_stream || self.shutdown == Shutdown::Final)
    }

    /// Answers a frame that may not come on its stream.
    fn refuse_frame(&mut self, stream: StreamId, refused: Refused, out: &mut Vec<u8>) -> Option<Event> {
        match refused {
            Refused::With(code) => self.reset_stream(stream, code, out),
            Refused::Gone if self.is_excluded(stream) => None,
            Refused::Gone => {
                // Otherwise the client has not seen the reset yet (RFC 9113, section 5.1), or it was long ago.
                if let Some(Closed::There | Closed::Ended) = self.closed_by(stream) {
                    self.refuse(stream, Code::StreamClosed, out);
                }
                None
            }
        }
    }

    /// Resets a stream because of a frame of the client.
    fn reset_stream(&mut self, stream: StreamId, code: Code, out: &mut Vec<u8>) -> Option<Event> {
        self.refuse(stream, code, out);
        self.close(stream, Closed::Here, out).then_some(Event::Reset { stream })
    }

    fn refuse(&mut self, stream: StreamId, code: Code, out: &mut Vec<u8>) {
        self.budget.made_reset();
        reset_frame(stream, code, out);
    }

    fn closed_by(&self, stream: StreamId) -> Option<Closed> {
        self.closed.iter().find(|(closed, _)| *closed == stream).map(|(_, by)| *by)
    }

    /// Refuses a stream that begins.
    fn reset_new(&mut self, stream: StreamId, code: Code, out: &mut Vec<u8>) -> Option<Event> {
        self.remember(stream, Closed::Here);
        self.refuse(stream, code, out);
        None
    }
}

/// Removes the padding of a HEADERS frame (RFC 9113, section 6.2).
fn unpadded<'a>(frame: &Frame, payload: &'a [u8]) -> Result<&'a [u8], Fault> {
    if frame.flags & flags::PADDED == 0 {
        return Ok(payload);
    }
    let (padding, rest) = payload.split_first().ok_or(Fault::frame_len("a padded frame is too short"))?;
    let len = rest.len().checked_sub(usize::from(*padding));
    len.map(|len| &rest[..len]).ok_or(Fault::protocol("the padding of a frame is too long"))
}

/// The stream that a priority depends on (RFC 7540, section 5.3.1; RFC 9113, section 5.3.2).
fn dependency([a, b, c, d, _]: [u8; 5]) -> StreamId {
    u32::from_be_bytes([a, b, c, d]) & STREAM_MAX
}
