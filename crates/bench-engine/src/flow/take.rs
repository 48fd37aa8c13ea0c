//! Takes values from responses.

use std::cell::OnceCell;
use std::str::Utf8Error;

use http::{HeaderMap, HeaderName, header};
use regex::bytes::{Regex, RegexBuilder};
use serde_json::Value;

/// A complete response, as far as a flow uses it.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    pub status: u16,
    pub headers: &'a HeaderMap,
    /// The body, or its first [`BODY_LOOKED_AT`](super::definition::BODY_LOOKED_AT) bytes.
    pub body: &'a [u8],
}

/// The place of a value in a response.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// The first header field of this name.
    Header(HeaderName),
    /// The cookie of this name that the response sets.
    Cookie(String),
    /// The first group of the pattern, matched in the body.
    Pattern(Regex),
    /// The target of the JSON pointer (RFC 6901) in the body.
    Pointer(String),
}

/// A source that no response can satisfy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// Not a name of a header field.
    #[error("\"{0}\" is not the name of a header field")]
    Header(String),
    /// Not a regular expression, or too large a one.
    #[error("this is not a regular expression: {0}")]
    Pattern(String),
    /// A pattern without a group.
    #[error("a pattern needs a group, \"(...)\", which is what is taken")]
    NoGroup,
    /// Not a JSON pointer.
    #[error("\"{0}\" is not a JSON pointer such as /items/0/id")]
    Pointer(String),
}

/// Why a response does not have a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// The field, cookie, match or target does not exist.
    #[error("the response does not contain it")]
    Absent,
    /// The value is not UTF-8 text.
    #[error("it is not UTF-8")]
    NoText,
    /// The value is longer than `VALUE_MAX` bytes.
    #[error("it is longer than {VALUE_MAX} bytes")]
    TooLong,
    /// The body is not JSON, or is longer than the part that is searched.
    #[error("the body is not JSON, or too large")]
    NoJson,
}

impl Source {
    pub(super) fn header(name: &str) -> Result<Self, SourceError> {
        name.parse().map(Self::Header).map_err(|_| SourceError::Header(name.to_owned()))
    }

    pub(super) fn pattern(pattern: &str) -> Result<Self, SourceError> {
        let built = RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).build();
        let regex = built.map_err(|error| SourceError::Pattern(last_line(&error)))?;
        if regex.captures_len() < 2 { Err(SourceError::NoGroup) } else { Ok(Self::Pattern(regex)) }
    }

    pub(super) fn pointer(pointer: &str) -> Result<Self, SourceError> {
        let escapes_whole = pointer.split('~').skip(1).all(|after| after.starts_with(['0', '1']));
        if (pointer.is_empty() || pointer.starts_with('/')) && escapes_whole {
            Ok(Self::Pointer(pointer.to_owned()))
        } else {
            Err(SourceError::Pointer(pointer.to_owned()))
        }
    }

    /// Whether the value is in the body.
    pub(super) fn is_in_body(&self) -> bool {
        matches!(self, Self::Pattern(_) | Self::Pointer(_))
    }
}

/// A response to take values from. It parses the body as JSON at most once.
pub(super) struct Reading<'a> {
    answer: Answer<'a>,
    json: OnceCell<Option<Value>>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(answer: Answer<'a>) -> Self {
        Self { answer, json: OnceCell::new() }
    }

    /// The value at `source`.
    pub(super) fn take(&self, source: &Source) -> Result<String, Missing> {
        match source {
            Source::Header(name) => text(self.answer.headers.get(name).map(http::HeaderValue::as_bytes)),
            Source::Cookie(name) => text(self.cookie(name.as_bytes())),
            Source::Pattern(regex) => {
                let groups = regex.captures(self.answer.body);
                text(groups.as_ref().and_then(|groups| groups.get(1)).map(|group| group.as_bytes()))
            }
            Source::Pointer(pointer) => self.pointed_at(pointer),
        }
    }

    /// The last cookie of this name, which is the one that a client keeps (RFC 6265, section 5.3).
    fn cookie(&self, name: &[u8]) -> Option<&'a [u8]> {
        let lines = self.answer.headers.get_all(header::SET_COOKIE).into_iter();
        lines.filter_map(|line| cookie_pair(line.as_bytes())).rfind(|(key, _)| *key == name).map(|(_, value)| value)
    }

    fn pointed_at(&self, pointer: &str) -> Result<String, Missing> {
        let json = self.json.get_or_init(|| serde_json::from_slice(self.answer.body).ok());
        match json.as_ref().ok_or(Missing::NoJson)?.pointer(pointer) {
            None | Some(Value::Null) => Err(Missing::Absent),
            Some(Value::String(string)) => bounded(string),
            Some(other) => bounded(&other.to_string()),
        }
    }
}

/// Name and value of a `Set-Cookie` field (RFC 6265, section 5.2).
fn cookie_pair(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let pair = line.split(|byte| *byte == b';').next()?;
    let equals = pair.iter().position(|byte| *byte == b'=')?;
    Some((pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii()))
}

