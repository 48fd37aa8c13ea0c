#![allow(clippy::unwrap_used)]

use std::time::Duration;

use http::header::{AGE, CACHE_CONTROL, CONTENT_TYPE, EXPIRES, SET_COOKIE};
use proptest::prelude::*;

use super::*;
use crate::testing::{Fields, date as http_date, get, now, received, request, response, rules, stored};

const MAX_AGE: (&str, &str) = ("cache-control", "max-age=60");
const TAG: (&str, &str) = ("etag", "\"a\"");
const WEAK: (&str, &str) = ("etag", "W/\"a\"");

/// The stored fields after a 304 that arrives 100 s later.
fn update(stored: &StoredResponse, fields: Fields<'_>) -> Option<StoredResponse> {
    let later = now() + Duration::from_secs(100);
    let received = Received { requested: later, responded: later };
    updated(stored, &get(&[]), &response(304, fields), received, &rules())
}

/// RFC 9111, section 4.3.2: the cache evaluates the conditions of clients itself.
#[test]
fn requests_that_fill() {
    let fields = [
        ("if-none-match", "\"x\""),
        ("if-modified-since", "x"),
        ("if-range", "\"x\""),
        ("range", "bytes=0-1"),
        ("cache-control", "max-age=0"),
        ("cookie", "a=b"),
    ];
    let names = |whole_on_range| {
        let mut request = request("HEAD", &fields);
        fill_request(&mut request, &Rules { whole_on_range, ..rules() });
        assert_eq!(request.method, "HEAD");
        let mut names: Vec<_> = request.headers.keys().map(ToString::to_string).collect();
        names.sort();
        names
    };
    assert_eq!(names(true), ["cache-control", "cookie"]);
    assert_eq!(names(false), ["cache-control", "cookie", "range"]);
}

/// RFC 9111, section 4.3.1.
#[test]
fn requests_that_validate() {
    let modified = &http_date(-9)[..];
    for (fields, tag, date) in [
        (&[MAX_AGE, TAG][..], Some("\"a\""), None),
        (&[MAX_AGE, WEAK], Some("W/\"a\""), None),
        (&[MAX_AGE, ("last-modified", modified)], None, Some(modified)),
        (&[MAX_AGE, TAG, ("last-modified", modified)], Some("\"a\""), Some(modified)),
        (&[MAX_AGE], None, None),
        (&[MAX_AGE, ("etag", "a"), ("last-modified", "x")], None, None),
    ] {
        let mut request = get(&[("if-none-match", "\"old\""), ("if-modified-since", "x"), ("accept", "text/*")]);
        let has_validator = validation_request(&mut request, &stored(200, fields, ""), &rules());
        let value = |name| request.headers.get(name).map(|value| value.to_str().unwrap());
        assert_eq!((value(IF_NONE_MATCH), value(IF_MODIFIED_SINCE)), (tag, date), "{fields:?}");
        assert_eq!(has_validator, tag.is_some() || date.is_some());
        assert!(request.headers.contains_key("accept"));
    }
}

/// RFC 9111, section 4.3.4.
#[test]
fn responses_that_a_304_identifies() {
    let (modified, other) = (&http_date(-9)[..], &http_date(-8)[..]);
    let dated = ("last-modified", modified);
    for (old, new, is_identified) in [
        (&[TAG][..], &[TAG][..], true),
        (&[TAG], &[("etag", "\"b\"")], false),
        (&[WEAK], &[TAG], false),
        (&[WEAK], &[WEAK], true),
        (&[TAG], &[WEAK], true),
        (&[TAG], &[("etag", "W/\"b\"")], false),
        (&[dated], &[TAG], false),
        (&[dated], &[dated], true),
        (&[dated], &[("last-modified", other)], false),
        (&[TAG], &[dated], false),
        (&[TAG, dated], &[dated], true),
        (&[TAG, dated], &[TAG, ("last-modified", other)], true),
        (&[TAG], &[], true),
        (&[dated], &[], true),
        (&[("etag", "a"), dated], &[("etag", "a")], true),
        (&[("etag", "a"), dated], &[("etag", "b")], false),
    ] {
        let old: Vec<_> = old.iter().copied().chain([MAX_AGE]).collect();
        assert_eq!(update(&stored(200, &old, ""), new).is_some(), is_identified, "{old:?} {new:?}");
    }
}

/// RFC 9111, section 3.2.
#[test]
fn fields_that_a_304_replaces() {
    let old = [
        TAG,
        MAX_AGE,
        ("date", &http_date(0)),
        ("kept", "1"),
        ("changed", "1"),
        ("changed", "2"),
        ("content-type", "text/plain"),
        ("content-encoding", "gzip"),
        ("cache-groups", "\"one\""),
    ];
    let new = [
        TAG,
        ("cache-control", "max-age=3600"),
        ("expires", "0"),
        ("changed", "3"),
        ("changed", "4"),
        ("added", "1"),
        ("content-type", "text/html"),
        ("content-encoding", "br"),
        ("content-length", "7"),
        ("content-range", "bytes 0-0/1"),
        ("connection", "x"),
        ("x", "1"),
        ("transfer-encoding", "chunked"),
        ("proxy-authenticate", "x"),
        ("age", "5"),
        ("cache-groups", "\"two\""),
    ];
    let stored = stored(200, &old, "abc");
    let updated = update(&stored, &new).unwrap();
    let fields = &updated.headers;
    let all = |name: &str| fields.get_all(name).iter().map(|value| value.to_str().unwrap()).collect::<Vec<_>>();
    for (name, expected) in [
        ("etag", &["\"a\""][..]),
        ("cache-control", &["max-age=3600"]),
        ("expires", &["0"]),
        ("date", &[&http_date(100)]),
        ("kept", &["1"]),
        ("changed", &["3", "4"]),
        ("added", &["1"]),
        ("content-type", &["text/html"]),
        ("content-encoding", &["gzip"]),
        ("content-length", &[]),
        ("content-range", &[]),
        ("connection", &[]),
        ("x", &[]),
        ("transfer-encoding", &[]),
        ("proxy-authenticate", &[]),
        ("age", &[]),
        ("cache-groups", &["\"two\""]),
    ] {
        assert_eq!(all(name), expected, "{name}");
    }
    assert_eq!((updated.status, &updated.url, &updated.content), (stored.status, &stored.url, &stored.content));
    assert_eq!((updated.terms.lifetime_ms, updated.terms.initial_age_ms), (3_600_000, 5_000));
    assert_eq!(updated.terms.received_ms, stored.terms.received_ms + 100_000);
    assert_eq!(updated.groups, ["two".into()]);
    assert_eq!(updated.purges.into_inner(), 7);
}

