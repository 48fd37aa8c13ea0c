//! HTTP/1.1 as far as the tests need it. It checks every byte, and how a connection ends.

use std::io::{self, Read, Write};

use rustls::Error as TlsError;

use crate::harness::origin::receipt_of;
use crate::harness::pattern::pattern;
use crate::harness::site::SITE;

/// The most bytes of one read.
const READ_LEN: usize = 64 << 10;

/// The client's end of a connection.
pub(crate) struct Http<S> {
    pub(crate) stream: S,
    /// Whether a response has announced the end of the connection.
    pub(crate) is_closing: bool,
    unread: Vec<u8>,
}

/// The head of a response.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    fields: Vec<(String, String)>,
}

/// A response is missing or wrong.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The connection ended, and the client can detect that data are missing.
    Broken(io::Error),
    /// The connection was closed before a response began.
    Closed,
    /// An error that must never occur.
    Wrong(String),
}

impl<S: Read + Write> Http<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, is_closing: false, unread: Vec::new() }
    }

    /// Downloads the first `len` bytes of the pattern of `seed`, and checks them.
    pub(crate) fn download(&mut self, len: u64, seed: u64) -> Result<(), Fault> {
        self.send(&get_bytes(len, seed))?;
        self.take_download(len, seed)
    }

    /// Reads the response to an earlier request of a pattern.
    pub(crate) fn take_download(&mut self, len: u64, seed: u64) -> Result<(), Fault> {
        let head = self.read_head()?;
        if head.status != 200 || head.len()? != len {
            return Err(Fault::Wrong(format!("expected {len} bytes, and was answered {head:?}")));
        }
        self.check_body(0..len, len, seed)
    }

    /// Uploads `body`, and checks the receipt.
    pub(crate) fn upload(&mut self, body: &[u8]) -> Result<(), Fault> {
        self.send(&put(body))?;
        self.take_receipt(body)
    }

    /// Reads the response to an earlier upload.
    pub(crate) fn take_receipt(&mut self, body: &[u8]) -> Result<(), Fault> {
        let receipt = self.take_text()?;
        if receipt == receipt_of(body) { Ok(()) } else { Err(Fault::Wrong(format!("the receipt is {receipt:?}"))) }
    }

    /// Gets `path` with these further lines in the head of the request.
    pub(crate) fn get_text(&mut self, path: &str, lines: &str) -> Result<String, Fault> {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: {SITE}\r\n{lines}\r\n").as_bytes())?;
        self.take_text()
    }

    /// Reads the response to an earlier request of a text.
    pub(crate) fn take_text(&mut self) -> Result<String, Fault> {
        let head = self.read_head()?;
        let len = head.len()? as usize;
        let mut body = Vec::new();
        while body.len() < len {
            let piece = self.read_piece(len - body.len())?;
            body.extend_from_slice(&piece);
        }
        let body = String::from_utf8_lossy(&body).into_owned();
        if head.status == 200 { Ok(body) } else { Err(Fault::Wrong(format!("{head:?} {body:?}"))) }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).map_err(fault)
    }

    pub(crate) fn read_head(&mut self) -> Result<Head, Fault> {
        loop {
            if let Some(end) = self.unread.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                let head: Vec<u8> = self.unread.drain(..end + 4).collect();
                let head = Head::parse(&head)?;
                self.is_closing |= head.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
                return Ok(head);
            }
            let nothing_yet = self.unread.is_empty();
            match self.fill() {
                Err(Fault::Closed) if !nothing_yet => return Err(clean_end("the head of a response")),
                filled => filled?,
            }
        }
    }

    /// Reads `len - range.start` bytes of body, and compares them with the pattern from `range.start` on.
    pub(crate) fn check_body(&mut self, range: std::ops::Range<u64>, len: u64, seed: u64) -> Result<(), Fault> {
        let mut at = range.start;
        while at < range.end {
            let piece = self.read_piece((range.end - at) as usize)?;
            let end = at + piece.len() as u64;
            if piece != pattern(seed, at..end) {
                return Err(Fault::Wrong(format!("wrong bytes between {at} and {end} of {len} (seed {seed})")));
            }
            at = end;
        }
        Ok(())
    }

    /// Some bytes of a body, at least one and at most `len_max`.
    pub(crate) fn read_piece(&mut self, len_max: usize) -> Result<Vec<u8>, Fault> {
        if self.unread.is_empty() {
            self.fill().map_err(|fault| if matches!(fault, Fault::Closed) { clean_end("a body") } else { fault })?;
        }
        let len = self.unread.len().min(len_max);
        Ok(self.unread.drain(..len).collect())
    }

    /// A chunk of a body, whose line has no extension. The last one is empty, and no trailers follow.
    pub(crate) fn read_chunk(&mut self) -> Result<Vec<u8>, Fault> {
        let size = loop {
            if let Some(end) = self.unread.windows(2).position(|bytes| bytes == b"\r\n") {
                let line: Vec<u8> = self.unread.drain(..end + 2).collect();
                let size = str::from_utf8(&line[..end]).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
                break size.ok_or_else(|| Fault::Wrong(format!("no size of a chunk: {line:?}")))?;
            }
            self.fill()?;
        };
        while self.unread.len() < size + 2 {
            self.fill()?;
        }
        let chunk = self.unread.drain(..size).collect();
        if self.unread.drain(..2).as_slice() == b"\r\n" {
            Ok(chunk)
        } else {
            Err(Fault::Wrong("no end of a chunk".into()))
        }
    }

    /// Reads until the connection ends. Returns true if it ended cleanly, by a `close_notify`.
    pub(crate) fn ends_cleanly(&mut self) -> bool {
        loop {
            match self.fill() {
                Ok(()) => {}
                Err(fault) => return matches!(fault, Fault::Closed),
            }
        }
    }

    fn fill(&mut self) -> Result<(), Fault> {
        let len = self.unread.len();
        self.unread.resize(len + READ_LEN, 0);
        let read = self.stream.read(&mut self.unread[len..]);
        self.unread.truncate(len + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(Fault::Closed),
            Ok(_) => Ok(()),
            Err(error) => Err(fault(error)),
        }
    }
}

