//! Which requests the cache answers.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};
use watari_cache::Purge;
use watari_proxy::{AuthConfig, Client, Transport};

use super::origin::{Asked, CountingOrigin};
use super::{Cached, Got, get, pool};
use crate::common::client;

const FRESH: &str = "200 OK\r\nCache-Control: max-age=60";

#[tokio::test]
async fn a_fresh_response_is_requested_once() {
    let origin = CountingOrigin::fixed("200 OK\r\nCache-Control: max-age=60\r\nX-A: N", "content N").await;
    let cached = Cached::before(&origin).await;
    let first = cached.get("/a", &[]).await;
    assert_eq!((first.status(), first.text(), first.field("x-a")), (200, "content 1", "1"));
    assert!(first.field("cache-status").starts_with("watari; fwd=uri-miss"), "{}", first.field("cache-status"));
    let second = cached.get("/a", &[]).await;
    assert_eq!((second.status(), second.text(), second.field("x-a")), (200, "content 1", "1"));
    assert!(second.is_hit() && second.field("age") == "0" && second.field("content-length") == "9", "{second:?}");
    assert_eq!(cached.get("/b", &[]).await.text(), "content 2");
    assert_eq!(origin.requests(), 2);
}

#[tokio::test]
async fn what_is_for_one_client_is_never_given_to_another() {
    for fields in [
        "Cache-Control: private, max-age=60",
        "Cache-Control: PRIVATE, max-age=60",
        "Cache-Control: no-store, max-age=60",
        "Cache-Control: max-age=60\r\nSet-Cookie: session=1",
        "Cache-Control: max-age=60\r\nVary: *",
        "X-Nothing: 1",
    ] {
        let head: &'static str = format!("200 OK\r\n{fields}").leak();
        let origin = CountingOrigin::fixed(head, "N").await;
        let cached = Cached::before(&origin).await;
        for expected in ["1", "2", "3"] {
            let got = cached.get("/", &[]).await;
            assert_eq!((got.text(), got.is_hit()), (expected, false), "{fields}");
        }
    }
}

#[tokio::test]
async fn requests_with_authorization_need_a_public_response() {
    let authorization = [("authorization", "Basic YTpi")];
    for (control, expected) in [("max-age=60", "3"), ("max-age=60, public", "1"), ("s-maxage=60", "1")] {
        let head: &'static str = format!("200 OK\r\nCache-Control: {control}").leak();
        let origin = CountingOrigin::fixed(head, "N").await;
        let cached = Cached::before(&origin).await;
        for _ in 0..2 {
            cached.get("/", &authorization).await;
        }
        assert_eq!(cached.get("/", &authorization).await.text(), expected, "{control}");
    }
}

#[tokio::test]
async fn variants_are_kept_apart() {
    let origin = CountingOrigin::start(|asked: Asked| async move {
        let language = asked.field("accept-language").unwrap_or("none").to_owned();
        asked.answer("200 OK\r\nCache-Control: max-age=60\r\nVary: Accept-Language", language.as_bytes()).await;
    })
    .await;
    let cached = Cached::before(&origin).await;
    for _ in 0..2 {
        for language in ["de", "en", "ja"] {
            assert_eq!(cached.get("/", &[("accept-language", language)]).await.text(), language);
        }
    }
    assert_eq!(cached.get("/", &[]).await.text(), "none");
    assert_eq!(origin.requests(), 4);
}

#[tokio::test]
async fn a_stale_response_is_validated() {
    let origin = CountingOrigin::start(|asked: Asked| async move {
        if asked.field("if-none-match") == Some("\"v\"") {
            asked.answer("304 Not Modified\r\nETag: \"v\"\r\nCache-Control: max-age=0\r\nX-New: 1", b"").await;
        } else {
            asked.answer("200 OK\r\nETag: \"v\"\r\nCache-Control: max-age=0", b"content").await;
        }
    })
    .await;
    let cached = Cached::before(&origin).await;
    assert_eq!(cached.get("/", &[]).await.text(), "content");
    let second = cached.get("/", &[]).await;
    assert_eq!((second.status(), second.text(), second.field("x-new")), (200, "content", "1"));
    assert!(second.field("cache-status").contains("fwd=stale; fwd-status=304"), "{}", second.field("cache-status"));
    // A condition of the client is for the stored response.
    let third = cached.get("/", &[("if-none-match", "\"v\"")]).await;
    assert_eq!((third.status(), third.text()), (304, ""));
    assert_eq!(origin.requests(), 3);
}

