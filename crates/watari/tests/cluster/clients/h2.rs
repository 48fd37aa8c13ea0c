//! HTTP/2 frame by frame (RFC 9113), as far as tests need it to see how a connection ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::tls::{Taste, Tls, dial};
use crate::harness::site::SITE;

/// RFC 9113 section 3.4.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD_LEN: usize = 9;
/// The largest window (RFC 9113 section 6.9.1), so that TCP alone limits the server.
const WINDOW_MAX: u32 = (1 << 31) - 1;
const WINDOW_DEFAULT: u32 = 65_535;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
/// RFC 9218, section 7.1.
pub(crate) const PRIORITY_UPDATE: u8 = 0x10;

/// `END_STREAM`; for `SETTINGS` and `PING`: `ACK`.
pub(crate) const END_STREAM: u8 = 1;
const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
const SETTINGS_INITIAL_WINDOW_SIZE: u16 = 4;
const CANCEL: u32 = 8;
const LAST_PING: &[u8; 8] = b"the last";

/// The client's end of a connection.
pub(crate) struct H2<S = Tls> {
    tls: S,
}

/// A frame from the server, with the data that tests need.
#[derive(Debug)]
pub(crate) enum Frame {
    Data { stream: u32, bytes: Vec<u8>, is_end: bool },
    Reset { stream: u32, error: u32 },
    GoAway { error: u32 },
}

impl H2 {
    /// Connects from `source`, and opens all windows.
    pub(crate) fn connect(source: IpAddr, service: SocketAddr) -> Self {
        let mut h2 = Self::connect_with_window(source, service, WINDOW_MAX);
        h2.send(WINDOW_UPDATE, 0, 0, &(WINDOW_MAX - WINDOW_DEFAULT).to_be_bytes());
        h2
    }

    /// Connects from `source`. The windows of its streams are `window` bytes wide.
    pub(crate) fn connect_with_window(source: IpAddr, service: SocketAddr, window: u32) -> Self {
        let mut config = Arc::unwrap_or_clone(Taste::default().config());
        config.alpn_protocols = vec![b"h2".to_vec()];
        let tls = Tls::connect(dial(source, service).unwrap(), Arc::new(config), SITE, |_| {}).unwrap();
        let mut h2 = Self { tls };
        h2.tls.write_all(&opening(window)).unwrap();
        h2.tls.flush().unwrap();
        h2
    }
}

/// The result of a stream, as the first byte of its response shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Head(u8),
    Reset(u32),
    GoAway(u32),
    Closed,
}

/// `:status: 200` and `:status: 400` in the static table (RFC 7541, appendix A).
pub(crate) const STATUS_200: u8 = 0x88;
pub(crate) const STATUS_400: u8 = 0x8c;
/// A status that the table does not have: 103, 421, 501.
pub(crate) const STATUS_LITERAL: u8 = 0x08;
pub(crate) const PROTOCOL_ERROR: u32 = 1;

/// The first bytes of a client whose streams have windows of `window` bytes.
fn opening(window: u32) -> Vec<u8> {
    let settings = [&SETTINGS_INITIAL_WINDOW_SIZE.to_be_bytes()[..], &window.to_be_bytes()].concat();
    [PREFACE, &frame(SETTINGS, 0, 0, &settings)].concat()
}

/// The first bytes of a client that requests `path` on stream 1 at once.
pub(crate) fn opening_with_get(path: &str) -> Vec<u8> {
    let request = frame(HEADERS, END_HEADERS | END_STREAM, 1, &get_block(path));
    [opening(WINDOW_DEFAULT), request].concat()
}

impl<S: Read + Write> H2<S> {
    /// Continues after such an opening.
    pub(crate) fn opened(tls: S) -> Self {
        Self { tls }
    }

    pub(crate) fn stream(&mut self) -> &mut S {
        &mut self.tls
    }

    /// Begins a stream with a head of these fields, and ends it if it `is_all`.
    pub(crate) fn begin(&mut self, stream: u32, fields: &[(&str, &str)], is_all: bool) {
        let end = if is_all { END_STREAM } else { 0 };
        self.send(HEADERS, END_HEADERS | end, stream, &literal_block(fields));
    }

    /// Sends content on a stream, and ends it if it `is_all`.
    pub(crate) fn data(&mut self, stream: u32, bytes: &[u8], is_all: bool) {
        self.send(DATA, if is_all { END_STREAM } else { 0 }, stream, bytes);
    }

