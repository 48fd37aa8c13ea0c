//! The response to a client from a stored response: conditions, ranges, HEAD, `Age` (RFC 9111, section 4; RFC 9110,
//! sections 13 and 14).

use std::ops::Range;
use std::time::Duration;

use http::header::{
    ACCEPT_RANGES, AGE, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, DATE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, RANGE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, request, response};
use watari_conditional::{
    Multipart, Selection, Validators, Verdict, content_range, date, evaluate, selection, unsatisfied_range,
};

use crate::directives::SECONDS_MAX;
use crate::entry::StoredResponse;
use crate::fields::validators;
use crate::status::CacheStatus;

/// The name of the cache in `Cache-Status`.
pub const CACHE_NAME: &str = "watari";

/// The field `Cache-Status` (RFC 9211).
pub const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// Fields about content, which a 304 does not have (RFC 9110, section 15.4.5).
const OF_CONTENT: [HeaderName; 8] = [
    CONTENT_TYPE,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_DISPOSITION,
    ACCEPT_RANGES,
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("repr-digest"),
];

/// The most fields that an answer has besides the stored ones: `Age`, `Cache-Status`, and two about its content.
const ADDED_MAX: usize = 4;

/// The response from a stored one.
#[derive(Debug)]
pub struct Answer {
    /// Complete, with `Age`, `Content-Length`, `Content-Range` and `Cache-Status`.
    pub head: response::Parts,
    pub selected: Selected,
}

/// The parts of the stored content that follow the head, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selected {
    Nothing,
    Part(Range<u64>),
    /// `multipart/byteranges`: each part with the text before it, and the text at the end.
    Parts(Vec<(String, Range<u64>)>, String),
}

/// The response to `request` from `stored`. `age` is that of [`crate::reuse()`].
///
/// `If-None-Match` and `If-Modified-Since` are evaluated (304), and `Range` with `If-Range` for status 200. HEAD gets
/// no content. The driver forwards requests with `If-Match` or `If-Unmodified-Since`, which are for origins.
pub fn answer(stored: &StoredResponse, request: &request::Parts, age: Duration, status: &CacheStatus) -> Answer {
    let mut answer = select(stored, request);
    let fields = &mut answer.head.headers;
    fields.insert(AGE, HeaderValue::from(age.as_secs().min(SECONDS_MAX)));
    fields.append(CACHE_STATUS, status.to_value(CACHE_NAME));
    if request.method == Method::HEAD {
        answer.selected = Selected::Nothing;
    }
    answer
}

/// The answer without the fields of the cache. A request without conditions and ranges needs no parsing.
fn select(stored: &StoredResponse, request: &request::Parts) -> Answer {
    let asked = &request.headers;
    if stored.status.is_success() && (asked.contains_key(IF_NONE_MATCH) || asked.contains_key(IF_MODIFIED_SINCE)) {
        let verdict = evaluate(asked, &compared(&stored.headers));
        if verdict == Verdict::NotModified {
            return not_modified(&stored.headers);
        }
    }
    if stored.status != StatusCode::OK || !asked.contains_key(RANGE) {
        return whole(stored);
    }
    match selection(&request.method, asked, &validators(&stored.headers), stored.content.len()) {
        Selection::Whole => whole(stored),
        Selection::Parts(parts) => partial(stored, &parts),
        Selection::Unsatisfiable => unsatisfiable(stored),
    }
}

/// Without `Last-Modified`, the time of the response is compared (RFC 9111, section 4.3.2).
fn compared(stored: &HeaderMap) -> Validators<'_> {
    let validators = validators(stored);
    Validators { modified: validators.modified.or_else(|| date(stored, &DATE)), ..validators }
}

fn whole(stored: &StoredResponse) -> Answer {
    let mut head = head(stored.status, copied(&stored.headers));
    if stored.status != StatusCode::NO_CONTENT {
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(stored.content.len()));
    }
    Answer { head, selected: Selected::Part(0..stored.content.len()) }
}

/// 304, with the fields that update a stored response of the client (RFC 9110, section 15.4.5).
fn not_modified(stored: &HeaderMap) -> Answer {
    let mut fields = copied(stored);
    for name in OF_CONTENT {
        fields.remove(name);
    }
    if fields.contains_key(ETAG) {
        fields.remove(LAST_MODIFIED);
    }
    Answer { head: head(StatusCode::NOT_MODIFIED, fields), selected: Selected::Nothing }
}

/// 206: one part directly, several as `multipart/byteranges` (RFC 9110, section 15.3.7).
fn partial(stored: &StoredResponse, parts: &[Range<u64>]) -> Answer {
    let length = stored.content.len();
    let mut fields = copied(&stored.headers);
    let (content_len, selected) = if let [part] = parts {
        fields.insert(CONTENT_RANGE, ascii(content_range(part, length)));
        (part.end - part.start, Selected::Part(part.clone()))
    } else {
        let media_type = stored.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let multipart = Multipart::new(parts, media_type, length);
        let content_len = multipart.content_len();
        fields.insert(CONTENT_TYPE, ascii(multipart.media_type));
        (content_len, Selected::Parts(multipart.parts, multipart.end))
    };
    fields.insert(CONTENT_LENGTH, HeaderValue::from(content_len));
    Answer { head: head(StatusCode::PARTIAL_CONTENT, fields), selected }
}

/// 416, with the length (RFC 9110, section 15.5.17), and without the fields that describe or cache the stored content.
fn unsatisfiable(stored: &StoredResponse) -> Answer {
    let mut fields = HeaderMap::with_capacity(6);
    for name in [DATE, ETAG, ACCEPT_RANGES] {
        if let Some(value) = stored.headers.get(&name) {
            fields.insert(name, value.clone());
        }
    }
    fields.insert(CONTENT_RANGE, ascii(unsatisfied_range(stored.content.len())));
    fields.insert(CONTENT_LENGTH, HeaderValue::from(0));
    Answer { head: head(StatusCode::RANGE_NOT_SATISFIABLE, fields), selected: Selected::Nothing }
}

/// The fields, with room for those that are added. A clone has no room: it would grow and be hashed again.
fn copied(stored: &HeaderMap) -> HeaderMap {
    let mut fields = HeaderMap::with_capacity(stored.len() + ADDED_MAX);
    for (name, value) in stored {
        fields.append(name, value.clone());
    }
    fields
}

fn head(status: StatusCode, headers: HeaderMap) -> response::Parts {
    let mut head = Response::new(()).into_parts().0;
    head.status = status;
    head.headers = headers;
    head
}

fn ascii(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("numbers and constants are valid")
}

#[cfg(test)]
mod tests;
