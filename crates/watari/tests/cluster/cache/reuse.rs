//! Stored responses are used again: hits, validations, stale ones, variants, ranges and HEAD, over HTTP/1.1 and HTTP/2.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::script::{Asked, Reply};
use super::{FRESH, Scene};
use crate::harness::pattern::pattern;
use crate::harness::wait::until;

const VERSIONS: [&str; 2] = ["1.1", "2"];
const LEN: u64 = 1_000_000;
const TAG: &str = "\"v1\"";
/// The length of the pieces that are stored (`watari_cache::PIECE_LEN`).
const PIECE_LEN: u64 = 256 << 10;

/// The seed of the pattern of a target.
fn seed(asked: &Asked) -> u64 {
    asked.target().len() as u64
}

fn answer(asked: &Asked) -> Reply {
    let object = |lines: &str| Reply::object(asked, seed(asked), 1000, TAG, lines);
    match asked.path() {
        "/fresh" => object(FRESH),
        "/aged" => object(&format!("{FRESH}age: 100\r\n")),
        "/validated" => object("cache-control: no-cache\r\n"),
        "/language" => {
            let language = asked.field("accept-language").unwrap_or("none");
            Reply::ok(&format!("{FRESH}vary: Accept-Language\r\n"), language)
        }
        "/large" => Reply::object(asked, seed(asked), LEN, TAG, FRESH),
        "/private" => Reply::ok("cache-control: private, max-age=600\r\n", asked.earlier.to_string()),
        "/cookie" => Reply::ok(&format!("{FRESH}set-cookie: id=1\r\n"), asked.earlier.to_string()),
        "/authorized" => Reply::ok(FRESH, asked.earlier.to_string()),
        _ => Reply::status("404 Not Found", "", ""),
    }
}

#[test]
fn a_fresh_response_is_requested_once() {
    let scene = Scene::set(answer);
    for http in VERSIONS {
        let target = format!("/fresh?{http}");
        let first = scene.curl(http, &target, &[]);
        assert_eq!(first.field("cache-status"), Some("watari; fwd=uri-miss; fwd-status=200; stored"));
        let second = scene.curl(http, &target, &[]);
        assert_eq!(second.http, http);
        let status = second.field("cache-status").unwrap();
        let ttl: u32 = status.strip_prefix("watari; hit; ttl=").unwrap().parse().unwrap();
        assert!((500..=600).contains(&ttl), "{status}");
        assert!(second.field("age").unwrap().parse::<u32>().unwrap() < 100);
        let head = scene.curl(http, &target, &["--head"]);
        assert!(head.field("cache-status").unwrap().starts_with("watari; hit"));
        assert_eq!((head.status, head.field("content-length")), (200, Some("1000")));
        for answer in [&first, &second] {
            assert_eq!((answer.status, answer.field("etag")), (200, Some(TAG)));
            assert!(answer.body == pattern(target.len() as u64, 0..1000), "{http}");
        }
        let same = scene.curl(http, &target, &["--header", &format!("if-none-match: {TAG}")]);
        assert_eq!((same.status, same.body.len()), (304, 0));
        assert_eq!(scene.origin.count(&target), 1);
        until("the requests are logged", || scene.logged(&target) == ["miss", "hit", "hit", "hit"]);
    }
    assert_eq!((scene.results("hit"), scene.results("miss")), (6, 2));
    assert_eq!(scene.agent().count("watari_cache_filled_bytes_total", ""), 0, "short responses are stored at once");
    assert!(scene.agent().count("watari_cache_memory_bytes", "") > 2000);
}

#[test]
fn the_age_of_the_origin_counts() {
    let scene = Scene::set(answer);
    scene.get("/aged", "");
    let got = scene.get("/aged", "");
    assert!(got.is_hit());
    assert!((100..200).contains(&got.head.field("age").unwrap().parse().unwrap()), "{got:?}");
    assert_eq!(scene.origin.count("/aged"), 1);
}

#[test]
fn a_stale_response_is_validated() {
    let scene = Scene::set(answer);
    for http in VERSIONS {
        let target = format!("/validated?{http}");
        scene.curl(http, &target, &[]);
        for turn in 1..4 {
            let got = scene.curl(http, &target, &[]);
            assert_eq!(got.field("cache-status"), Some("watari; fwd=stale; fwd-status=304; stored"));
            assert!(got.status == 200 && got.body == pattern(target.len() as u64, 0..1000));
            let asked = scene.origin.asked(&target);
            assert_eq!((asked.len(), asked[turn].field("if-none-match")), (turn + 1, Some(TAG)));
        }
        until("they are logged", || scene.logged(&target) == ["miss", "revalidated", "revalidated", "revalidated"]);
    }
    assert_eq!(scene.results("revalidated"), 6);
}

