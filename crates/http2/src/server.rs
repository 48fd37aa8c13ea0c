//! The server's side of an HTTP/2 connection (RFC 9113), as bytes in and bytes out.
//!
//! ```text
//!   input --> Server::receive --> Event                    head, lengths, fields --> Server::send_*, start_data --> out
//!                    |                                                                        ^
//!                    '--> out: answers to SETTINGS and PING, resets                           '--- Server::capacity
//! ```
//!
//! Nothing here opens a socket, reads a clock, or stores a byte of content: the caller owns the buffers.
//!
//! * [`Server::receive`] takes one frame at a time from the start of the input. Content is reported as it comes, also
//!   within a frame. A frame of another kind has to be complete.
//! * A stream exists from [`Event::Request`] until both sides have ended or either has reset it. The functions that send
//!   heads, trailers and resets do nothing for a stream that is gone.
//! * **Flow control:** [`Server::release`] returns the window of content that was read. [`Server::capacity`] says how
//!   much may be sent now. [`Event::Window`] says that a window has room again.
//! * **Malformed requests** (section 8.1.1) and other errors of a stream reset it. [`Fault`] ends the connection: the
//!   GOAWAY is in `out`.
//! * **Limits:** streams at a time, the size of a head, and the budget of all frames.

mod fault;
mod head;
mod receiving;
mod sending;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use http::{HeaderMap, request};

pub use fault::Fault;
pub use head::Protocol;

use crate::Code;
use crate::budget::Budget;
use crate::frames::{self, kind};
use crate::hpack::Decoder;
use stream::{Closed, Stream};

/// The number of a stream (RFC 9113, section 5.1.1).
pub type StreamId = u32;

/// Bytes that a client may send before they are read: on each stream, and on the connection. So one request whose content
/// is not read holds up the content of others, and never more than this waits.
const WINDOW: u32 = 1024 * 1024;
/// The windows of a new connection (RFC 9113, section 6.9.2).
const INITIAL_WINDOW: u32 = 65_535;
/// Streams that ended lately, which late frames may be for.
const CLOSED_MAX: usize = 64;
/// The largest frame that is accepted (the initial value of `SETTINGS_MAX_FRAME_SIZE`).
const FRAME_LEN_MAX: u32 = 16_384;
/// RFC 9113, section 5.1.1.
const STREAM_MAX: StreamId = (1 << 31) - 1;
/// The opaque data of a ping that checks the connection, and of the one behind the first GOAWAY of a shutdown.
const PING: [u8; 8] = *b"watching";
const SHUTDOWN_PING: [u8; 8] = *b"watari, ";

/// Settings (RFC 9113, section 6.5.2; RFC 8441, section 3).
mod setting {
    pub(super) const HEADER_TABLE_SIZE: u16 = 1;
    pub(super) const ENABLE_PUSH: u16 = 2;
    pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(super) const MAX_FRAME_SIZE: u16 = 5;
    pub(super) const MAX_HEADER_LIST_SIZE: u16 = 6;
    pub(super) const ENABLE_CONNECT_PROTOCOL: u16 = 8;
}

/// What a client may use.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Streams at a time.
    pub streams_max: u32,
    /// The size of a request's fields, in bytes, with 32 for each (RFC 9113, section 6.5.2).
    pub list_len_max: u32,
    /// Whether a CONNECT may name a protocol (RFC 8441).
    pub allows_protocol: bool,
}

/// What a frame means for the caller.
#[derive(Debug)]
pub enum Event {
    /// A stream begins. `content_len`: the declared length of the request's content. `ends`: it has none.
    Request { stream: StreamId, head: Box<request::Parts>, content_len: Option<u64>, ends: bool },
    /// A stream begins whose request has a longer head than the limit.
    TooLong { stream: StreamId },
    /// Content, as a range of the input.
    Data { stream: StreamId, data: Range<usize>, ends: bool },
    /// The request is complete, with trailers.
    Trailers { stream: StreamId, fields: HeaderMap },
    /// The stream is gone: the client has reset it, or it has broken a rule.
    Reset { stream: StreamId },
    /// Content can be sent on the stream, after its window was used up. `None`: on any.
    Window { stream: Option<StreamId> },
}

/// A step of [`Server::receive`].
#[derive(Debug)]
pub struct Received {
    /// Bytes that were taken from the input. 0: it needs more.
    pub taken: usize,
    pub event: Option<Event>,
}

/// The state of a connection.
#[derive(Debug)]
pub struct Server {
    limits: Limits,
    expects: Expects,
    decoder: Decoder,
    /// The client has reduced its table, and the encoder has not answered that it uses none.
    is_table_reduced: bool,
    /// Streams in the order of their numbers.
    streams: Vec<Stream>,
    closed: VecDeque<(StreamId, Closed)>,
    /// The last stream that the client has begun.
    last_stream: StreamId,
    /// Bytes that may be sent on all streams together.
    window: i64,
    /// Bytes that the client may send on all streams together.
    receivable: i64,
    /// Bytes of content that were read, and that the client does not know of.
    released: u32,
    peer: Peer,
    shutdown: Shutdown,
    budget: Budget,
}

/// The client's settings.
#[derive(Debug)]
struct Peer {
    window: i64,
    frame_len_max: u32,
}

