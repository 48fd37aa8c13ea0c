//! Good and faulty origins without a socket: a request head goes in, a response comes out.

use std::ops::Range;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_RANGE, LOCATION, RANGE,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

/// The fault of an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// 200 and the whole file for any request.
    IgnoresRanges,
    /// 206 from the first byte on for any request.
    RangeFromStart,
    /// 206 that begins one byte late.
    RangeLate,
    /// 206 with another total length.
    OtherTotal,
    /// 206 of an unknown total length.
    UnknownTotal,
    /// 206 without `Content-Range`.
    NoRange,
    /// 206 of another version, with its tag, although `If-Range` forbids it.
    IgnoresIfRange,
    /// Other bytes under the same tag, which is weak.
    WeakTag,
    /// Other bytes under the same strong tag.
    SameTag,
    /// No validator.
    NoTag,
    /// Two tags.
    TwoTags,
    /// More bytes than announced.
    TooLong,
    /// Fewer bytes than announced, and then a regular end.
    TooShort,
    /// `Content-Length` is not that of the range.
    OtherLength,
    /// One range as `multipart/byteranges`.
    Multipart,
    /// 416 for every range.
    NotSatisfiable,
    /// 416 for an open range; closed ones are fine.
    RefusesOpenRanges,
    /// Compressed, although the request asks for identity.
    Gzip,
    /// The file is replaced by another after the first request.
    Replaced,
    /// One byte at a time.
    Drip,
    /// No byte follows the head.
    Silent,
    /// The connection is reset after this many bytes of a body, or stalls there: without a clock, both are the same.
    ResetAfter(usize),
    /// 302 for a range.
    Redirects,
    /// 401 for a range.
    Unauthorized,
    /// 503.
    Down,
}

impl Fault {
    /// One of each.
    pub(crate) const ALL: [Self; 26] = [
        Self::None,
        Self::IgnoresRanges,
        Self::RangeFromStart,
        Self::RangeLate,
        Self::OtherTotal,
        Self::UnknownTotal,
        Self::NoRange,
        Self::IgnoresIfRange,
        Self::WeakTag,
        Self::SameTag,
        Self::NoTag,
        Self::TwoTags,
        Self::TooLong,
        Self::TooShort,
        Self::OtherLength,
        Self::Multipart,
        Self::NotSatisfiable,
        Self::RefusesOpenRanges,
        Self::Gzip,
        Self::Replaced,
        Self::Drip,
        Self::Silent,
        Self::ResetAfter(100),
        Self::Redirects,
        Self::Unauthorized,
        Self::Down,
    ];
}

/// An origin with one file.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    file: Bytes,
    fault: Fault,
    /// The length of a piece of a body, in bytes.
    piece_len: usize,
    requests: usize,
}

/// A response. Its body ends regularly, or does not end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) pieces: Vec<Bytes>,
}

impl Origin {
    pub(crate) fn new(file: Bytes, fault: Fault, piece_len: usize) -> Self {
        Self { file, fault, piece_len, requests: 0 }
    }

    pub(crate) fn answer(&mut self, request: &HeaderMap) -> Answer {
        self.requests += 1;
        let asked = request.get(RANGE).and_then(|range| self.range(range.to_str().ok()?));
        if let Some(answer) = self.turned_away(request.get(RANGE)) {
            return answer;
        }
        let (file, tag) = self.version();
        let is_same = request.get(IF_RANGE).is_none_or(|asked| asked == tag) || self.fault == Fault::IgnoresIfRange;
        let ignored = self.fault == Fault::IgnoresRanges || !is_same;
        match asked.filter(|_| !ignored) {
            Some(range) => self.partial(&file, tag, range),
            None => self.respond(StatusCode::OK, tag, &file, &[(ACCEPT_RANGES, "bytes".to_owned())]),
        }
    }

    /// The stored file, and its tag.
    fn version(&self) -> (Bytes, &'static str) {
        match self.fault {
            Fault::SameTag => (other(&self.file), "\"tag\""),
            Fault::WeakTag => (other(&self.file), "W/\"tag\""),
            Fault::IgnoresIfRange => (other(&self.file), "\"other\""),
            Fault::Replaced if self.requests > 1 => (other(&self.file), "\"other\""),
            _ => (self.file.clone(), "\"tag\""),
        }
    }

