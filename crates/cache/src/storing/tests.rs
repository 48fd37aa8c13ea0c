use proptest::prelude::*;

use super::*;
use crate::reuse::{Reuse, reuse};
use crate::testing::{Fields, date as http_date, get, now, received, request, response, rules};

fn judged(status: u16, fields: Fields<'_>) -> Result<Terms, NotStored> {
    judge(&get(&[]), &response(status, fields), received(), &rules()).map(|(terms, _)| terms)
}

/// The lifetime in seconds.
fn lifetime(status: u16, fields: Fields<'_>) -> Option<u64> {
    judged(status, fields).ok().map(|terms| terms.lifetime_ms / 1000)
}

const MAX_AGE: (&str, &str) = ("cache-control", "max-age=60");

/// RFC 9111, section 3.
#[test]
fn responses_that_are_not_stored() {
    let long = &"9".repeat(30)[..];
    for (name, status, fields, expected) in [
        ("no-store", 200, &[MAX_AGE, ("cache-control", "No-Store")][..], NotStored::NoStore),
        ("private", 200, &[MAX_AGE, ("cache-control", "private")], NotStored::Private),
        ("private, public", 200, &[MAX_AGE, ("cache-control", "public, private")], NotStored::Private),
        ("Set-Cookie", 200, &[MAX_AGE, ("set-cookie", "a=b")], NotStored::SetCookie),
        (
            "Set-Cookie, public",
            200,
            &[("cache-control", "public, s-maxage=9"), ("set-cookie", "")],
            NotStored::SetCookie,
        ),
        ("Set-Cookie, another field", 200, &[("cache-control", "no-cache=\"a\", max-age=1"), ("set-cookie", "a")], {
            NotStored::SetCookie
        }),
        ("Vary: *", 200, &[MAX_AGE, ("vary", "*")], NotStored::Vary(VaryError::Everything)),
        ("too long", 200, &[MAX_AGE, ("content-length", "1000001")], NotStored::TooLarge),
        ("length", 200, &[MAX_AGE, ("content-length", long)], NotStored::Malformed),
        ("lengths", 200, &[MAX_AGE, ("content-length", "1"), ("content-length", "2")], NotStored::Malformed),
        ("hidden Vary", 200, &[MAX_AGE, ("connection", "vary"), ("vary", "a")], NotStored::Malformed),
        ("withheld", 200, &[("cache-control", "private=\"cache-control\", max-age=1")], NotStored::Malformed),
        ("nothing stated", 200, &[], NotStored::NoFreshness),
        ("entity tag alone", 200, &[("etag", "\"a\"")], NotStored::NoFreshness),
        ("101", 101, &[MAX_AGE], NotStored::Status),
        ("103", 103, &[MAX_AGE], NotStored::Status),
        ("304", 304, &[MAX_AGE], NotStored::Status),
        ("401", 401, &[MAX_AGE], NotStored::Status),
        ("412", 412, &[MAX_AGE], NotStored::Status),
        ("416", 416, &[MAX_AGE], NotStored::Status),
        ("429", 429, &[MAX_AGE], NotStored::Status),
    ] {
        assert_eq!(judged(status, fields), Err(expected), "{name}");
    }
}

/// RFC 9111, section 3; RFC 9110, section 9.2.3.
#[test]
fn requests_whose_responses_are_not_stored() {
    for (method, fields, expected) in [
        ("POST", &[][..], NotStored::Method),
        ("HEAD", &[], NotStored::Method),
        ("get", &[], NotStored::Method),
        ("GET", &[("cache-control", "x, NO-STORE")], NotStored::RequestNoStore),
    ] {
        let judged = judge(&request(method, fields), &response(200, &[MAX_AGE]), received(), &rules());
        assert_eq!(judged, Err(expected), "{method} {fields:?}");
    }
}

/// RFC 9111, section 3.5.
#[test]
fn responses_to_requests_with_credentials() {
    for (cache_control, is_stored) in [
        ("max-age=60", false),
        ("max-age=60, proxy-revalidate", false),
        ("max-age=60, public", true),
        ("max-age=60, must-revalidate", true),
        ("s-maxage=60", true),
    ] {
        let request = get(&[("authorization", "Basic eDp5")]);
        let judged = judge(&request, &response(200, &[("cache-control", cache_control)]), received(), &rules());
        let error = if is_stored { None } else { Some(NotStored::Authorization) };
        assert_eq!(judged.err(), error, "{cache_control}");
    }
}