#[tokio::test]
async fn a_stale_response_is_used_if_the_origin_fails() {
    let origin = CountingOrigin::start(|asked: Asked| async move {
        match asked.number {
            1 => asked.answer("200 OK\r\nCache-Control: max-age=0, stale-if-error=60", b"content").await,
            2 => asked.answer("503 Service Unavailable", b"busy").await,
            // Closes without an answer.
            _ => {}
        }
    })
    .await;
    let cached = Cached::before(&origin).await;
    for _ in 0..3 {
        assert_eq!(cached.get("/", &[]).await.text(), "content");
    }
    assert!(origin.requests() >= 3);
}

#[tokio::test]
async fn a_stale_response_is_used_while_it_is_validated() {
    let origin = CountingOrigin::fixed("200 OK\r\nCache-Control: max-age=0, stale-while-revalidate=60", "N").await;
    let cached = Cached::before(&origin).await;
    assert_eq!(cached.get("/", &[]).await.text(), "1");
    assert_eq!(cached.get("/", &[]).await.text(), "1");
    let validated = async {
        while cached.get("/", &[]).await.text() == "1" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), validated).await.expect("it is validated");
}

#[tokio::test]
async fn heads_and_ranges_come_from_a_stored_response() {
    let content: &'static str = "0123456789".repeat(100).leak();
    let origin = CountingOrigin::fixed("200 OK\r\nCache-Control: max-age=60\r\nETag: \"v\"", content).await;
    let cached = Cached::before(&origin).await;
    cached.get("/", &[]).await;
    let mut head = get("/", &[]);
    *head.method_mut() = Method::HEAD;
    let head = Got::of(cached.respond(head).await).await;
    assert_eq!((head.status(), head.text(), head.field("content-length")), (200, "", "1000"));
    let part = cached.get("/", &[("range", "bytes=2-4")]).await;
    assert_eq!((part.status(), part.text(), part.field("content-range")), (206, "234", "bytes 2-4/1000"));
    let parts = cached.get("/", &[("range", "bytes=0-0,999-999")]).await;
    assert!(parts.field("content-type").starts_with("multipart/byteranges"), "{parts:?}");
    assert!(parts.text().contains("bytes 999-999/1000\r\n\r\n9\r\n"), "{}", parts.text());
    assert_eq!(cached.get("/", &[("range", "bytes=1000-")]).await.status(), 416);
    let other = cached.get("/", &[("range", "bytes=2-4"), ("if-range", "\"w\"")]).await;
    assert_eq!((other.status(), other.text()), (200, content));
    assert_eq!(origin.requests(), 1);
}

#[tokio::test]
async fn some_requests_go_around_the_cache() {
    let origin = CountingOrigin::fixed(FRESH, "N").await;
    let cached = Cached::with(pool([origin.address.clone()]), |cache| {
        cache.bypass_cookies = vec!["session".to_owned()];
        cache.bypass_headers = vec![http::HeaderName::from_static("x-preview")];
    })
    .await;
    assert_eq!(cached.get("/", &[]).await.text(), "1");
    let mut expected = 1;
    for fields in
        [("cookie", "a=1; session=2"), ("x-preview", "yes"), ("cache-control", "no-store"), ("if-match", "\"v\"")]
    {
        expected += 1;
        let got = cached.get("/", &[fields]).await;
        assert_eq!((got.text(), got.is_hit()), (expected.to_string().as_str(), false), "{fields:?}");
    }
    // The origin gets the certificate, and may answer by it.
    let certified = Client::new(client().address(), client().server(), Some(b"certificate"));
    for _ in 0..2 {
        expected += 1;
        let got = cached.get_as(&certified, "/").await;
        assert_eq!(
            (got.text(), got.field("cache-status")),
            (&*expected.to_string(), "watari; fwd=bypass; fwd-status=200")
        );
    }
    assert_eq!(cached.get("/", &[("cookie", "a=1; other=2")]).await.text(), "1");
    let only = cached.get("/other", &[("cache-control", "only-if-cached")]).await;
    assert_eq!((only.status(), origin.requests()), (504, expected));
}