    /// Parses closed ranges, as [`watari_handover`] requests them, and open ones.
    fn range(&self, value: &str) -> Option<Range<usize>> {
        let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
        let end = if last.is_empty() { self.file.len() } else { last.parse::<usize>().ok()? + 1 };
        Some(first.parse().ok()?..end.min(self.file.len())).filter(|range| !range.is_empty())
    }

    fn turned_away(&self, range: Option<&HeaderValue>) -> Option<Answer> {
        let is_open = range.is_some_and(|range| range.as_bytes().ends_with(b"-"));
        let status = match self.fault {
            Fault::Down => StatusCode::SERVICE_UNAVAILABLE,
            Fault::NotSatisfiable if range.is_some() => StatusCode::RANGE_NOT_SATISFIABLE,
            Fault::RefusesOpenRanges if is_open => StatusCode::RANGE_NOT_SATISFIABLE,
            Fault::Redirects if range.is_some() => StatusCode::FOUND,
            Fault::Unauthorized if range.is_some() => StatusCode::UNAUTHORIZED,
            _ => return None,
        };
        let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_static("/elsewhere"))]);
        Some(Answer { status, headers, pieces: vec![Bytes::from_static(b"why not")] })
    }

    fn partial(&self, file: &Bytes, tag: &'static str, asked: Range<usize>) -> Answer {
        let range = match self.fault {
            Fault::RangeFromStart => 0..asked.end,
            Fault::RangeLate if asked.len() > 1 => asked.start + 1..asked.end,
            _ => asked,
        };
        let total = match self.fault {
            Fault::OtherTotal => (file.len() + 1).to_string(),
            Fault::UnknownTotal => "*".to_owned(),
            _ => file.len().to_string(),
        };
        let mut fields = vec![(CONTENT_RANGE, format!("bytes {}-{}/{total}", range.start, range.end - 1))];
        match self.fault {
            Fault::NoRange => fields.clear(),
            Fault::Multipart => fields = vec![(CONTENT_TYPE, "multipart/byteranges; boundary=b".to_owned())],
            _ => {}
        }
        self.respond(StatusCode::PARTIAL_CONTENT, tag, &file.slice(range), &fields)
    }

    fn respond(&self, status: StatusCode, tag: &str, body: &Bytes, more: &[(HeaderName, String)]) -> Answer {
        let mut fields = more.to_vec();
        match self.fault {
            Fault::NoTag => {}
            Fault::TwoTags => fields.extend([(ETAG, tag.to_owned()), (ETAG, "\"two\"".to_owned())]),
            _ => fields.push((ETAG, tag.to_owned())),
        }
        if self.fault == Fault::Gzip {
            fields.push((CONTENT_ENCODING, "gzip".to_owned()));
        }
        let length = if self.fault == Fault::OtherLength { body.len() + 1 } else { body.len() };
        fields.push((CONTENT_LENGTH, length.to_string()));
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, HeaderValue::try_from(value).unwrap());
        }
        Answer { status, headers, pieces: self.pieces(body) }
    }

    fn pieces(&self, body: &Bytes) -> Vec<Bytes> {
        let (body, len) = match self.fault {
            Fault::Silent => (Bytes::new(), 1),
            Fault::ResetAfter(count) => (body.slice(..count.min(body.len())), self.piece_len),
            Fault::TooShort => (body.slice(..body.len() - 1), self.piece_len),
            Fault::TooLong => (Bytes::from([body, &b"and more"[..]].concat()), self.piece_len),
            Fault::Drip => (body.clone(), 1),
            _ => (body.clone(), self.piece_len),
        };
        let starts = (0..body.len()).step_by(len);
        starts.map(|start| body.slice(start..body.len().min(start + len))).collect()
    }
}

/// Another version of a file, of the same length, in which no byte is the same.
pub(crate) fn other(file: &Bytes) -> Bytes {
    file.iter().map(|byte| !byte).collect()
}