/// The response with a cookie is stored if the origin withholds the cookie (RFC 9111, sections 5.2.2.4 and 5.2.2.7).
#[test]
fn a_withheld_cookie_allows_storing() {
    for cache_control in ["max-age=60, no-cache=\"Set-Cookie\"", "max-age=60, private=\"a, set-cookie\""] {
        let fields = [("cache-control", cache_control), ("set-cookie", "a=b")];
        assert_eq!(lifetime(200, &fields), Some(60), "{cache_control}");
    }
}

/// RFC 9111, section 5.2.2.3.
#[test]
fn must_understand() {
    let fields = [("cache-control", "must-understand, no-store, max-age=60")];
    assert_eq!(lifetime(200, &fields), Some(60));
    assert_eq!(judged(299, &fields), Err(NotStored::Status));
    assert_eq!(lifetime(299, &[MAX_AGE]), Some(60));
    let private = [("cache-control", "must-understand, no-store, private, max-age=60")];
    assert_eq!(judged(200, &private), Err(NotStored::Private));
}

/// RFC 9111, section 4.2.1.
#[test]
fn stated_lifetimes() {
    let (now, hour, ago) = (&http_date(0)[..], &http_date(3600)[..], &http_date(-3600)[..]);
    let cdn = ("cdn-cache-control", "max-age=30");
    for (name, fields, expected) in [
        ("s-maxage is preferred", &[("cache-control", "max-age=60, s-maxage=1")][..], Some(1)),
        ("s-maxage is preferred", &[("cache-control", "s-maxage=60, max-age=1")], Some(60)),
        ("max-age, past Expires", &[MAX_AGE, ("expires", ago)], Some(60)),
        ("max-age, malformed Expires", &[MAX_AGE, ("expires", "0")], Some(60)),
        ("Expires", &[("expires", hour)], Some(3600)),
        ("Expires, Date", &[("expires", hour), ("date", now)], Some(3600)),
        ("Expires, earlier Date", &[("expires", hour), ("date", ago)], Some(7200)),
        ("Expires, later Date", &[("expires", hour), ("date", hour)], None),
        ("Expires twice", &[("expires", hour), ("expires", &http_date(60))], Some(60)),
        ("Expires twice, one malformed", &[("expires", hour), ("expires", "0")], None),
        ("CDN-Cache-Control", &[MAX_AGE, cdn], Some(30)),
        ("CDN-Cache-Control, past Expires", &[cdn, ("expires", ago)], Some(30)),
        ("CDN-Cache-Control, no-store for others", &[("cache-control", "no-store"), cdn], Some(30)),
        ("CDN-Cache-Control without lifetime", &[("cdn-cache-control", "public"), ("expires", hour)], None),
        ("capped", &[("cache-control", "max-age=99999999999")], Some(SECONDS_MAX)),
        ("capped", &[("expires", "Fri, 31 Dec 9999 23:59:59 GMT")], Some(SECONDS_MAX)),
        ("malformed", &[("cache-control", "max-age=x")], None),
    ] {
        assert_eq!(lifetime(200, fields), expected, "{name}: {fields:?}");
    }
}

/// RFC 9111, section 5.3; RFC 9110, section 5.6.7.
#[test]
fn dates_of_expires() {
    for (expires, is_valid) in [
        ("Sun, 13 Sep 2020 13:26:40 GMT", true),
        ("Sunday, 13-Sep-20 13:26:40 GMT", true),
        ("Sun Sep 13 13:26:40 2020", true),
        ("0", false),
        ("-1", false),
        ("", false),
        ("never", false),
        ("Sun, 13 Sep 2020 13:26:40 UTC", false),
        ("Sun, 13 Sep 20 13:26:40 GMT", false),
        ("Sun, 13-Sep-2020 13:26:40 GMT", false),
        ("Sun 13 Sep 2020 13:26:40 GMT", false),
        ("Sun, 13  Sep  2020 13:26:40 GMT", false),
        ("Sun, 13 Sep 2020 13.26.40 GMT", false),
        ("Mon, 13 Sep 2020 13:26:40 GMT", false),
        ("Sun, 31 Feb 2020 13:26:40 GMT", false),
        ("Thu, 01 Jan 1960 00:00:00 GMT", false),
    ] {
        assert_eq!(lifetime(200, &[("expires", expires)]), is_valid.then_some(3600), "{expires}");
    }
}

