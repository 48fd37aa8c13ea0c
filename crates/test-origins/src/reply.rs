//! An answer, correct or faulty, and how it is sent.

use std::ops::Range;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::content::Content;

/// An answer in its parts. A fault may change each of them.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    /// Whole responses before it (1xx).
    pub(crate) interim: &'static str,
    /// `200 OK`.
    pub(crate) status: String,
    pub(crate) fields: Vec<(String, String)>,
    /// Further bytes of the head.
    pub(crate) raw_fields: String,
    pub(crate) content: Content,
    /// The part of the content that is sent.
    pub(crate) range: Range<u64>,
    /// The bytes before and behind the content.
    pub(crate) around: (Bytes, Bytes),
    pub(crate) chunked: bool,
    pub(crate) end: End,
    pub(crate) drip: Option<Drip>,
    pub(crate) instead: Option<Instead>,
}

/// Sends the body in pieces, from an offset on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drip {
    pub(crate) after: u64,
    pub(crate) bytes: usize,
    pub(crate) every: Duration,
}

/// How an answer ends, after at most this many bytes of its body.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    /// Completely; the next request may follow.
    Whole,
    /// Completely, and then with a FIN.
    Close,
    /// With a FIN.
    Fin(u64),
    /// With a RST.
    Reset(u64),
    /// Not at all.
    Stall(u64),
    /// With a RST on all connections; the origin accepts no more.
    Death(u64),
}

/// Bytes in place of an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Instead {
    /// Bytes that are not HTTP.
    Garbage,
    /// Endless fields.
    EndlessHead,
}

impl Reply {
    pub(crate) fn new(status: &str, content: Content, range: Range<u64>) -> Self {
        let length = (range.end - range.start).to_string();
        Self {
            interim: "",
            status: status.to_owned(),
            fields: vec![("Date".into(), DATE.into()), ("Content-Length".into(), length)],
            raw_fields: String::new(),
            content,
            range,
            around: (Bytes::new(), Bytes::new()),
            chunked: false,
            end: End::Whole,
            drip: None,
            instead: None,
        }
    }

    /// A short text instead of a resource.
    pub(crate) fn text(code: u16, reason: &str, text: &'static str) -> Self {
        Self::new(&format!("{code} {reason}"), Content::given(text), 0..text.len() as u64)
    }

    /// Sets a field, or adds it.
    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.unset(name);
        self.fields.push((name.to_owned(), value.into()));
    }

    pub(crate) fn unset(&mut self, name: &str) {
        self.fields.retain(|(candidate, _)| candidate != name);
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(candidate, _)| candidate == name).map(|(_, value)| value.as_str())
    }

    /// Frames the body in chunks, without a length.
    pub(crate) fn chunk(&mut self) {
        self.unset("Content-Length");
        self.set("Transfer-Encoding", "chunked");
        self.chunked = true;
    }

    /// Sends this part of the content, with its length, and leaves `Content-Range` as it is.
    pub(crate) fn send(&mut self, range: Range<u64>) {
        self.set("Content-Length", (range.end - range.start).to_string());
        self.range = range;
    }

    /// Bytes of the body, without framing.
    pub(crate) fn body_len(&self) -> u64 {
        self.around.0.len() as u64 + (self.range.end - self.range.start) + self.around.1.len() as u64
    }

    /// All bytes up to the body.
    pub(crate) fn head(&self) -> String {
        let mut head = format!("{}HTTP/1.1 {}\r\n", self.interim, self.status);
        for (name, value) in &self.fields {
            head.extend([name, ": ", value, "\r\n"]);
        }
        head + &self.raw_fields + "\r\n"
    }

    /// At most `len` bytes of the body from `position` on, without framing.
    pub(crate) fn piece(&self, position: u64, len: usize) -> Bytes {
        let (before, behind) = &self.around;
        let (before_len, middle_len) = (before.len() as u64, self.range.end - self.range.start);
        let cut = |bytes: &Bytes, from: u64| bytes.slice(from as usize..bytes.len().min(from as usize + len));
        if position < before_len {
            cut(before, position)
        } else if position < before_len + middle_len {
            let from = position - before_len;
            let len = (middle_len - from).min(len as u64) as usize;
            self.content.at(self.range.start + from, len)
        } else {
            cut(behind, position - before_len - middle_len)
        }
    }

    /// A piece with its framing.
    pub(crate) fn framed(&self, piece: Bytes) -> Bytes {
        if !self.chunked {
            return piece;
        }
        let mut chunk = BytesMut::from(format!("{:x}\r\n", piece.len()).as_bytes());
        chunk.extend_from_slice(&piece);
        chunk.extend_from_slice(b"\r\n");
        chunk.freeze()
    }
}

/// The date of all answers: long after the dates of all resources.
const DATE: &str = "Sun, 22 Nov 2026 12:00:00 GMT";