fn text(bytes: Option<&[u8]>) -> Result<String, Missing> {
    let bytes = bytes.ok_or(Missing::Absent)?;
    bounded(str::from_utf8(bytes).map_err(|_: Utf8Error| Missing::NoText)?)
}

fn bounded(text: &str) -> Result<String, Missing> {
    if text.len() > VALUE_MAX { Err(Missing::TooLong) } else { Ok(text.to_owned()) }
}

/// The last line of the crate's message. The lines before it mark a place in the pattern, which does not fit one
/// sentence.
fn last_line(error: &regex::Error) -> String {
    let text = error.to_string();
    let line = text.lines().last().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// Longest value in bytes. Tokens, addresses and identifiers are far shorter.
const VALUE_MAX: usize = 8192;
/// Memory limit of a compiled pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn take(source: &Source, headers: &[(&'static str, &[u8])], body: &[u8]) -> Result<String, Missing> {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), http::HeaderValue::from_bytes(value).unwrap()))
            .collect();
        Reading::new(Answer { status: 200, headers: &headers, body }).take(source)
    }

    const ABSENT: Result<&str, Missing> = Err(Missing::Absent);

    fn check(taken: &Result<String, Missing>, expected: &Result<&str, Missing>) {
        assert_eq!(taken.as_deref(), expected.as_deref());
    }

    #[test]
    fn a_header_field_is_taken() {
        let location = Source::header("Location").unwrap();
        check(&take(&location, &[("location", b"/next")], b""), &Ok("/next"));
        check(&take(&location, &[("etag", b"/next")], b""), &ABSENT);
        assert_eq!(take(&location, &[("location", b"/\xff")], b""), Err(Missing::NoText));
    }

    #[test]
    fn a_cookie_is_taken() {
        let session = Source::Cookie("sid".to_owned());
        let lines: [(_, &[u8]); 3] =
            [("set-cookie", b"sid=old"), ("set-cookie", b"sid = a=b ; Path=/"), ("set-cookie", b"other=1; sid=no")];
        check(&take(&session, &lines, b""), &Ok("a=b"));
        check(&take(&session, &[("set-cookie", b"SID=1"), ("set-cookie", b"sid")], b""), &ABSENT);
    }

    #[test]
    fn a_pattern_takes_its_group() {
        let token = Source::pattern(r#"name="csrf" value="([^"]*)""#).unwrap();
        check(&take(&token, &[], b"\xff<input name=\"csrf\" value=\"x1\">"), &Ok("x1"));
        check(&take(&token, &[], b"<input name=\"csrf\">"), &ABSENT);
        let optional = Source::pattern("a(b)?").unwrap();
        check(&take(&optional, &[], b"a"), &ABSENT);
    }

    #[test]
    fn a_pointer_takes_what_it_points_at() {
        let body = br#"{"a/b":[{"id":17},"text",true,null,{"x":1}]}"#;
        let at = |pointer: &str| take(&Source::pointer(pointer).unwrap(), &[], body);
        check(&at("/a~1b/0/id"), &Ok("17"));
        check(&at("/a~1b/1"), &Ok("text"));
        check(&at("/a~1b/2"), &Ok("true"));
        check(&at("/a~1b/3"), &ABSENT);
        check(&at("/a~1b/4"), &Ok(r#"{"x":1}"#));
        check(&at("/a~1b/5"), &ABSENT);
        assert_eq!(take(&Source::pointer("/a").unwrap(), &[], b"{"), Err(Missing::NoJson));
    }

    #[test]
    fn values_are_bounded() {
        let all = Source::pattern("(?s)(.*)").unwrap();
        assert!(take(&all, &[], &vec![b'x'; VALUE_MAX]).is_ok());
        assert_eq!(take(&all, &[], &vec![b'x'; VALUE_MAX + 1]), Err(Missing::TooLong));
    }

    #[test]
    fn what_cannot_be_taken_is_refused() {
        assert_eq!(Source::header("a b").unwrap_err(), SourceError::Header("a b".to_owned()));
        assert_eq!(Source::pattern("a(").unwrap_err(), SourceError::Pattern("unclosed group".to_owned()));
        assert_eq!(Source::pattern("a").unwrap_err(), SourceError::NoGroup);
        assert!(matches!(Source::pattern(r"(\w{1000}){100}").unwrap_err(), SourceError::Pattern(_)));
        for pointer in ["a", "a/b", "/~", "/~2", "/a~"] {
            assert_eq!(Source::pointer(pointer).unwrap_err(), SourceError::Pointer(pointer.to_owned()));
        }
    }

    proptest! {
        #[test]
        fn hostile_answers_do_not_panic(cookie in "[a-z=; \t\u{e9}]{0,20}", body: Vec<u8>) {
            let line: &[u8] = cookie.as_bytes();
            for source in [Source::Cookie("a".to_owned()), Source::pattern("(?s)(.+)").unwrap(), Source::Pointer("/0".to_owned())] {
                let _ = take(&source, &[("set-cookie", line)], &body);
            }
        }
    }
}