/// RFC 9111, section 4.2.2; RFC 9110, section 15.1. Errors are stored only as told.
#[test]
fn heuristic_lifetimes() {
    let modified = &http_date(-1000)[..];
    let lm = ("last-modified", modified);
    for status in [200, 203, 204, 300, 301, 308] {
        assert_eq!(lifetime(status, &[lm]), Some(100), "{status}");
    }
    for status in [201, 202, 302, 303, 307, 403, 404, 405, 410, 414, 500, 501, 502, 503, 504, 599] {
        assert_eq!(judged(status, &[lm]), Err(NotStored::NoFreshness), "{status}");
    }
    let public = ("cache-control", "public");
    assert_eq!(lifetime(302, &[lm, public]), Some(100));
    assert_eq!(lifetime(599, &[lm, public]), None);
    for (name, fields, expected) in [
        ("at most a day", &[("last-modified", "Sun, 13 Sep 2010 12:26:40 GMT")][..], None),
        ("at most a day", &[("last-modified", "Mon, 13 Sep 2010 12:26:40 GMT")], Some(86_400)),
        ("a modification in the future", &[("last-modified", &http_date(1000))], None),
        ("a Date in the future", &[lm, ("date", &http_date(9000))], Some(100)),
        ("an earlier Date", &[lm, ("date", &http_date(-500))], Some(50)),
        ("malformed", &[("last-modified", "x")], None),
        ("no-cache is validated", &[("cache-control", "no-cache"), lm], Some(100)),
        ("targeted, Expires does not count", &[lm, ("cdn-cache-control", "foo"), ("expires", "0")], Some(100)),
        ("Expires in the past", &[lm, ("expires", "0")], Some(0)),
    ] {
        assert_eq!(lifetime(200, fields), expected, "{name}: {fields:?}");
    }
}

/// What is stored only for validation: with a validator, and as the origin states.
#[test]
fn responses_that_are_always_validated() {
    let tag = ("etag", "\"a\"");
    for (name, fields, is_stored) in [
        ("no-cache, entity tag", &[("cache-control", "no-cache"), tag][..], true),
        ("no-cache, max-age, entity tag", &[("cache-control", "no-cache, max-age=9"), tag], true),
        ("pragma, entity tag", &[("pragma", "no-cache"), tag], true),
        ("no-cache", &[("cache-control", "no-cache, max-age=9")], false),
        ("no-cache, malformed entity tag", &[("cache-control", "no-cache"), ("etag", "a")], false),
        ("max-age=0, entity tag", &[("cache-control", "max-age=0"), tag], true),
        ("max-age=0", &[("cache-control", "max-age=0")], false),
        ("max-age=0, stale-if-error", &[("cache-control", "max-age=0, stale-if-error=9")], true),
        ("max-age=0, never stale", &[("cache-control", "max-age=0, must-revalidate, stale-if-error=9")], false),
        ("public, entity tag", &[("cache-control", "public"), tag], true),
    ] {
        assert_eq!(judged(200, fields).is_ok(), is_stored, "{name}");
    }
    let terms = judged(200, &[("pragma", "no-cache"), tag, ("last-modified", &http_date(-1000))]);
    assert!(terms.is_ok_and(|terms| terms.is_always_validated));
}

/// RFC 9111, sections 5.2.2.2, 5.2.2.8 and 5.2.2.10; RFC 5861.
#[test]
fn staleness() {
    for (cache_control, is_never_stale) in [
        ("max-age=1", false),
        ("max-age=1, must-revalidate", true),
        ("max-age=1, proxy-revalidate", true),
        ("s-maxage=1", true),
    ] {
        let terms = judged(200, &[("cache-control", cache_control)]);
        assert_eq!(terms.map(|terms| terms.is_never_stale), Ok(is_never_stale), "{cache_control}");
    }
    let fields = [("cache-control", "max-age=1, stale-while-revalidate=2, stale-if-error=3")];
    let terms = judged(200, &fields).expect("stored");
    assert_eq!((terms.stale_while_revalidate_ms, terms.stale_if_error_ms), (2000, 3000));
}

