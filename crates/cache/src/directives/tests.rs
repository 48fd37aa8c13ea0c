#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    fields.iter().map(|&(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

fn response(cache_control: &[&str]) -> ResponseDirectives {
    let fields: Vec<_> = cache_control.iter().map(|value| ("cache-control", *value)).collect();
    ResponseDirectives::of(&headers(&fields))
}

fn request(cache_control: &str) -> RequestDirectives {
    RequestDirectives::of(&headers(&[("cache-control", cache_control)]))
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// RFC 9111, sections 1.2.2, 4.2.1 and 5.2.
#[test]
fn lifetimes() {
    for (lines, expected) in [
        (&["max-age=3600"][..], Some(seconds(3600))),
        (&["MaX-aGe=3600"], Some(seconds(3600))),
        (&["max-age=\"3600\""], Some(seconds(3600))),
        (&["max-age=003600"], Some(seconds(3600))),
        (&["foobar, max-age=3600"], Some(seconds(3600))),
        (&["max-age=2147483648"], Some(seconds(SECONDS_MAX))),
        (&["max-age=99999999999"], Some(seconds(SECONDS_MAX))),
        (&["max-age=99999999999999999999999999"], Some(seconds(SECONDS_MAX))),
        (&["max-age=0"], Some(seconds(0))),
        (&["max-age=1800, max-age=1"], Some(seconds(1))),
        (&["max-age=1, max-age=1800"], Some(seconds(1))),
        (&["max-age=1800", "max-age=1"], Some(seconds(1))),
        (&["max-age=1", "max-age=1800"], Some(seconds(1))),
        (&["extension=\"max-age=3600\", max-age=1"], Some(seconds(1))),
        (&["max-age=1, extension=\"max-age=3600\""], Some(seconds(1))),
        (&["extension=\"max-age=3600\""], None),
        (&["max-age =3600"], Some(seconds(0))),
        (&["max-age= 3600"], Some(seconds(0))),
        (&["max-age='3600'"], Some(seconds(0))),
        (&["max-age=3600.0"], Some(seconds(0))),
        (&["max-age=3600.5"], Some(seconds(0))),
        (&["max-age=a3600"], Some(seconds(0))),
        (&["max-age=3600a"], Some(seconds(0))),
        (&["max-age=-3600"], Some(seconds(0))),
        (&["max-age=+3600"], Some(seconds(0))),
        (&["max-age="], Some(seconds(0))),
        (&["max-age=\"\""], Some(seconds(0))),
        (&["max-age"], Some(seconds(0))),
        (&["max-age=3600; foo"], Some(seconds(0))),
        (&["x-max-age=3600"], None),
        (&[""], None),
    ] {
        assert_eq!(response(lines).max_age, expected, "{lines:?}");
    }
}

/// RFC 9111, sections 5.2.2.5 and 5.2.2.7.
#[test]
fn what_forbids_is_found_in_any_spelling() {
    for line in [
        "private",
        "Private",
        "PRIVATE , max-age=1",
        "max-age=1,private",
        ",,private",
        "private=",
        "private=\"\"",
        "private=x",
        "private=\"a b\"",
        "private=\"é\"",
        "private = \"x\"",
        "\"private\"",
        "'private'",
        "max-age=1; private",
        "max-age=1 private",
        "max-age=\"1, private",
    ] {
        assert!(response(&[line]).private, "{line}");
        let no_store = line.to_ascii_lowercase().replace("private", "No-Store");
        assert!(response(&[&no_store]).no_store, "{no_store}");
        let no_cache = line.to_ascii_lowercase().replace("private", "nO-cache");
        assert!(response(&[&no_cache]).no_cache, "{no_cache}");
    }
    assert!(!response(&["not-private, extension=\"private\""]).private);
}

/// RFC 9111, sections 5.2.2.4 and 5.2.2.7.
#[test]
fn fields_that_are_withheld() {
    let directives = response(&["no-cache=\"a, Set-Cookie\", private=\"b\""]);
    assert_eq!(directives.withheld, ["a", "set-cookie", "b"]);
    assert!(!directives.no_cache && !directives.private);
    assert!(response(&["private=\"b\", private"]).private);
}

/// RFC 9111, sections 5.2.2.3 and 5.2.2.9: permissions have no arguments.
#[test]
fn permissions_have_no_argument() {
    let directives = response(&["public, must-understand, immutable, must-revalidate, proxy-revalidate, no-transform"]);
    assert!(directives.public && directives.must_understand && directives.immutable && directives.no_transform);
    assert!(directives.must_revalidate && directives.proxy_revalidate);
    let directives = response(&["public=1, must-understand=\"x\"; immutable"]);
    assert!(!directives.public && !directives.must_understand && !directives.immutable);
}

/// RFC 5861, sections 3 and 4.
#[test]
fn stale_directives() {
    let directives = response(&["stale-while-revalidate=60, stale-if-error=30, stale-if-error=90, s-maxage=5"]);
    assert_eq!(directives.stale_while_revalidate, Some(seconds(60)));
    assert_eq!(directives.stale_if_error, Some(seconds(30)));
    assert_eq!(directives.s_maxage, Some(seconds(5)));
    assert_eq!(response(&["stale-if-error=x"]).stale_if_error, Some(seconds(0)));
}

/// RFC 9111, section 5.2.1.
#[test]
fn directives_of_requests() {
    let directives =
        request("No-Cache, no-store, ONLY-IF-CACHED, max-age=1, min-fresh=2, max-stale=3, stale-if-error=4");
    assert!(directives.no_cache && directives.no_store && directives.only_if_cached);
    assert_eq!(directives.max_age, Some(seconds(1)));
    assert_eq!(directives.min_fresh, Some(seconds(2)));
    assert_eq!(directives.max_stale, Some(seconds(3)));
    assert_eq!(directives.stale_if_error, Some(seconds(4)));
    assert_eq!(request("max-stale").max_stale, Some(Duration::MAX));
    assert_eq!(request("max-stale, max-stale=3").max_stale, Some(seconds(3)));
    assert_eq!(request("max-stale=x").max_stale, Some(seconds(0)));
    assert_eq!(request("max-age=x").max_age, Some(seconds(0)));
    assert_eq!(request("min-fresh=1, min-fresh=9").min_fresh, Some(seconds(9)));
    assert_eq!(request("min-fresh=x").min_fresh, Some(seconds(SECONDS_MAX)));
    assert_eq!(request("x"), RequestDirectives::default());
}

/// RFC 9111, section 5.4.
#[test]
fn pragma_counts_without_cache_control() {
    for (fields, expected) in [
        (&[("pragma", "no-cache")][..], true),
        (&[("pragma", "x, No-Cache")], true),
        (&[("pragma", "unknown")], false),
        (&[("pragma", "no-cache"), ("cache-control", "max-age=1")], false),
    ] {
        assert_eq!(RequestDirectives::of(&headers(fields)).no_cache, expected, "{fields:?}");
        assert_eq!(ResponseDirectives::of(&headers(fields)).no_cache, expected, "{fields:?}");
    }
}

fn targeted(cdn: &str, cache_control: &str) -> ResponseDirectives {
    ResponseDirectives::of(&headers(&[
        ("cdn-cache-control", cdn),
        ("cache-control", cache_control),
        ("pragma", "no-cache"),
    ]))
}

/// RFC 9213, section 2.2.
#[test]
fn a_targeted_field_replaces_cache_control() {
    let directives = targeted("max-age=10, foobar, no-cache=\"a\";x=1", "no-store, private, max-age=1");
    assert!(directives.is_targeted && !directives.no_store && !directives.private && !directives.no_cache);
    assert_eq!(directives.max_age, Some(seconds(10)));
    assert_eq!(directives.withheld, ["a"]);
    assert!(targeted("private", "public").private);
    assert!(targeted("no-store, max-age=60", "public").no_store);
    assert!(targeted("no-cache, public=?0", "max-age=60").no_cache);
    assert_eq!(targeted("max-age=99999999999", "max-age=60").max_age, Some(seconds(SECONDS_MAX)));
    assert!(targeted("no-store=?0, max-age=1", "no-store").is_targeted);
}

/// RFC 9213, section 2.1.
#[test]
fn a_malformed_targeted_field_is_ignored() {
    for cdn in ["", "max-age=10, &&&&&", "max-age=\"10\"", "max-age=-1", "max-age=1.5", "max-age =10", "MaX-aGe=10"] {
        let directives = targeted(cdn, "max-age=7, no-store");
        assert!(!directives.is_targeted && directives.no_store, "{cdn}");
        assert_eq!(directives.max_age, Some(seconds(7)), "{cdn}");
    }
}

/// Stricter than RFC 9213, section 2.1: a malformed field still forbids.
#[test]
fn a_malformed_targeted_field_forbids() {
    for cdn in ["Private", "max-age=60; private, &", "private=1", "private=\"a b\"", "private, max-age=x"] {
        assert!(targeted(cdn, "max-age=60").private, "{cdn}");
    }
    for cdn in ["No-Store", "no-store=1", "no-store, max-age=\"60\""] {
        assert!(targeted(cdn, "max-age=60").no_store, "{cdn}");
    }
}

fn any_header(name: &'static str) -> impl Strategy<Value = HeaderMap> {
    let bytes = prop::collection::vec(any::<u8>().prop_filter("a field", |byte| *byte >= 32 && *byte != 127), 0..64);
    bytes.prop_map(move |bytes| {
        let value = http::HeaderValue::from_bytes(&bytes).unwrap();
        HeaderMap::from_iter([(HeaderName::from_static(name), value)])
    })
}

proptest! {
    #[test]
    fn any_field_is_read(one in any_header("cache-control"), two in any_header("cdn-cache-control")) {
        for headers in [one, two] {
            RequestDirectives::of(&headers);
            let directives = ResponseDirectives::of(&headers);
            prop_assert!(directives.max_age <= Some(seconds(SECONDS_MAX)));
        }
    }

    /// Whatever else a list has, what forbids is found.
    #[test]
    fn elements_do_not_hide_each_other(
        before in "([a-z-]{0,6}(=[a-z0-9]{0,3}|=\"[a-z, ]{0,4}\")?[,; ]{1,2}){0,3}",
        after in "([,; ]{1,2}[a-z-]{0,6}(=[a-z0-9]{0,3}|=\"[a-z, ]{0,4}\"?)?){0,3}",
        is_upper in any::<bool>(),
    ) {
        for name in ["private", "no-store"] {
            let name = if is_upper { name.to_ascii_uppercase() } else { name.to_owned() };
            let line = format!("{before}{name}{after}");
            let directives = response(&[&line]);
            prop_assert!(directives.private || directives.no_store, "{}", line);
        }
    }
}