#[tokio::test]
async fn an_unsafe_request_invalidates_what_it_has_changed() {
    let origin = CountingOrigin::fixed(FRESH, "N").await;
    let cached = Cached::before(&origin).await;
    assert_eq!(cached.get("/", &[]).await.text(), "1");
    let post =
        http::Request::post("/").header("host", "example.org").body(http_body_util::Empty::<bytes::Bytes>::new());
    assert_eq!(Got::of(cached.proxy.respond(post.unwrap(), &client()).await).await.text(), "2");
    assert_eq!(cached.get("/", &[]).await.text(), "3");
    assert_eq!(cached.get("/", &[]).await.text(), "3");
}

/// An origin that gets the service address by the PROXY protocol may answer by it.
#[tokio::test]
async fn service_addresses_share_entries_unless_the_origin_gets_them() {
    let servers = ["192.0.2.1:443", "192.0.2.2:443", "192.0.2.1:8443", "[2001:db8::1]:443", "[::ffff:192.0.2.1]:443"];
    let clients = servers.map(|server| Client::new(client().address(), server.parse().unwrap(), None));
    for (by_server, expected) in [(false, ["1"; 5]), (true, ["1", "2", "3", "4", "1"])] {
        let origin = CountingOrigin::fixed(FRESH, "N").await;
        let cached = Cached::with(pool([origin.address.clone()]), |cache| cache.by_server = by_server).await;
        for turn in 0..2 {
            for (client, expected) in clients.iter().zip(expected) {
                let got = cached.get_as(client, "/").await;
                assert_eq!(got.text(), expected, "{}", client.server());
                assert!(got.is_hit() || turn == 0);
            }
        }
        // Purges are for all of them.
        for purge in [Purge::Url("example.org/".into()), Purge::Prefix("example.org/".into()), Purge::Everything] {
            let before = origin.requests();
            cached.proxy.cache().get().unwrap().purge(purge);
            for client in &clients {
                cached.get_as(client, "/").await;
            }
            let entries = if by_server { 4 } else { 1 };
            assert_eq!(origin.requests() - before, entries);
        }
    }
}

/// RFC 9875, section 3: groups belong to a host, and responses to safe requests invalidate none.
#[tokio::test]
async fn a_response_to_an_unsafe_request_invalidates_groups_of_its_host() {
    const HOSTS: [&str; 2] = ["example.org", "example.net"];
    const PATHS: [&str; 3] = ["/red", "/blue", "/none"];
    let origin = CountingOrigin::start(|asked: Asked| async move {
        let head = match asked.head.split(' ').nth(1) {
            Some("/red") => "200 OK\r\nCache-Control: max-age=60\r\nCache-Groups: \"red\", \"both\"",
            Some("/blue") => "200 OK\r\nCache-Control: max-age=60\r\nCache-Groups: \"blue\", \"both\"",
            Some("/none") => FRESH,
            Some("/change/both") => "200 OK\r\nCache-Group-Invalidation: \"both\"",
            _ => "200 OK\r\nCache-Group-Invalidation: \"green\", \"red\"",
        };
        asked.answer(head, b"").await;
    })
    .await;
    let cached = Cached::before(&origin).await;
    let ask = async |method: Method, host: &'static str, path: &str| {
        let mut request = get(path, &[]);
        *request.method_mut() = method;
        request.headers_mut().insert("host", HeaderValue::from_static(host));
        Got::of(cached.respond(request).await).await
    };
    for host in HOSTS {
        for path in PATHS {
            ask(Method::GET, host, path).await;
        }
    }
    for (method, target, expected) in [
        (Method::GET, "/change", &[][..]),
        (Method::HEAD, "/change", &[]),
        (Method::OPTIONS, "/change", &[]),
        (Method::POST, "/change", &["/red"]),
        (Method::POST, "/change/both", &["/red", "/blue"]),
        (Method::DELETE, "/change", &["/red"]),
    ] {
        let answer = ask(method.clone(), HOSTS[0], target).await;
        assert!(!answer.field("cache-group-invalidation").is_empty(), "{method} {target}");
        for host in HOSTS {
            let mut missing = Vec::new();
            for path in PATHS {
                if !ask(Method::GET, host, path).await.is_hit() {
                    missing.push(path);
                }
            }
            let expected = if host == HOSTS[0] { expected } else { &[] };
            assert_eq!(missing, expected, "after {method} {target}: {host}");
        }
    }
}

