//! Clients that try to put a response of their choice into the cache, or to get one of another client.

use super::script::Reply;
use super::{FRESH, Scene, ask, state};
use crate::harness::pattern::pattern;
use crate::harness::wait::until;

/// The value of a field that no other client may see.
const EVIL: &str = "evil.test";
/// The length of content in several pieces.
const LEN: u64 = 1_000_000;

/// The origin repeats the whole request, and allows that its response is stored.
fn mirror() -> Scene {
    Scene::set(|asked| {
        let content = String::from_utf8_lossy(&asked.content).into_owned();
        Reply::ok(FRESH, format!("{}\n{content}", asked.head))
    })
}

/// The fields that reach the origin with a request whose response is stored, although no key has them.
fn unkeyed_fields(names: &[&'static str]) -> Vec<&'static str> {
    let scene = mirror();
    let reaches = |name: &&&str| {
        let target = format!("/{name}");
        scene.get(&target, &format!("{name}: {EVIL}\r\n"));
        let got = scene.get(&target, "");
        assert!(got.is_hit(), "{name}: {got:?}");
        got.text().contains(EVIL)
    };
    names.iter().filter(reaches).copied().collect()
}

/// Only proxies may set these. The agent replaces them.
#[test]
fn fields_of_proxies_do_not_reach_another_client() {
    let names = ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "client-cert"];
    assert_eq!(unkeyed_fields(&names), [""; 0]);
}

/// Frameworks read the target, the scheme, the method or the host from these fields.
#[test]
fn fields_that_frameworks_read_do_not_reach_another_client() {
    let names = [
        "x-forwarded-scheme",
        "x-forwarded-port",
        "x-forwarded-server",
        "x-forwarded-prefix",
        "x-forwarded-path",
        "x-forwarded-uri",
        "x-forwarded-ssl",
        "x-host",
        "x-original-host",
        "x-original-url",
        "x-original-uri",
        "x-rewrite-url",
        "x-http-method-override",
        "x-http-method",
        "x-method-override",
        "x-http-host-override",
        "x-url-scheme",
        "front-end-https",
    ];
    assert_eq!(unkeyed_fields(&names), [""; 0]);
}

/// The origin has two contents with one tag, and chooses by the field `x-original-url`.
fn confusable() -> Scene {
    Scene::set(|asked| {
        let seed = u64::from(asked.field("x-original-url").is_some());
        let lines = if asked.path() == "/stale" { "cache-control: max-age=0\r\n" } else { FRESH };
        Reply::object(asked, seed, LEN, "\"1\"", &format!("{lines}x-seed: {seed}\r\n"))
    })
}

#[test]
fn unkeyed_fields_do_not_select_parts_of_a_stored_response() {
    let scene = confusable();
    let evil = "x-original-url: /evil\r\n";
    assert!(scene.get("/parts", "range: bytes=0-9\r\n").content == pattern(0, 0..10));
    until("the part is stored", || state(scene.agent()).is_some_and(|state| state["filling"] == 0));
    for lines in [evil, ""] {
        assert!(scene.get("/parts", lines).content == pattern(0, 0..LEN), "{lines}");
    }
    assert!(scene.origin.asked("/parts").iter().all(|asked| asked.field("x-original-url").is_none()));
}

#[test]
fn unkeyed_fields_of_a_head_request_do_not_update_a_stored_response() {
    let scene = confusable();
    scene.get("/stale", "");
    let evil = ask(&mut scene.connect(), "HEAD", "/stale", "x-original-url: /evil\r\n");
    assert_eq!(evil.head.status, 200);
    let got = scene.get("/stale", "cache-control: max-stale=600\r\n");
    assert_eq!(got.head.field("x-seed"), Some("0"), "{:?}", got.head);
}

/// A field that selects an entry may reach the origin: no other client gets the response.
#[test]
fn fields_of_the_key_reach_the_origin() {
    let plan = crate::harness::Plan { agents: Some(super::ALONE), ..Default::default() };
    let cache = "{ headers = [\"X-Tenant\", \"X-Original-URL\"], cookies = [\"theme\"] }";
    let scene = Scene::with(cache, "", &plan, |asked| Reply::ok(FRESH, asked.head.clone()));
    for lines in ["x-tenant: one.test\r\n", "x-original-url: /two.test\r\n", "cookie: theme=three.test\r\n"] {
        let got = scene.get("/", lines);
        assert!(!got.is_hit() && got.text().contains(lines.trim_end()), "{got:?}");
        assert!(scene.get("/", lines).is_hit());
    }
    assert!(!scene.get("/", "").text().contains("one.test"));
    assert_eq!(scene.origin.count("/"), 4);
}

#[test]
fn content_of_a_get_reaches_no_other_client() {
    let scene = mirror();
    let evil = format!("content-length: {}\r\n\r\n{EVIL}", EVIL.len());
    for turn in 0..2 {
        let mut http = scene.connect();
        http.send(format!("GET /content HTTP/1.1\r\nhost: site.test\r\n{evil}").as_bytes()).unwrap();
        let got = super::take(&mut http, "GET");
        assert!(got.text().contains(EVIL) && got.status().contains("fwd=bypass"), "{got:?}");
        let other = scene.get("/content", "");
        assert!(!other.text().contains(EVIL), "{}", other.text());
        assert_eq!(other.is_hit(), turn > 0);
    }
    assert_eq!(scene.origin.count("/content"), 3);
}

/// The response to another method is not that to GET.
#[test]
fn responses_to_other_methods_reach_no_other_client() {
    let scene = mirror();
    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY", "GETS", "get"] {
        let target = format!("/{method}");
        let got = ask(&mut scene.connect(), method, &target, "content-length: 0\r\n");
        assert!(got.head.status != 200 || got.text().starts_with(&format!("{method} ")), "{got:?}");
        let other = scene.get(&target, "");
        assert!(other.text().starts_with("GET ") && !other.is_hit(), "{other:?}");
    }
}