#[derive(Debug)]
enum Expects {
    Preface,
    Settings,
    Frame,
    /// The rest of a frame of content.
    Content(Content),
    /// The rest of a header block.
    Block(Block),
}

#[derive(Debug)]
struct Content {
    stream: StreamId,
    /// Bytes of content, and of padding, that are still to come.
    left: usize,
    padding: usize,
    ends: bool,
}

#[derive(Debug)]
struct Block {
    stream: StreamId,
    ends: bool,
    depends_on_itself: bool,
    bytes: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
enum Shutdown {
    No,
    /// Further streams are still accepted, until the client has answered the ping.
    Announced,
    /// No further streams are accepted.
    Final,
}

impl Server {
    /// A new connection. Writes its first frames to `out`.
    pub fn new(limits: Limits, now: Instant, out: &mut Vec<u8>) -> Self {
        let settings = [
            Some((setting::MAX_CONCURRENT_STREAMS, limits.streams_max)),
            Some((setting::INITIAL_WINDOW_SIZE, WINDOW)),
            Some((setting::MAX_HEADER_LIST_SIZE, limits.list_len_max)),
            limits.allows_protocol.then_some((setting::ENABLE_CONNECT_PROTOCOL, 1)),
        ];
        let payload: Vec<u8> = settings.into_iter().flatten().flat_map(|(name, value)| encoded(name, value)).collect();
        frame(out, kind::SETTINGS, 0, 0, &payload);
        frame(out, kind::WINDOW_UPDATE, 0, 0, &(WINDOW - INITIAL_WINDOW).to_be_bytes());
        Self {
            limits,
            expects: Expects::Preface,
            decoder: Decoder::new(),
            is_table_reduced: false,
            streams: Vec::new(),
            closed: VecDeque::new(),
            last_stream: 0,
            window: INITIAL_WINDOW.into(),
            receivable: WINDOW.into(),
            released: 0,
            peer: Peer { window: INITIAL_WINDOW.into(), frame_len_max: FRAME_LEN_MAX },
            shutdown: Shutdown::No,
            budget: Budget::new(now),
        }
    }

    /// The number of streams.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Whether the response of this stream is complete, or the stream is gone.
    fn is_answered(&self, stream: StreamId) -> bool {
        self.stream(stream).is_none_or(|found| found.is_response_complete)
    }

    /// Whether the connection has to end: its shutdown is final, and no stream is left.
    pub fn is_over(&self) -> bool {
        self.shutdown == Shutdown::Final && self.streams.is_empty()
    }

    fn stream(&self, stream: StreamId) -> Option<&Stream> {
        self.streams.iter().find(|open| open.id == stream)
    }
}

/// What receiving and sending share.
impl Server {
    /// Whether frames on this stream are ignored: it began after the last one that is accepted.
    fn is_excluded(&self, stream: StreamId) -> bool {
        self.shutdown == Shutdown::Final && stream > self.last_stream
    }

    /// Removes a stream. Returns whether it was there. Its window returns to the connection.
    fn close(&mut self, stream: StreamId, by: Closed, out: &mut Vec<u8>) -> bool {
        let Some(place) = self.streams.iter().position(|open| open.id == stream) else { return false };
        let gone = self.streams.remove(place);
        // If both sides have ended, the content may still be read.
        if by != Closed::Ended {
            self.return_window(gone.unread as usize, out);
        }
        self.remember(stream, by);
        true
    }

    fn remember(&mut self, stream: StreamId, by: Closed) {
        self.closed.truncate(CLOSED_MAX - 1);
        self.closed.push_front((stream, by));
    }

    /// The client has ended its side of the stream.
    fn end_request(&mut self, stream: StreamId, out: &mut Vec<u8>) {
        let Some(found) = find(&mut self.streams, stream) else { return };
        found.is_request_complete = true;
        if found.is_response_complete {
            self.close(stream, Closed::Ended, out);
        }
    }

    fn end_response(&mut self, stream: StreamId, out: &mut Vec<u8>) {
        let Some(found) = find(&mut self.streams, stream) else { return };
        found.is_response_complete = true;
        if found.is_request_complete {
            self.close(stream, Closed::Ended, out);
        }
    }

    /// Returns the connection's window.
    fn return_window(&mut self, len: usize, out: &mut Vec<u8>) {
        self.released += u32::try_from(len).unwrap_or(u32::MAX);
        if self.released >= WINDOW / 2 {
            let released = std::mem::take(&mut self.released);
            self.receivable += i64::from(released);
            frame(out, kind::WINDOW_UPDATE, 0, 0, &released.to_be_bytes());
        }
    }
}

impl Received {
    const NOTHING: Self = Self { taken: 0, event: None };
}

fn find(streams: &mut [Stream], id: StreamId) -> Option<&mut Stream> {
    streams.iter_mut().find(|open| open.id == id)
}

fn encoded(name: u16, value: u32) -> Vec<u8> {
    [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: StreamId, payload: &[u8]) {
    out.extend(frames::write_head(payload.len() as u32, kind, flags, stream));
    out.extend_from_slice(payload);
}

fn reset_frame(stream: StreamId, code: Code, out: &mut Vec<u8>) {
    frame(out, kind::RST_STREAM, 0, stream, &(code as u32).to_be_bytes());
}