/// The age is that of the 304, and freshness is calculated again (RFC 9111, sections 4.2.3 and 4.3.4).
#[test]
fn a_304_makes_the_response_fresh() {
    let stored = stored(200, &[TAG, MAX_AGE, ("date", &http_date(0))], "");
    let without_fields = update(&stored, &[]).unwrap();
    assert_eq!((without_fields.terms.lifetime_ms, without_fields.terms.initial_age_ms), (60_000, 0));
    let dated = update(&stored, &[("date", &http_date(70))]).unwrap();
    assert_eq!(dated.terms.initial_age_ms, 30_000);
    let expired = update(&stored, &[("cache-control", "max-age=0")]).unwrap();
    assert_eq!(expired.terms.lifetime_ms, 0);
}

#[test]
fn a_304_can_forbid_storing() {
    let stored = stored(200, &[TAG, MAX_AGE, ("vary", "a")], "");
    for (new, is_stored) in [
        (&[][..], true),
        (&[("vary", "A")], true),
        (&[("vary", "a, b")], false),
        (&[("vary", "*")], false),
        (&[("set-cookie", "a=b")], false),
        (&[("cache-control", "private")], false),
        (&[("cache-control", "no-store")], false),
    ] {
        assert_eq!(update(&stored, new).is_some(), is_stored, "{new:?}");
    }
    for (asked, is_stored) in
        [(&[("authorization", "x")], false), (&[("cache-control", "no-store")], false), (&[("a", "b")], true)]
    {
        let updated = updated(&stored, &get(asked), &response(304, &[]), received(), &rules());
        assert_eq!(updated.is_some(), is_stored, "{asked:?}");
    }
}

/// RFC 9111, sections 5.2.2.4 and 5.2.2.7, in a 304.
#[test]
fn a_304_can_withhold_fields() {
    let stored = stored(200, &[TAG, MAX_AGE, ("a", "1"), ("b", "1")], "");
    let updated = update(&stored, &[("cache-control", "max-age=1, private=\"a, set-cookie\""), ("set-cookie", "c=d")]);
    let fields = updated.unwrap().headers;
    assert!(!fields.contains_key("a") && fields.contains_key("b") && !fields.contains_key(SET_COOKIE));
}

/// RFC 9111, section 4.3.5.
#[test]
fn responses_to_head() {
    let stored = stored(200, &[TAG, MAX_AGE, ("a", "1"), ("content-type", "text/plain")], "abc");
    let head = |status, fields: Fields<'_>| {
        updated_by_head(&stored, &request("HEAD", &[]), &response(status, fields), received(), &rules())
    };
    for (name, status, fields, expected) in [
        ("same", 200, &[TAG, ("content-length", "3")][..], "updated"),
        ("no validator", 200, &[], "updated"),
        ("another length", 200, &[TAG, ("content-length", "4")], "outdated"),
        ("a malformed length", 200, &[TAG, ("content-length", "x")], "outdated"),
        ("another tag", 200, &[("etag", "\"b\"")], "outdated"),
        ("a date", 200, &[TAG, ("last-modified", &http_date(-1))], "outdated"),
        ("private now", 200, &[TAG, ("cache-control", "private")], "outdated"),
        ("another status", 410, &[TAG], "nothing"),
        ("304", 304, &[TAG], "nothing"),
    ] {
        let result = match head(status, fields) {
            HeadUpdate::Updated(_) => "updated",
            HeadUpdate::Outdated => "outdated",
            HeadUpdate::Nothing => "nothing",
        };
        assert_eq!(result, expected, "{name}");
    }
    let HeadUpdate::Updated(updated) = head(200, &[TAG, ("a", "2"), ("cache-control", "max-age=1000")]) else {
        panic!("not updated");
    };
    assert_eq!(updated.headers["a"], "2");
    assert_eq!(updated.headers[CONTENT_TYPE], "text/plain");
    assert_eq!(updated.terms.lifetime_ms, 1_000_000);
}

proptest! {
    #[test]
    fn any_304_is_read(
        names in prop::collection::vec(
            prop::sample::select(vec!["etag", "last-modified", "date", "cache-control", "vary", "age", "connection"]),
            0..5,
        ),
        values in prop::collection::vec("[ -~]{0,20}", 5),
    ) {
        let fields: Vec<_> = names.iter().zip(&values).map(|(name, value)| (*name, &value[..])).collect();
        let stored = stored(200, &[TAG, MAX_AGE], "");
        if let Some(updated) = update(&stored, &fields) {
            prop_assert!(!updated.headers.contains_key(AGE) && !updated.headers.contains_key("connection"));
            prop_assert!(updated.headers.contains_key(DATE));
            prop_assert!(updated.headers.contains_key(CACHE_CONTROL) && !updated.headers.contains_key(EXPIRES));
        }
    }
}
