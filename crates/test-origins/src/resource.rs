//! A resource and its correct answers.

use std::ops::Range;

use crate::content::Content;
use crate::reply::Reply;
use crate::request::Asked;

/// A resource of an origin.
#[derive(Debug, Clone)]
pub struct Resource {
    /// Its path: `/file`.
    pub path: String,
    pub content: Content,
    /// `"v1"` with its quotes, or `W/"v1"`.
    pub etag: Option<String>,
    /// An HTTP date.
    pub last_modified: Option<String>,
    /// Further fields of each answer with a body, such as `Repr-Digest`.
    pub fields: Vec<(String, String)>,
}

impl Resource {
    /// `/file`, with a strong tag and a date in the distant past.
    pub fn new(content: Content) -> Self {
        Self {
            path: "/file".to_owned(),
            content,
            etag: Some("\"v1\"".to_owned()),
            last_modified: Some("Sun, 01 Nov 2026 06:00:00 GMT".to_owned()),
            fields: Vec::new(),
        }
    }

    /// The same path with new content of `len` bytes, and other validators.
    #[must_use]
    pub fn replaced(&self, len: u64) -> Self {
        Self {
            content: Content::generated(0x5eed, len),
            etag: self.etag.as_ref().map(|_| "\"v2\"".to_owned()),
            last_modified: self.last_modified.as_ref().map(|_| "Mon, 02 Nov 2026 06:00:00 GMT".to_owned()),
            ..self.clone()
        }
    }

    /// The correct answer (RFC 9110, sections 13 and 14).
    pub(crate) fn answer(&self, asked: &Asked) -> Reply {
        if !matches!(asked.method.as_str(), "GET" | "HEAD") {
            return Reply::text(405, "Method Not Allowed", "not here\n");
        }
        if asked.target.split('?').next() != Some(&self.path) {
            return Reply::text(404, "Not Found", "not here\n");
        }
        if asked.field("if-match").is_some_and(|tags| !self.matches(tags)) {
            return Reply::text(412, "Precondition Failed", "another one\n");
        }
        match self.wanted(asked) {
            Wanted::Whole => self.whole(),
            Wanted::Part(range) => self.part(range),
            Wanted::Nothing => self.unsatisfiable(),
        }
    }

    pub(crate) fn whole(&self) -> Reply {
        let mut reply = Reply::new("200 OK", self.content.clone(), 0..self.content.len());
        self.describe(&mut reply);
        reply
    }

    pub(crate) fn part(&self, range: Range<u64>) -> Reply {
        let said = format!("bytes {}-{}/{}", range.start, range.end - 1, self.content.len());
        let mut reply = Reply::new("206 Partial Content", self.content.clone(), range);
        reply.set("Content-Range", said);
        self.describe(&mut reply);
        reply
    }

    pub(crate) fn unsatisfiable(&self) -> Reply {
        let mut reply = Reply::text(416, "Range Not Satisfiable", "no such range\n");
        reply.set("Content-Range", format!("bytes */{}", self.content.len()));
        reply
    }

    fn describe(&self, reply: &mut Reply) {
        reply.set("Accept-Ranges", "bytes");
        reply.set("Content-Type", "application/octet-stream");
        for (name, value) in [("ETag", &self.etag), ("Last-Modified", &self.last_modified)] {
            if let Some(value) = value {
                reply.set(name, value);
            }
        }
        for (name, value) in &self.fields {
            reply.set(name, value);
        }
    }

    fn wanted(&self, asked: &Asked) -> Wanted {
        let Some((first, last)) = asked.range().filter(|_| self.is_current(asked)) else {
            return Wanted::Whole;
        };
        let end = last.map_or(self.content.len(), |last| last.saturating_add(1).min(self.content.len()));
        if first < end { Wanted::Part(first..end) } else { Wanted::Nothing }
    }

    /// Whether `If-Range`, if present, permits a partial answer, by a strong comparison (RFC 9110, section 13.1.5).
    fn is_current(&self, asked: &Asked) -> bool {
        asked.field("if-range").is_none_or(|validator| {
            let strong = self.etag.as_deref().filter(|tag| !tag.starts_with("W/"));
            strong == Some(validator) || self.last_modified.as_deref() == Some(validator)
        })
    }

    /// Whether one of the tags of an `If-Match` matches, by a strong comparison (RFC 9110, section 13.1.1).
    fn matches(&self, tags: &str) -> bool {
        let strong = self.etag.as_deref().filter(|tag| !tag.starts_with("W/"));
        tags == "*" || tags.split(',').any(|tag| strong == Some(tag.trim()))
    }
}

enum Wanted {
    Whole,
    Part(Range<u64>),
    Nothing,
}