#[tokio::test]
async fn purges_are_for_urls_beginnings_and_groups() {
    let origin = CountingOrigin::fixed("200 OK\r\nCache-Control: max-age=60\r\nCache-Tag: red, blue", "N").await;
    let cached = Cached::before(&origin).await;
    let mut number = 0;
    for (purge, is_purged) in [
        (watari_cache::Purge::Url("example.org/a?b".into()), true),
        (watari_cache::Purge::Url("example.org/a".into()), false),
        (watari_cache::Purge::Prefix("example.org/a".into()), true),
        (watari_cache::Purge::Prefix("example.org/b".into()), false),
        (watari_cache::Purge::Group("blue".into()), true),
        (watari_cache::Purge::Group("green".into()), false),
        (watari_cache::Purge::Everything, true),
    ] {
        let before = cached.get("/a?b", &[]).await.text().to_owned();
        cached.proxy.cache().get().unwrap().purge(purge.clone());
        let after = cached.get("/a?b", &[]).await.text().to_owned();
        assert_eq!(before != after, is_purged, "{purge:?}");
        number += usize::from(is_purged);
    }
    assert_eq!(origin.requests(), number + 1);
}

#[tokio::test]
async fn a_bypass_cookie_is_found_beside_bytes_that_are_no_text() {
    let origin = CountingOrigin::fixed(FRESH, "N").await;
    let cached =
        Cached::with(pool([origin.address.clone()]), |cache| cache.bypass_cookies.push("session".to_owned())).await;
    cached.get("/", &[]).await;
    let mut request = get("/", &[]);
    request.headers_mut().insert("cookie", HeaderValue::from_bytes(b"a=\xff; session=1").unwrap());
    let got = Got::of(cached.respond(request).await).await;
    assert_eq!((got.text(), got.is_hit()), ("2", false));
}

#[tokio::test]
async fn a_bypass_field_is_found_with_underscores() {
    let origin = CountingOrigin::fixed(FRESH, "N").await;
    let name = HeaderName::from_static("x-preview");
    let cached = Cached::with(pool([origin.address.clone()]), |cache| cache.bypass_headers.push(name)).await;
    cached.get("/", &[]).await;
    assert_eq!(cached.get("/", &[("x_preview", "1")]).await.text(), "2");
}

/// A response that names the user of the request is not for others, even if the origin says so.
#[tokio::test]
async fn what_an_authority_says_about_a_user_is_in_the_key_or_is_not_cached() {
    let user = HeaderName::from_static("x-user");
    for (in_key, expected) in [(vec![], "2"), (vec![user.clone()], "1")] {
        let authority = CountingOrigin::fixed("200 OK\r\nX-User: alice", "").await;
        let origin = CountingOrigin::fixed(FRESH, "N").await;
        let auth = AuthConfig {
            url: format!("{}/check", authority.address).parse().unwrap(),
            transport: Transport::default(),
            copy: vec![user.clone()],
            timeout: Duration::from_secs(20),
        };
        let cached =
            Cached::behind(auth, pool([origin.address.clone()]), |cache| cache.rules.key.headers = in_key).await;
        cached.get("/", &[]).await;
        assert_eq!(cached.get("/", &[]).await.text(), expected);
        assert_eq!(authority.requests(), 2, "each client is checked");
    }
}

#[tokio::test]
async fn a_part_replaces_no_complete_response_of_an_error() {
    let origin = CountingOrigin::start(|asked: Asked| async move {
        match asked.number {
            1 => asked.answer("200 OK\r\nCache-Control: max-age=0, stale-if-error=60", b"whole").await,
            _ => asked.answer("503 Service Unavailable\r\nCache-Control: max-age=60", b"no").await,
        }
    })
    .await;
    let cached = Cached::before(&origin).await;
    cached.get("/", &[]).await;
    for _ in 0..3 {
        assert_eq!(cached.get("/", &[]).await.text(), "whole");
    }
}
