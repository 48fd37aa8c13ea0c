//! HTTP/2 frame by frame (RFC 9113), as little as it takes to see how a connection ends.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::tls::{Taste, Tls, dial};
use crate::harness::site::SITE;

/// RFC 9113 section 3.4.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD_LEN: usize = 9;
/// The largest window there is (RFC 9113 section 6.9.1): what limits the server is TCP alone.
const WINDOW_MAX: u32 = (1 << 31) - 1;
const WINDOW_DEFAULT: u32 = 65_535;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

/// `END_STREAM`; of `SETTINGS` and `PING`: `ACK`.
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const SETTINGS_INITIAL_WINDOW_SIZE: u16 = 4;

/// The client's end of a connection.
pub(crate) struct H2 {
    tls: Tls,
}

/// What the server has sent, as far as it matters here.
#[derive(Debug)]
pub(crate) enum Frame {
    Data { stream: u32, bytes: Vec<u8>, is_end: bool },
    Reset { stream: u32 },
    GoAway { error: u32 },
}

impl H2 {
    /// Connects from `source`, and opens all windows.
    pub(crate) fn connect(source: IpAddr, service: SocketAddr) -> Self {
        let mut config = Arc::unwrap_or_clone(Taste::default().config());
        config.alpn_protocols = vec![b"h2".to_vec()];
        let tls = Tls::connect(dial(source, service).unwrap(), Arc::new(config), SITE, |_| {}).unwrap();
        let mut h2 = Self { tls };
        h2.tls.write_all(PREFACE).unwrap();
        let settings = [&SETTINGS_INITIAL_WINDOW_SIZE.to_be_bytes()[..], &WINDOW_MAX.to_be_bytes()].concat();
        h2.send(SETTINGS, 0, 0, &settings);
        h2.send(WINDOW_UPDATE, 0, 0, &(WINDOW_MAX - WINDOW_DEFAULT).to_be_bytes());
        h2
    }

    /// Asks for `path` on a new stream.
    pub(crate) fn get(&mut self, stream: u32, path: &str) {
        // RFC 7541: from the static table `:method: GET` and `:scheme: https`; `:path` and `:authority`, not indexed.
        let mut block = vec![0x82, 0x87];
        for (name, value) in [(0x04, path), (0x01, SITE)] {
            block.extend([name, u8::try_from(value.len()).unwrap()]);
            block.extend(value.as_bytes());
        }
        self.send(HEADERS, END_HEADERS | END_STREAM, stream, &block);
    }

    /// What comes next; `None` when the connection has ended cleanly. What wants an answer gets it.
    pub(crate) fn next_frame(&mut self) -> Option<Frame> {
        loop {
            let (kind, flags, stream, payload) = self.read_frame()?;
            match kind {
                DATA => return Some(Frame::Data { stream, bytes: payload, is_end: flags & END_STREAM != 0 }),
                RST_STREAM => return Some(Frame::Reset { stream }),
                GOAWAY => {
                    let error = u32::from_be_bytes(payload[4..8].try_into().unwrap());
                    return Some(Frame::GoAway { error });
                }
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
        let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&[a, b, c, kind, flags][..], &stream.to_be_bytes()].concat();
        self.tls.write_all(&[&head, payload].concat()).unwrap();
        self.tls.flush().unwrap();
    }
}