impl Head {
    fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok());
        let status = status.ok_or_else(|| Fault::Wrong(format!("no head of a response: {text:?}")))?;
        let fields = lines.filter_map(|line| line.split_once(": "));
        let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
        Ok(Self { status, fields: fields.collect() })
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn len(&self) -> Result<u64, Fault> {
        let len = self.field("content-length").and_then(|len| len.parse().ok());
        len.ok_or_else(|| Fault::Wrong(format!("no length in {self:?}")))
    }
}

/// The request of a pattern.
pub(crate) fn get_bytes(len: u64, seed: u64) -> Vec<u8> {
    format!("GET /bytes/{len}?{seed} HTTP/1.1\r\nhost: {SITE}\r\n\r\n").into_bytes()
}

/// An upload.
pub(crate) fn put(body: &[u8]) -> Vec<u8> {
    let head = format!("PUT /upload HTTP/1.1\r\nhost: {SITE}\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn clean_end(place: &str) -> Fault {
    Fault::Wrong(format!("the connection ended cleanly in the middle of {place}"))
}

/// A TLS error, such as a record that does not verify, is never just a broken connection. Nor is silence.
pub(crate) fn fault(error: io::Error) -> Fault {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
    match (tls, error.kind()) {
        (Some(TlsError::AlertReceived(_)), _) => Fault::Broken(error),
        (Some(broken), _) => Fault::Wrong(format!("TLS is broken: {broken}")),
        (None, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Fault::Wrong("nothing came for long".into()),
        (None, _) => Fault::Broken(error),
    }
}
