#![allow(clippy::unwrap_used)]

use http::{HeaderName, Method};

use super::*;
use crate::{Equality, Transfer, TransferConditions};

const TAG: (&str, &str) = ("etag", "\"a\"");

fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    headers
}

/// The rest of 1000 bytes, of which 100 are delivered and 10 repeated.
fn continuation(equality: Equality, validators: &[(&str, &str)]) -> Continuation {
    let response = headers(&[validators, &[("content-length", "1000")]].concat());
    let conditions = TransferConditions { overlap: 10, equality };
    let mut transfer = Transfer::of(&Method::GET, &HeaderMap::new(), StatusCode::OK, &response, &conditions).unwrap();
    transfer.delivered(&[0; 100]).unwrap();
    transfer.continuation(100).unwrap()
}

fn asked(continuation: &Continuation) -> Vec<String> {
    let mut head = headers(&[
        ("host", "a"),
        ("cookie", "c"),
        ("range", "bytes=0-"),
        ("if-range", "\"old\""),
        ("if-match", "*"),
        ("if-none-match", "\"old\""),
        ("if-modified-since", "Sun, 22 Nov 2026 12:00:00 GMT"),
        ("if-unmodified-since", "Sun, 22 Nov 2026 12:00:00 GMT"),
        ("accept-encoding", "gzip"),
        ("accept-encoding", "br"),
    ]);
    continuation.request(&mut head);
    let mut lines: Vec<_> = head.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    lines.sort();
    lines
}

fn answered(status: u16, fields: &[(&str, &str)]) -> Result<(), Refusal> {
    let status = StatusCode::from_u16(status).unwrap();
    continuation(Equality::Proven, &[TAG]).accept(status, &headers(fields)).map(drop)
}

#[test]
fn the_rest_is_asked_for() {
    let plain = ["accept-encoding: identity", "cookie: c", "host: a", "range: bytes=90-999"];
    let mut guarded = plain.to_vec();
    guarded.insert(3, "if-range: \"a\"");
    assert_eq!(asked(&continuation(Equality::Proven, &[TAG])), guarded);
    let declared = Equality::Declared { compared_min: 5 };
    assert_eq!(asked(&continuation(declared, &[TAG])), plain, "another tag is no reason to refuse");
}

#[test]
fn the_rest_is_accepted() {
    let range = ("content-range", "bytes 90-999/1000");
    for more in [&[][..], &[("content-length", "910")], &[("content-encoding", "identity")]] {
        assert_eq!(answered(206, &[&[TAG, range], more].concat()), Ok(()), "{more:?}");
    }
    let declared = continuation(Equality::Declared { compared_min: 5 }, &[]);
    declared.accept(StatusCode::PARTIAL_CONTENT, &headers(&[range, ("etag", "\"b\"")])).unwrap();
}

#[test]
fn whatever_is_not_the_rest_is_refused() {
    let range = ("content-range", "bytes 90-999/1000");
    for (fields, expected) in [
        (&[TAG][..], Refusal::Range),
        (&[TAG, range, range], Refusal::Range),
        (&[TAG, ("content-range", "bytes 0-999/1000")], Refusal::Range),
        (&[TAG, ("content-range", "bytes 100-999/1000")], Refusal::Range),
        (&[TAG, ("content-range", "bytes 90-500/1000")], Refusal::Range),
        (&[TAG, ("content-range", "bytes 90-999")], Refusal::Range),
        (&[TAG, ("content-range", "bytes 90-999/1001")], Refusal::Total),
        (&[TAG, ("content-range", "bytes 90-999/*")], Refusal::Total),
        (&[TAG, range, ("content-length", "909")], Refusal::Length),
        (&[TAG, range, ("content-length", "910"), ("content-length", "910")], Refusal::Length),
        (&[TAG, range, ("content-encoding", "gzip")], Refusal::Coded),
        (&[TAG, range, ("content-type", "multipart/byteranges; boundary=b")], Refusal::Multipart),
        (&[range], Refusal::MissingValidator),
        (&[range, TAG, TAG], Refusal::MissingValidator),
        (&[range, ("etag", "\"b\"")], Refusal::Validator),
        (&[range, ("etag", "W/\"a\"")], Refusal::Validator),
    ] {
        assert_eq!(answered(206, fields), Err(expected), "{fields:?}");
    }
}

#[test]
fn only_partial_content_is_accepted() {
    let whole = [TAG, ("content-range", "bytes 90-999/1000")];
    for (status, expected) in [
        (200, Refusal::Whole),
        (204, Refusal::Status(StatusCode::NO_CONTENT)),
        (302, Refusal::Redirect),
        (304, Refusal::Status(StatusCode::NOT_MODIFIED)),
        (401, Refusal::Unauthorized),
        (403, Refusal::Unauthorized),
        (404, Refusal::NotFound),
        (407, Refusal::Unauthorized),
        (416, Refusal::NotSatisfiable),
        (503, Refusal::Status(StatusCode::SERVICE_UNAVAILABLE)),
    ] {
        assert_eq!(answered(status, &whole), Err(expected), "{status}");
    }
}
