//! Spellings of one path that origins may read differently: each has an entry of its own.

use super::script::Reply;
use super::{FRESH, Scene, ask};
use crate::clients::http::Http;
use crate::clients::tls::Tls;

/// The origin repeats the target.
fn scene() -> Scene {
    Scene::set(|asked| Reply::ok(FRESH, asked.target()))
}

fn status_of(http: &mut Http<Tls>, target: &str) -> u16 {
    ask(http, "GET", target, "").head.status
}

#[test]
fn spellings_of_a_path_are_not_confused() {
    let scene = scene();
    let targets = [
        "/a/b",
        "/a%2fb",
        "/a%2Fb",
        "//a/b",
        "/a//b",
        "/a/b/",
        "/A/b",
        "/%61/b",
        "/a/b;x.css",
        "/a/b%3bx.css",
        "/a/b?",
        "/a/b?x",
        "/a/b%3fx",
        "/a/b?x=1&y=2",
        "/a/b?y=2&x=1",
        "/a/b?x=1;y=2",
        "/a/b%23x",
        "/a/b%00x.css",
        "/a\\b",
        "/page",
        "/page;x.css",
        "/page/x.css",
        "/page%0ax.css",
    ];
    for turn in 0..2 {
        for target in targets {
            let got = scene.get(target, "");
            // The agent refuses a path that origins could read in several ways.
            if got.head.status == 400 {
                assert!(target.contains("%00") || target.contains('\\'), "{target}");
                continue;
            }
            assert_eq!((got.head.status, got.text()), (200, target.to_owned()));
            assert_eq!(got.is_hit(), turn > 0, "{target}");
        }
    }
    for target in targets {
        assert!(scene.origin.count(target) <= 1, "{target}");
    }
}

#[test]
fn dot_segments_are_refused_and_not_stored() {
    let scene = scene();
    let targets = ["/a/../b", "/a/./b", "/a/%2e%2e/b", "/a/..%2fb", "/a/..;/b", "/a/..\\b", "/../b", "/a/%2E./b"];
    for target in targets {
        assert_eq!(status_of(&mut scene.connect(), target), 400, "{target}");
    }
    assert_eq!((scene.origin.total(), scene.results("miss"), scene.results("hit")), (0, 0, 0));
    assert_eq!(scene.get("/b", "").text(), "/b");
}

/// One resource, whatever the form of its target.
#[test]
fn the_host_is_a_part_of_the_key_in_lower_case() {
    let scene =
        Scene::set(|asked| Reply::ok(FRESH, format!("{} {}", asked.field("host").unwrap_or_default(), asked.target())));
    let mut http = scene.connect();
    let mut get = |target: &str, host: &str| {
        http.send(format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes()).unwrap();
        let got = super::take(&mut http, "GET");
        assert_eq!(got.head.status, 200, "{target} {host}");
        (got.text().to_ascii_lowercase(), got.is_hit())
    };
    assert_eq!(get("/x", "site.test"), ("site.test /x".to_owned(), false));
    assert_eq!(get("/x", "SITE.test"), ("site.test /x".to_owned(), true));
    assert_eq!(get("https://site.test/x", "other.test"), ("site.test /x".to_owned(), true));
    for host in ["other.test", "site.test:8443", "site.test.", "x.site.test"] {
        for is_hit in [false, true] {
            assert_eq!(get("/x", host), (format!("{host} /x"), is_hit));
        }
    }
}