    /// Reads the first byte of the next header block on a stream, which identifies some statuses (RFC 7541, appendix
    /// A).
    pub(crate) fn read_status(&mut self, stream: u32) -> Answer {
        loop {
            match self.read_frame() {
                None => return Answer::Closed,
                Some((HEADERS, _, on, block)) if on == stream => return Answer::Head(block[0]),
                Some((RST_STREAM, _, on, error)) if on == stream => return Answer::Reset(number(&error)),
                Some((GOAWAY, _, _, payload)) => return Answer::GoAway(number(&payload[4..])),
                Some((SETTINGS, 0, ..)) => self.send(SETTINGS, ACK, 0, &[]),
                Some(_) => {}
            }
        }
    }

    /// Requests `path` on a new stream.
    pub(crate) fn get(&mut self, stream: u32, path: &str) {
        self.send(HEADERS, END_HEADERS | END_STREAM, stream, &get_block(path));
    }

    /// Allows the server to send so many more bytes on a stream and on the connection.
    pub(crate) fn grant(&mut self, stream: u32, bytes: u32) {
        for stream in [0, stream] {
            self.send(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
        }
    }

    /// Resets a stream.
    pub(crate) fn reset(&mut self, stream: u32) {
        self.send(RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
    }

    /// Reads until the connection ends. Returns true if an alert or a reset cut it.
    pub(crate) fn is_cut(&mut self) -> bool {
        let mut dropped = [0; 4096];
        loop {
            match self.tls.read(&mut dropped) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            }
        }
    }

    /// Sends these frames `times` times, or until the server takes no more, without reading anything. Returns the error
    /// code of the server's GOAWAY, if one came before the connection ended or went silent.
    pub(crate) fn flood(mut self, times: u32, frames: impl Fn(u32) -> Vec<u8>) -> Option<u32> {
        let pieces = (0..times).map(frames);
        let mut sent = pieces.map(|piece| self.tls.write_all(&piece).and_then(|()| self.tls.flush()));
        if sent.all(|sent| sent.is_ok()) {
            // A server that answers this ping has read everything before it.
            let _ = self.tls.write_all(&frame(PING, 0, 0, LAST_PING));
        }
        self.goaway_or_end()
    }

    fn goaway_or_end(&mut self) -> Option<u32> {
        loop {
            let mut head = [0; HEAD_LEN];
            self.tls.read_exact(&mut head).ok()?;
            let [a, b, c, kind, flags, ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            self.tls.read_exact(&mut payload).ok()?;
            match kind {
                GOAWAY => return Some(number(&payload[4..])),
                PING if flags & ACK != 0 && payload == LAST_PING => return None,
                _ => {}
            }
        }
    }

    /// The next frame. `None`: the connection has ended cleanly. Acknowledges frames that need it.
    pub(crate) fn next_frame(&mut self) -> Option<Frame> {
        loop {
            let (kind, flags, stream, payload) = self.read_frame()?;
            match kind {
                DATA => return Some(Frame::Data { stream, bytes: payload, is_end: flags & END_STREAM != 0 }),
                RST_STREAM => return Some(Frame::Reset { stream, error: number(&payload) }),
                GOAWAY => return Some(Frame::GoAway { error: number(&payload[4..]) }),
                PING if flags & ACK == 0 => self.send(PING, ACK, 0, &payload),
                SETTINGS if flags & ACK == 0 => self.send(SETTINGS, ACK, 0, &[]),
                _ => {}
            }
        }
    }

    fn read_frame(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; HEAD_LEN];
        if self.tls.read(&mut head[..1]).unwrap() == 0 {
            return None;
        }
        self.tls.read_exact(&mut head[1..]).unwrap();
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.tls.read_exact(&mut payload).unwrap();
        Some((kind, flags, u32::from_be_bytes(stream), payload))
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.tls.write_all(&frame(kind, flags, stream, payload)).unwrap();
        self.tls.flush().unwrap();
    }
}

/// The number in the first bytes.
fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}

/// A frame (RFC 9113 section 4.1).
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[a, b, c, kind, flags][..], &stream.to_be_bytes(), payload].concat()
}

/// Literal fields without indexing (RFC 7541, section 6.2.2).
fn literal_block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).ok().filter(|len| *len < 0x7f).expect("one byte says how long it is"));
            block.extend(text.as_bytes());
        }
    }
    block
}

/// The fields of a request (RFC 7541): `:method: GET` and `:scheme: https` from the static table; `:path` and
/// `:authority` without indexing.
pub(crate) fn get_block(path: &str) -> Vec<u8> {
    let mut block = vec![0x82, 0x87];
    for (name, value) in [(0x04, path), (0x01, SITE)] {
        block.extend([name, u8::try_from(value.len()).unwrap()]);
        block.extend(value.as_bytes());
    }
    block
}
