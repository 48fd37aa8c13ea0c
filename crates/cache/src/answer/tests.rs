#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::status::Forwarded;
use crate::testing::{date as http_date, get, request, stored};

const MAX_AGE: (&str, &str) = ("cache-control", "max-age=60");
const TAG: (&str, &str) = ("etag", "\"a\"");

fn answered(stored: &StoredResponse, request: &request::Parts) -> Answer {
    answer(stored, request, Duration::from_millis(2_999), &CacheStatus::default())
}

fn all<'a>(answer: &'a Answer, name: &str) -> Vec<&'a str> {
    answer.head.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
}

fn parts_len(parts: &[(String, Range<u64>)], end: &str) -> u64 {
    let parts: u64 = parts.iter().map(|(text, part)| text.len() as u64 + part.end - part.start).sum();
    parts + end.len() as u64
}

/// RFC 9111, sections 4 and 5.1; RFC 9211, section 2.
#[test]
fn a_whole_response() {
    let fields =
        [MAX_AGE, TAG, ("content-type", "text/plain"), ("cache-status", "origin; hit"), ("date", &http_date(-1))];
    let stored = stored(200, &fields, "abc");
    let answer = answered(&stored, &get(&[("accept", "*/*")]));
    assert_eq!(answer.head.status, 200);
    assert_eq!(answer.selected, Selected::Part(0..3));
    for (name, expected) in [
        ("age", &["2"][..]),
        ("content-length", &["3"]),
        ("cache-status", &["origin; hit", "watari; hit"]),
        ("content-type", &["text/plain"]),
        ("date", &[&http_date(-1)]),
    ] {
        assert_eq!(all(&answer, name), expected, "{name}");
    }
    let status = CacheStatus { forwarded: Some(Forwarded::Stale), ..CacheStatus::default() };
    let answer = super::answer(&stored, &get(&[]), Duration::MAX, &status);
    assert_eq!(all(&answer, "cache-status")[1], "watari; fwd=stale");
    assert_eq!(all(&answer, "age"), ["2147483648"]);
}

/// RFC 9110, section 9.3.2.
#[test]
fn head_has_no_content() {
    let stored = stored(200, &[MAX_AGE, TAG], "abc");
    let answer = answered(&stored, &request("HEAD", &[("range", "bytes=0-1")]));
    assert_eq!((answer.head.status.as_u16(), answer.selected), (200, Selected::Nothing));
    assert_eq!(answer.head.headers[CONTENT_LENGTH], "3");
    let answer = answered(&stored, &request("HEAD", &[("if-none-match", "\"a\"")]));
    assert_eq!(answer.head.status, 304);
}

/// RFC 9110, section 8.6.
#[test]
fn no_content_has_no_length() {
    let answer = answered(&stored(204, &[MAX_AGE], ""), &get(&[]));
    assert!(!answer.head.headers.contains_key(CONTENT_LENGTH));
}

