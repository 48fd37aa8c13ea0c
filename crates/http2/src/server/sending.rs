//! Frames of the server.

use http::{HeaderMap, StatusCode, response};

use super::stream::Closed;
use super::{
    FRAME_LEN_MAX, PING, SHUTDOWN_PING, STREAM_MAX, Server, Shutdown, StreamId, WINDOW, find, frame, reset_frame,
};
use crate::Code;
use crate::frames::{self, HEADER_LEN, flags, kind};
use crate::hpack::encode;

impl Server {
    /// Bytes of content that may be sent on this stream now. At most one frame's.
    pub fn capacity(&self, stream: StreamId) -> usize {
        let Some(found) = self.stream(stream).filter(|found| !found.is_response_complete) else { return 0 };
        let window = found.window.min(self.window).clamp(0, i64::from(self.peer.frame_len_max.min(FRAME_LEN_MAX)));
        usize::try_from(window).unwrap_or(0)
    }

    /// Content of a request was read, or is not wanted. The client may send as much again. `len`: at most what was
    /// received and not released. Also after both sides have ended, and not after a reset.
    pub fn release(&mut self, stream: StreamId, len: usize, out: &mut Vec<u8>) {
        if let Some(found) = find(&mut self.streams, stream) {
            let len = u32::try_from(len).unwrap_or(u32::MAX).min(found.unread);
            found.unread -= len;
            found.released += len;
            if found.released >= WINDOW / 2 && !found.is_request_complete {
                let released = std::mem::take(&mut found.released);
                found.receivable += i64::from(released);
                frame(out, kind::WINDOW_UPDATE, 0, stream, &released.to_be_bytes());
            }
        }
        self.return_window(len, out);
    }

    /// Sends an informational response (RFC 9113, section 8.1).
    pub fn send_informational(&mut self, stream: StreamId, status: StatusCode, fields: &HeaderMap, out: &mut Vec<u8>) {
        if !self.is_answered(stream) {
            self.send_block(stream, Some(status), fields, false, out);
        }
    }

    /// Sends the head of a response. `ends`: it has no content.
    pub fn send_head(&mut self, stream: StreamId, head: &response::Parts, ends: bool, out: &mut Vec<u8>) {
        if !self.is_answered(stream) {
            self.send_block(stream, Some(head.status), &head.headers, ends, out);
        }
    }

    /// Ends a response with these fields.
    pub fn send_trailers(&mut self, stream: StreamId, fields: &HeaderMap, out: &mut Vec<u8>) {
        if !self.is_answered(stream) {
            self.send_block(stream, None, fields, true, out);
        }
    }

    /// Writes the header of a frame for content, which has to follow: at most [`Self::capacity`] bytes. `ends`: the
    /// response is complete. The stream's response must not be complete, and the stream not gone.
    pub fn start_data(&mut self, stream: StreamId, len: usize, ends: bool, out: &mut Vec<u8>) {
        debug_assert!(!self.is_answered(stream) && (len == 0 || len <= self.capacity(stream)));
        let sent = u32::try_from(len).unwrap_or(u32::MAX);
        self.window -= i64::from(sent);
        if let Some(found) = find(&mut self.streams, stream) {
            found.window -= i64::from(sent);
        }
        let flags = if ends { flags::END_STREAM } else { 0 };
        out.extend(frames::write_head(sent, kind::DATA, flags, stream));
        self.budget.sent(kind::DATA, sent);
        if ends {
            self.end_response(stream, out);
        }
    }

    /// Resets a stream.
    pub fn reset(&mut self, stream: StreamId, code: Code, out: &mut Vec<u8>) {
        if self.close(stream, Closed::Here, out) {
            reset_frame(stream, code, out);
        }
    }

    /// Begins to end the connection after its streams (RFC 9113, section 6.8). Streams that the client begins before it
    /// knows are still accepted.
    pub fn shut_down(&mut self, out: &mut Vec<u8>) {
        if self.shutdown == Shutdown::No {
            self.shutdown = Shutdown::Announced;
            out.extend(frames::goaway(STREAM_MAX, Code::NoError));
            frame(out, kind::PING, 0, 0, &SHUTDOWN_PING);
        }
    }

    /// Asks the client for an answer, by which it shows that it is there.
    pub fn ping(&mut self, out: &mut Vec<u8>) {
        frame(out, kind::PING, 0, 0, &PING);
    }

    fn send_block(
        &mut self,
        stream: StreamId,
        status: Option<StatusCode>,
        fields: &HeaderMap,
        ends: bool,
        out: &mut Vec<u8>,
    ) {
        let head = out.len();
        out.extend([0; HEADER_LEN]);
        if std::mem::take(&mut self.is_table_reduced) {
            out.push(encode::NO_DYNAMIC_TABLE);
        }
        if let Some(status) = status {
            encode::status(status, out);
        }
        for (name, value) in fields {
            encode::field(name, value, out);
        }
        let ends_stream = if ends { flags::END_STREAM } else { 0 };
        complete_block(out, head, stream, ends_stream, self.peer.frame_len_max as usize);
        self.budget.sent(kind::HEADERS, 0);
        if ends {
            self.end_response(stream, out);
        }
    }
}

/// Completes a header block, which is behind the place of its header at `head`: divides it into frames.
fn complete_block(out: &mut Vec<u8>, head: usize, stream: StreamId, ends_stream: u8, len_max: usize) {
    let block = head + HEADER_LEN;
    let len = out.len() - block;
    if len <= len_max {
        let header = frames::write_head(len as u32, kind::HEADERS, flags::END_HEADERS | ends_stream, stream);
        out[head..block].copy_from_slice(&header);
        return;
    }
    let bytes = out.split_off(block);
    out.truncate(head);
    let last = bytes.len().div_ceil(len_max) - 1;
    for (number, piece) in bytes.chunks(len_max).enumerate() {
        let ends_block = if number == last { flags::END_HEADERS } else { 0 };
        let (kind, flags) = if number == 0 { (kind::HEADERS, ends_stream) } else { (kind::CONTINUATION, 0) };
        frame(out, kind, flags | ends_block, stream, piece);
    }
}