/// RFC 9111, section 4.2.3.
#[test]
fn initial_ages() {
    let age = |fields: Fields<'_>, delay_ms| {
        let requested = now() - Duration::from_millis(delay_ms);
        let received = Received { requested, responded: now() };
        let fields: Vec<_> = fields.iter().copied().chain([("cache-control", "max-age=9")]).collect();
        judge(&get(&[]), &response(200, &fields), received, &rules()).map(|(terms, _)| terms.initial_age_ms)
    };
    let ago = &http_date(-30)[..];
    for (name, fields, delay_ms, expected) in [
        ("none", &[][..], 0, 0),
        ("delay", &[], 500, 500),
        ("Age and delay", &[("age", "10")], 500, 10_500),
        ("Date", &[("date", ago)], 500, 30_000),
        ("Date and Age", &[("date", ago), ("age", "40")], 500, 40_500),
        ("an older Date", &[("date", ago), ("age", "20")], 500, 30_000),
        ("a Date in the future", &[("date", &http_date(30))], 500, 500),
        ("several Dates", &[("date", &http_date(0)), ("date", ago)], 0, 30_000),
        ("a malformed Date", &[("date", "x")], 0, 0),
        ("a huge Age", &[("age", "99999999999999999999")], 0, 1000 * SECONDS_MAX),
        ("a negative Age", &[("age", "-10")], 0, 0),
    ] {
        assert_eq!(age(fields, delay_ms), Ok(expected), "{name}");
    }
}

#[test]
fn lifetimes_of_the_route() {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let lm = &http_date(-1000)[..];
    let with = |lifetimes: &Lifetimes, status, fields: Fields<'_>| {
        let rules = Rules { lifetimes: lifetimes.clone(), ..rules() };
        let judged = judge(&get(&[]), &response(status, fields), received(), &rules);
        judged.ok().map(|(terms, _)| terms.lifetime_ms / 1000)
    };
    let default = Lifetimes { default: seconds(5), ..Lifetimes::default() };
    assert_eq!(with(&default, 200, &[]), Some(5));
    assert_eq!(with(&default, 200, &[("last-modified", lm)]), Some(5));
    assert_eq!(with(&default, 200, &[MAX_AGE]), Some(60));
    assert_eq!(with(&default, 404, &[]), None);
    assert_eq!(with(&default, 302, &[]), None);
    let fixed = Lifetimes { fixed: seconds(5), ..Lifetimes::default() };
    assert_eq!(with(&fixed, 200, &[MAX_AGE]), Some(5));
    assert_eq!(with(&fixed, 404, &[MAX_AGE]), Some(5));
    assert_eq!(with(&fixed, 200, &[("last-modified", lm)]), Some(100));
    let listed = Lifetimes { by_status: [(404, Duration::from_secs(7)), (302, Duration::ZERO)].into(), ..default };
    assert_eq!(with(&listed, 404, &[]), Some(7));
    assert_eq!(with(&listed, 404, &[MAX_AGE]), Some(60));
    assert_eq!(with(&listed, 404, &[("cache-control", "no-store")]), None);
    assert_eq!(with(&listed, 302, &[]), None);
    let stale = Lifetimes { stale_while_revalidate: seconds(8), stale_if_error: seconds(9), ..Lifetimes::default() };
    let rules = Rules { lifetimes: stale, ..rules() };
    let (terms, _) = judge(&get(&[]), &response(200, &[MAX_AGE]), received(), &rules).expect("stored");
    assert_eq!((terms.stale_while_revalidate_ms, terms.stale_if_error_ms), (8000, 9000));
    let own = ("cache-control", "max-age=60, stale-while-revalidate=0");
    let (terms, _) = judge(&get(&[]), &response(200, &[own]), received(), &rules).expect("stored");
    assert_eq!(terms.stale_while_revalidate_ms, 0);
}

/// RFC 9111, section 3.3.
#[test]
fn parts() {
    let range = ("content-range", "bytes 4-9/10");
    let tag = ("etag", "\"a\"");
    for (name, fields, expected) in [
        ("a part", &[MAX_AGE, range, tag][..], None),
        ("a strong date", &[MAX_AGE, range, ("last-modified", &http_date(-9)), ("date", &http_date(0))], None),
        ("no validator", &[MAX_AGE, range], Some(NotStored::Range)),
        ("a weak validator", &[MAX_AGE, range, ("etag", "W/\"a\"")], Some(NotStored::Range)),
        ("no length", &[MAX_AGE, ("content-range", "bytes 4-9/*"), tag], Some(NotStored::Range)),
        ("no range", &[MAX_AGE, tag], Some(NotStored::Range)),
        ("two ranges", &[MAX_AGE, range, range, tag], Some(NotStored::Range)),
        ("too long", &[MAX_AGE, ("content-range", "bytes 4-9/1000001"), tag], Some(NotStored::TooLarge)),
        ("no freshness", &[range, tag], Some(NotStored::NoFreshness)),
    ] {
        assert_eq!(judged(206, fields).err(), expected, "{name}");
    }
}