/// RFC 9111, section 4.3.2; RFC 9110, section 13.1.
#[test]
fn conditions() {
    let (date, before, after) = (&http_date(-3000)[..], &http_date(-3001)[..], &http_date(-2000)[..]);
    let dated = ("last-modified", date);
    let sent = ("date", &http_date(-3000)[..]);
    for (status, fields, asked, expected) in [
        (200, &[TAG][..], &[("if-none-match", "\"a\"")][..], 304),
        (200, &[TAG], &[("if-none-match", "W/\"a\"")], 304),
        (200, &[TAG], &[("if-none-match", "\"x\", \"a\", \"y\"")], 304),
        (200, &[TAG], &[("if-none-match", "*")], 304),
        (200, &[TAG], &[("if-none-match", "\"b\"")], 200),
        (200, &[TAG], &[("if-none-match", "a")], 200),
        (200, &[("etag", "W/\"a\"")], &[("if-none-match", "W/\"a\"")], 304),
        (200, &[TAG, dated], &[("if-none-match", "\"a\""), ("if-modified-since", before)], 304),
        (200, &[TAG, dated], &[("if-none-match", "\"b\""), ("if-modified-since", after)], 200),
        (200, &[dated], &[("if-modified-since", date)], 304),
        (200, &[dated], &[("if-modified-since", after)], 304),
        (200, &[dated], &[("if-modified-since", before)], 200),
        (200, &[dated], &[("if-modified-since", "x")], 200),
        (200, &[sent], &[("if-modified-since", date)], 304),
        (200, &[sent], &[("if-modified-since", before)], 200),
        (404, &[TAG], &[("if-none-match", "\"a\"")], 404),
        (301, &[TAG], &[("if-none-match", "*")], 301),
    ] {
        let fields: Vec<_> = fields.iter().copied().chain([("cache-control", "max-age=100000")]).collect();
        let answer = answered(&stored(status, &fields, "abc"), &get(asked));
        assert_eq!(answer.head.status, expected, "{fields:?} {asked:?}");
        let selected = if expected == 304 { Selected::Nothing } else { Selected::Part(0..3) };
        assert_eq!(answer.selected, selected);
    }
}

/// RFC 9110, section 15.4.5.
#[test]
fn fields_of_a_304() {
    let fields = [
        MAX_AGE,
        TAG,
        ("content-location", "/x"),
        ("date", &http_date(0)),
        ("vary", "accept"),
        ("expires", "0"),
        ("last-modified", &http_date(-9)),
        ("content-type", "text/plain"),
        ("content-encoding", "gzip"),
        ("content-language", "en"),
        ("accept-ranges", "bytes"),
        ("content-security-policy", "default-src 'self'"),
    ];
    let answer = answered(&stored(200, &fields, "abc"), &get(&[("if-none-match", "*")]));
    let mut names: Vec<_> = answer.head.headers.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    let expected = [
        "age",
        "cache-control",
        "cache-status",
        "content-location",
        "content-security-policy",
        "date",
        "etag",
        "expires",
        "vary",
    ];
    assert_eq!(names, expected);
    let dated = [MAX_AGE, ("last-modified", &http_date(-9)[..])];
    let answer = answered(&stored(200, &dated, "abc"), &get(&[("if-modified-since", &http_date(0))]));
    assert!(answer.head.headers.contains_key(LAST_MODIFIED));
}

/// RFC 9110, sections 14.2 and 15.3.7.
#[test]
fn ranges() {
    let stored = stored(200, &[MAX_AGE, TAG, ("content-type", "text/plain")], "0123456789");
    for (range, expected, content_range) in [
        ("bytes=0-1", Some(0..2), "bytes 0-1/10"),
        ("bytes=4-", Some(4..10), "bytes 4-9/10"),
        ("bytes=-1", Some(9..10), "bytes 9-9/10"),
        ("bytes=0-0,2-3", Some(0..4), "bytes 0-3/10"),
        ("lines=0-1", None, ""),
        ("bytes=x", None, ""),
    ] {
        let answer = answered(&stored, &get(&[("range", range)]));
        let Some(part) = expected else {
            assert_eq!((answer.head.status.as_u16(), answer.selected), (200, Selected::Part(0..10)), "{range}");
            continue;
        };
        assert_eq!(answer.head.status, 206, "{range}");
        assert_eq!(all(&answer, "content-range"), [content_range]);
        assert_eq!(all(&answer, "content-length"), [(part.end - part.start).to_string()]);
        assert_eq!(all(&answer, "content-type"), ["text/plain"]);
        assert_eq!(all(&answer, "etag"), ["\"a\""]);
        assert_eq!(answer.selected, Selected::Part(part));
    }
}

