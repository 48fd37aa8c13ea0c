//! The effect of each fault on an answer.

use std::ops::Range;

use bytes::Bytes;

use crate::fault::Fault;
use crate::reply::{Drip, End, Instead, Reply};
use crate::request::Asked;
use crate::resource::Resource;

/// Bytes beyond the announced length.
const SURPLUS: &[u8] = &[b'!'; 1000];

impl Fault {
    /// Applies the fault to a correct answer.
    pub(crate) fn spoil(self, asked: &Asked, resource: &Resource, reply: &mut Reply) {
        match self {
            Self::Everything => *reply = resource.whole(),
            Self::NoRanges => {
                *reply = resource.whole();
                reply.set("Accept-Ranges", "none");
            }
            Self::NoOpenRanges if matches!(asked.range(), Some((_, None))) => *reply = resource.whole(),
            Self::OtherRange { first, last } => other_range(first, last, reply),
            Self::Shifted => shift(reply),
            Self::OtherUnit => content_range(reply, |said| said.replace("bytes", "items")),
            Self::NoContentRange => reply.unset("Content-Range"),
            Self::OtherTotal => total(reply, &(resource.content.len() + 1).to_string()),
            Self::UnknownTotal => total(reply, "*"),
            Self::Multipart => multipart(reply),
            Self::Unsatisfiable => *reply = resource.unsatisfiable(),
            Self::Replaced { longer } => *reply = replaced(resource, longer).answer(asked),
            Self::Chunked => reply.chunk(),
            Self::Short => reply.end = End::Fin(reply.body_len() / 2),
            Self::Long => reply.around.1 = Bytes::from_static(SURPLUS),
            Self::Status(code) => *reply = another(code),
            Self::Garbage => reply.instead = Some(Instead::Garbage),
            Self::EndlessHead => reply.instead = Some(Instead::EndlessHead),
            Self::Drip { bytes, every } => reply.drip = Some(Drip { after: 0, bytes, every }),
            Self::Crawl { after, every } => reply.drip = Some(Drip { after, bytes: 1, every }),
            Self::Stall { after } => reply.end = End::Stall(after),
            Self::Fin { after } => reply.end = End::Fin(after),
            Self::Reset { after } => reply.end = End::Reset(after),
            Self::Death { after } => reply.end = End::Death(after),
            Self::NoOpenRanges | Self::Refuses => {}
            _ => self.spoil_head(reply),
        }
        self.spoil_bytes(reply);
    }

    fn spoil_head(self, reply: &mut Reply) {
        match self {
            Self::OtherValidators => {
                reply.set("ETag", "\"v2\"");
                reply.set("Last-Modified", "Mon, 02 Nov 2026 06:00:00 GMT");
            }
            Self::WeakTag => {
                reply.set("ETag", "W/\"v1\"");
                reply.unset("Last-Modified");
            }
            Self::NoValidators => ["ETag", "Last-Modified"].iter().for_each(|name| reply.unset(name)),
            Self::Gzip => reply.set("Content-Encoding", "gzip"),
            Self::Interim => reply.interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n",
            Self::TwoLengths => reply.raw_fields = format!("Content-Length: {}\r\n", reply.body_len() + 1),
            Self::LengthAndChunks => {
                reply.set("Transfer-Encoding", "chunked");
                reply.chunked = true;
            }
            Self::FoldedField => reply.raw_fields = "X-Folded: one\r\n two\r\n".into(),
            _ => {}
        }
    }

    fn spoil_bytes(self, reply: &mut Reply) {
        let Range { start, end } = reply.range;
        let altered = match self {
            Self::OtherBytes => start..end,
            Self::OtherFirstByte => start..(start + 1).min(end),
            Self::OtherLastByte => end.saturating_sub(1).max(start)..end,
            _ => return,
        };
        reply.content = reply.content.clone().altered(altered);
    }
}

/// Moves the ends of the range, in `Content-Range` and `Content-Length` too.
fn other_range(first: i64, last: i64, reply: &mut Reply) {
    let start = reply.range.start.saturating_add_signed(first);
    let end = reply.range.end.saturating_add_signed(last);
    let missing = end.saturating_sub(reply.content.len()) as usize;
    reply.send(start..end.min(reply.content.len()));
    reply.around.1 = Bytes::from_static(&SURPLUS[..missing]);
    reply.set("Content-Length", reply.body_len().to_string());
    let total = reply.content.len();
    content_range(reply, |_| format!("bytes {start}-{}/{total}", end - 1));
}

/// The same number of bytes, from one byte earlier.
fn shift(reply: &mut Reply) {
    let Range { start, end } = reply.range;
    reply.around.0 = reply.content.at(start.saturating_sub(1), 1);
    reply.range = start..end - 1;
}

fn total(reply: &mut Reply, total: &str) {
    content_range(reply, |said| format!("{}/{total}", said.split('/').next().unwrap_or_default()));
}

/// Changes `Content-Range`, if there is one: a 200 has none.
fn content_range(reply: &mut Reply, change: impl FnOnce(&str) -> String) {
    if let Some(said) = reply.get("Content-Range").map(change) {
        reply.set("Content-Range", said);
    }
}

/// RFC 9110, section 14.6.
fn multipart(reply: &mut Reply) {
    let said = reply.get("Content-Range").unwrap_or_default().to_owned();
    let part = format!("--part\r\nContent-Type: application/octet-stream\r\nContent-Range: {said}\r\n\r\n");
    reply.around = (Bytes::from(part), Bytes::from_static(b"\r\n--part--\r\n"));
    reply.unset("Content-Range");
    reply.set("Content-Type", "multipart/byteranges; boundary=part");
    reply.set("Content-Length", reply.body_len().to_string());
}

fn replaced(resource: &Resource, longer: i64) -> Resource {
    resource.replaced(resource.content.len().saturating_add_signed(longer))
}

fn another(code: u16) -> Reply {
    let mut reply = Reply::text(code, "Something Else", "something else\n");
    match code {
        300..=399 => reply.set("Location", "/elsewhere"),
        401 => reply.set("WWW-Authenticate", "Basic realm=\"here\""),
        503 => reply.set("Retry-After", "1"),
        _ => {}
    }
    reply
}