fn any_field() -> impl Strategy<Value = (String, String)> {
    let names = prop::sample::select(vec![
        "cache-control",
        "cdn-cache-control",
        "expires",
        "date",
        "age",
        "last-modified",
        "etag",
        "vary",
        "pragma",
        "content-length",
        "content-range",
        "connection",
    ]);
    let values = prop_oneof![
        "[ -~]{0,40}",
        "(max-age|s-maxage|private|public|no-cache|must-understand)(=[0-9\"a-z]{0,9})?[,;] ?[a-z=0-9-]{0,12}",
        "(Sun, 13 Sep 2020 12:2[0-9]:40 GMT|[0-9]{1,12}|W?/?\"[a-z]\"|bytes [0-9]-[0-9]/[0-9])",
    ];
    (names, values).prop_map(|(name, value)| (name.to_owned(), value))
}

fn any_rules() -> impl Strategy<Value = Rules> {
    let time = || prop::option::of((0..100u64).prop_map(Duration::from_secs));
    let by_status =
        prop::collection::btree_map(prop::sample::select(vec![200u16, 404, 500]), Just(Duration::MAX), 0..3);
    (time(), time(), by_status, time(), time()).prop_map(|(default, fixed, by_status, swr, sie)| Rules {
        lifetimes: Lifetimes { default, fixed, by_status, stale_while_revalidate: swr, stale_if_error: sie },
        ..rules()
    })
}

proptest! {
    #[test]
    fn any_response_is_judged(
        status in prop_oneof![Just(200u16), Just(206u16), 100..600u16],
        asked in prop::collection::vec(any_field(), 0..3),
        fields in prop::collection::vec(any_field(), 0..6),
        rules in any_rules(),
        delay_ms in any::<u32>(),
        later_ms in any::<u32>(),
    ) {
        let asked: Vec<_> = asked.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let fields: Vec<_> = fields.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let responded = now() + Duration::from_millis(delay_ms.into());
        let received = Received { requested: now(), responded };
        let (request, response) = (get(&asked), response(status, &fields));
        if let Ok((terms, _)) = judge(&request, &response, received, &rules) {
            let later = responded + Duration::from_millis(later_ms.into());
            prop_assert!(terms.age(later) >= Duration::from_millis(u64::from(delay_ms) + u64::from(later_ms)));
            if let Reuse::Fresh { age } = reuse(&terms, &RequestDirectives::of(&request.headers), later) {
                prop_assert!(whole_ms(age) < terms.lifetime_ms);
            }
        }
    }

    /// The invariant of the crate, for any settings, spelling and list syntax.
    #[test]
    fn private_responses_are_never_stored(
        rules in any_rules(),
        fields in prop::collection::vec(any_field(), 0..4),
        before in "([a-z-]{0,6}(=[a-z0-9]{0,3}|=\"[a-z, ]{0,4}\")?[,; \t]{1,2}){0,3}",
        after in "([,; \t]{1,2}[a-z-]{0,6}(=[a-z0-9]{0,3}|=\"[a-z, ]{0,4}\"?)?){0,3}",
        what in 0..3u8,
        spelling in any::<u16>(),
        status in prop::sample::select(vec![200u16, 203, 206, 301, 404, 500]),
    ) {
        let name = if what == 0 { "private" } else { "no-store" };
        let is_upper = |at: usize| (spelling >> (at % 16)) & 1 == 1;
        let case = |(at, char): (usize, char)| if is_upper(at) { char.to_ascii_uppercase() } else { char };
        let line = format!("{before}{}{after}", name.chars().enumerate().map(case).collect::<String>());
        let mut all: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        // These two allow storing explicitly (RFC 9111, section 5.2.2.3; RFC 9213), as do qualified forms.
        all.retain(|(name, value)| *name != "cdn-cache-control" && !value.contains("must-understand"));
        all.push(("cache-control", "public, s-maxage=60"));
        if what == 2 {
            all.retain(|(_, value)| !value.contains('"'));
            all.push(("set-cookie", "a=b"));
        } else {
            all.push(("cache-control", &line));
        }
        let judged = judge(&get(&[]), &response(status, &all), received(), &rules);
        prop_assert!(judged.is_err(), "{all:?}");
    }
}