/// Deception: an attacker has a client request its own page under a name that looks static, and requests it then.
#[test]
fn private_pages_with_static_names_are_not_stored() {
    let scene = Scene::set(|asked| {
        let secret = format!("secret of {}", asked.field("cookie").unwrap_or("anonymous"));
        let lines = match asked.path().split('.').next_back().unwrap() {
            "css" => "content-type: text/html\r\n",
            "js" => "content-type: text/html\r\netag: \"1\"\r\n",
            "png" => "cache-control: no-store\r\n",
            "ico" => "cache-control: max-age=600\r\nset-cookie: id=2\r\n",
            "woff" => "cache-control: private, max-age=600\r\n",
            "svg" => "cache-control: max-age=600\r\nvary: Cookie\r\n",
            _ => "cache-control: no-cache=\"set-cookie\", private\r\n",
        };
        Reply::ok(lines, secret)
    });
    for name in ["x.css", "x.js", "x.png", "x.ico", "x.woff", "x.svg", "x.txt", ";x.css", "%2fx.css", "x.css?x.png"] {
        let target = format!("/account/{name}");
        assert_eq!(scene.get(&target, "cookie: id=victim\r\n").text(), "secret of id=victim");
        let got = scene.get(&target, "");
        assert_eq!(got.text(), "secret of anonymous", "{target}");
        assert_eq!(scene.origin.count(&target), 2, "{target}");
    }
}

/// Heads of any length are handled alike, up to the limit of the agent. The product of the paper changed its behaviour
/// at 4 KB.
#[test]
fn heads_of_any_length_have_hits() {
    let scene = Scene::set(|asked| {
        let len = asked.path().rsplit('/').next().unwrap().parse().unwrap();
        Reply::ok(&format!("{FRESH}x-pad: {}\r\n", "r".repeat(len)), "ok")
    });
    for limit in [4 << 10, 16 << 10, 60 << 10] {
        for len in [limit - 200, limit - 1, limit, limit + 1, limit + 200] {
            let target = format!("/{len}");
            let cookie = format!("cookie: {}\r\n", "q".repeat(len));
            for (lines, is_hit) in [("", false), (&*cookie, true), ("", true)] {
                let got = scene.get(&target, lines);
                assert_eq!((got.head.status, got.is_hit()), (200, is_hit), "{len}");
                let pad = got.head.field("x-pad").unwrap();
                assert!(pad.len() == len && pad.bytes().all(|byte| byte == b'r'), "{len}");
            }
            assert_eq!(scene.origin.count(&target), 1);
            let over_h2 = scene.curl("2", &target, &["--header", cookie.trim_end()]);
            assert_eq!(over_h2.field("x-pad").map(str::len), Some(len));
        }
    }
    // Beyond the limit: refused, and nothing is stored.
    let got = scene.get("/9", &format!("cookie: {}\r\n", "q".repeat(70_000)));
    assert_eq!((got.head.status, scene.origin.count("/9")), (431, 0));
}