#[test]
fn a_stale_response_is_used_if_the_origin_fails() {
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let scene = Scene::set(move |asked| match failing.load(Relaxed) {
        false => Reply::ok("cache-control: max-age=0, stale-if-error=600\r\netag: \"1\"\r\n", "good"),
        true if asked.path() == "/503" => Reply::status("503 Service Unavailable", "", "bad"),
        true => Reply::raw(""),
    });
    for http in VERSIONS {
        fails.store(false, Relaxed);
        let targets = ["/503", "/closed"].map(|path| format!("{path}?{http}"));
        for target in &targets {
            assert_eq!(scene.curl(http, target, &[]).body, b"good");
        }
        fails.store(true, Relaxed);
        for target in &targets {
            let got = scene.curl(http, target, &[]);
            assert_eq!((got.status, &got.body[..]), (200, &b"good"[..]), "{target}");
            assert!(got.field("cache-status").unwrap().starts_with("watari; fwd=stale"), "{target}");
            // A client may forbid it.
            let refused = scene.curl(http, target, &["--header", "cache-control: no-cache"]);
            assert!(matches!(refused.status, 502 | 503), "{target}: {}", refused.status);
            until("they are logged", || scene.logged(target)[..2] == ["miss", "stale"]);
        }
    }
    assert_eq!(scene.results("stale"), 4);
}

#[test]
fn variants_are_kept_apart() {
    let scene = Scene::set(answer);
    for http in VERSIONS {
        let target = format!("/language?{http}");
        for turn in 0..3 {
            for language in ["de", "en", "fr"] {
                let got = scene.curl(http, &target, &["--header", &format!("accept-language: {language}")]);
                assert_eq!(got.body, language.as_bytes());
                let is_hit = got.field("cache-status").unwrap().starts_with("watari; hit");
                assert_eq!(is_hit, turn > 0, "{language}");
            }
            assert_eq!(scene.curl(http, &target, &[]).body, b"none");
        }
        assert_eq!(scene.origin.count(&target), 4);
    }
}

#[test]
fn ranges_come_from_a_complete_response() {
    let scene = Scene::set(answer);
    for http in VERSIONS {
        let target = format!("/large?{http}");
        let whole = pattern(target.len() as u64, 0..LEN);
        assert!(scene.curl(http, &target, &[]).body == whole);
        for (range, expected) in [
            ("0-0", 0..1),
            ("1000-1999", 1000..2000),
            ("262143-262144", 262_143..262_145),
            ("-5", LEN - 5..LEN),
            ("999990-", 999_990..LEN),
            ("500000-2000000", 500_000..LEN),
        ] {
            let got = scene.curl(http, &target, &["--range", range]);
            let content_range = format!("bytes {}-{}/{LEN}", expected.start, expected.end - 1);
            assert_eq!((got.status, got.field("content-range")), (206, Some(&*content_range)), "{range}");
            assert!(got.body == whole[expected.start as usize..expected.end as usize], "{range}");
        }
        assert_eq!(scene.curl(http, &target, &["--range", "1000000-"]).status, 416);
        let parts = scene.curl(http, &target, &["--range", "0-9,999990-999999"]);
        assert_eq!(parts.status, 206);
        assert!(parts.field("content-type").unwrap().starts_with("multipart/byteranges"));
        for part in [&whole[..10], &whole[999_990..]] {
            assert!(parts.body.windows(10).any(|window| window == part));
        }
        let other = scene.curl(http, &target, &["--range", "0-9", "--header", "if-range: \"v0\""]);
        assert!(other.status == 200 && other.body == whole);
        assert_eq!(scene.origin.count(&target), 1);
    }
}

/// Stored parts are joined with what is requested by range.
#[test]
fn a_partial_response_is_completed() {
    let scene = Scene::set(answer);
    for http in VERSIONS {
        let target = format!("/large?{http}");
        let whole = pattern(target.len() as u64, 0..LEN);
        let got = scene.curl(http, &target, &["--range", "300000-300009"]);
        assert_eq!((got.status, &got.body[..]), (206, &whole[300_000..300_010]));
        let piece = PIECE_LEN..2 * PIECE_LEN;
        until("the part is stored", || super::state(scene.agent()).is_some_and(|state| state["filling"] == 0));
        let again = scene.curl(http, &target, &["--range", "400000-400009"]);
        assert_eq!(&again.body[..], &whole[400_000..400_010]);
        assert_eq!(scene.origin.count(&target), 1, "the whole piece was requested");
        assert!(scene.curl(http, &target, &[]).body == whole);
        let asked = scene.origin.asked(&target);
        let ranges: Vec<_> = asked.iter().map(|asked| asked.field("range").unwrap_or("whole")).collect();
        let expected = [
            format!("bytes={}-{}", piece.start, piece.end - 1),
            format!("bytes=0-{}", piece.start - 1),
            format!("bytes={}-{}", piece.end, LEN - 1),
        ];
        assert_eq!(ranges, expected);
        assert!(asked[1..].iter().all(|asked| asked.field("if-range") == Some(TAG)));
        assert!(scene.curl(http, &target, &[]).body == whole);
        assert_eq!(scene.origin.count(&target), 3);
    }
}

#[test]
fn responses_for_one_client_are_not_stored() {
    let scene = Scene::set(answer);
    for http in VERSIONS {
        for (path, lines, reason) in [
            ("/private", &[][..], "private"),
            ("/cookie", &[][..], "set-cookie"),
            ("/authorized", &["--header", "authorization: Basic YTpi"][..], "authorization"),
        ] {
            let target = format!("{path}?{http}");
            for turn in 0..3 {
                let got = scene.curl(http, &target, lines);
                assert_eq!(got.body, turn.to_string().as_bytes(), "{target}");
            }
            assert_eq!(scene.origin.count(&target), 3);
            assert!(scene.agent().count("watari_cache_not_stored_total", reason) > 0, "{reason}");
        }
    }
    assert_eq!(scene.results("hit"), 0);
}