/// RFC 9110, section 15.5.17.
#[test]
fn unsatisfiable_ranges() {
    let answer = answered(&stored(200, &[MAX_AGE, TAG], "0123456789"), &get(&[("range", "bytes=10-")]));
    assert_eq!((answer.head.status.as_u16(), &answer.selected), (416, &Selected::Nothing));
    assert_eq!(all(&answer, "content-range"), ["bytes */10"]);
    assert_eq!(all(&answer, "content-length"), ["0"]);
    assert!(all(&answer, "cache-control").is_empty());
}

/// RFC 9110, section 14.6.
#[test]
fn several_ranges() {
    let content = "x".repeat(1000).leak();
    let stored = stored(200, &[MAX_AGE, TAG, ("content-type", "text/plain")], content);
    let answer = answered(&stored, &get(&[("range", "bytes=0-1,500-509")]));
    let media_type = answer.head.headers[CONTENT_TYPE].to_str().unwrap();
    assert!(media_type.starts_with("multipart/byteranges; boundary="), "{media_type}");
    assert!(!answer.head.headers.contains_key(CONTENT_RANGE));
    let Selected::Parts(parts, end) = &answer.selected else { panic!("{:?}", answer.selected) };
    assert_eq!([parts[0].1.clone(), parts[1].1.clone()], [0..2, 500..510]);
    assert_eq!(all(&answer, "content-length"), [parts_len(parts, end).to_string()]);
}

/// RFC 9110, section 13.1.5; only a stored 200 has ranges.
#[test]
fn ranges_that_do_not_apply() {
    let (date, later) = (&http_date(-9)[..], &http_date(0)[..]);
    for (status, fields, asked, expected) in [
        (200, &[TAG][..], &[("if-range", "\"a\"")][..], 206),
        (200, &[TAG], &[("if-range", "\"b\"")], 200),
        (200, &[("etag", "W/\"a\"")], &[("if-range", "W/\"a\"")], 200),
        (200, &[("last-modified", date), ("date", later)], &[("if-range", date)], 206),
        (200, &[("last-modified", date), ("date", date)], &[("if-range", date)], 200),
        (200, &[("last-modified", date), ("date", later)], &[("if-range", later)], 200),
        (200, &[("date", date)], &[("if-range", date)], 200),
        (200, &[], &[("if-range", "x")], 200),
        (200, &[], &[("range", "bytes=0-0")], 200),
        (200, &[TAG], &[("if-none-match", "\"a\"")], 304),
        (404, &[TAG], &[], 404),
        (203, &[TAG], &[], 203),
    ] {
        let fields: Vec<_> = fields.iter().copied().chain([MAX_AGE]).collect();
        let asked: Vec<_> = asked.iter().copied().chain([("range", "bytes=0-0")]).collect();
        let answer = answered(&stored(status, &fields, "abc"), &get(&asked));
        assert_eq!(answer.head.status, expected, "{fields:?} {asked:?}");
    }
}

proptest! {
    #[test]
    fn any_request_is_answered(
        asked in prop::collection::vec(
            (
                prop::sample::select(vec!["range", "if-range", "if-none-match", "if-modified-since"]),
                prop_oneof!["[ -~]{0,30}", "bytes=([0-9]{0,2}-[0-9]{0,2},?){1,4}", "W?/?\"[ab]\"|\\*"],
            ),
            0..4,
        ),
        is_head in any::<bool>(),
    ) {
        let asked: Vec<_> = asked.iter().map(|(name, value)| (*name, &value[..])).collect();
        let stored = stored(200, &[MAX_AGE, TAG], "0123456789");
        let answer = answered(&stored, &request(if is_head { "HEAD" } else { "GET" }, &asked));
        let len = match &answer.selected {
            Selected::Nothing => 0,
            Selected::Part(part) => {
                prop_assert!(part.start < part.end && part.end <= 10);
                part.end - part.start
            }
            Selected::Parts(parts, end) => {
                parts_len(parts, end)
            }
        };
        prop_assert!(is_head || answer.head.status == 304 || all(&answer, "content-length") == [len.to_string()]);
        prop_assert_eq!(all(&answer, "cache-status"), ["watari; hit"]);
    }
}
