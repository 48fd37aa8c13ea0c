//! Origins that lie, fail, or never end.

use super::script::{Content, Gate, Reply};
use super::{ALONE, FRESH, Scene, ask, state};
use crate::harness::Plan;
use crate::harness::pattern::pattern;
use crate::harness::wait::until;

#[test]
fn oversized_vary_is_not_stored() {
    let many = |count: usize| (0..count).map(|n| format!("x-{n}")).collect::<Vec<_>>().join(", ");
    let varies = [
        (many(16), true),
        (many(17), false),
        (many(70), false),
        (many(4000), false),
        ("x".repeat(40_000), true),
        ("*".to_owned(), false),
        ("accept, *".to_owned(), false),
        ("a b".to_owned(), false),
        ("x-1, x-1, x-1".to_owned(), true),
        (["x-1"; 64].join(","), true),
        (",,, ,".to_owned(), true),
    ];
    let lines: Vec<_> = varies.iter().map(|(vary, _)| format!("{FRESH}vary: {vary}\r\n")).collect();
    let scene = Scene::set(move |asked| {
        let number: usize = asked.path()[1..].parse().unwrap();
        Reply::ok(&lines[number], asked.field("x-1").unwrap_or("none").to_owned())
    });
    for (number, (vary, is_stored)) in varies.iter().enumerate() {
        let target = format!("/{number}");
        scene.get(&target, "");
        let got = scene.get(&target, "");
        assert_eq!((got.text().as_str(), got.is_hit()), ("none", *is_stored), "{vary:.60}");
        // A value of any length selects.
        let value = "v".repeat(20_000);
        let other = scene.get(&target, &format!("x-1: {value}\r\n"));
        let varies_by_it = vary.contains("x-1") || !is_stored;
        assert_eq!(other.text() == value, varies_by_it, "{vary:.60}");
        assert_eq!(scene.get(&target, "").text(), "none", "{vary:.60}");
    }
}

/// What follows a response on its connection is not the response to another request.
#[test]
fn surplus_of_a_response_is_no_response() {
    let evil = format!("HTTP/1.1 200 OK\r\n{FRESH}content-length: 4\r\n\r\nevil");
    let scene = Scene::set(move |asked| {
        let head = |lines: &str| format!("HTTP/1.1 200 OK\r\n{FRESH}{lines}\r\n");
        match asked.path() {
            "/surplus" => Reply::ok(FRESH, "ok").followed_by(&evil),
            "/nothing" => Reply::status("204 No Content", FRESH, "").followed_by(&evil),
            "/same" => Reply::status("304 Not Modified", FRESH, "").followed_by(&evil),
            "/both" => {
                Reply::raw(format!("{}5\r\n{evil}", head("transfer-encoding: chunked\r\ncontent-length: 2\r\n")))
            }
            "/lengths" => Reply::raw(format!("{}ok{evil}", head("content-length: 2\r\ncontent-length: 9\r\n"))),
            "/folded" => Reply::raw(format!("{}ok", head("x: a\r\n b\r\ncontent-length: 2\r\n"))),
            "/return" => Reply::raw(format!("{}ok", head("x: a\rcontent-length: 0\r\ncontent-length: 2\r\n"))),
            "/zero" => Reply::raw(format!("{}ok", head("x: a\0b\r\ncontent-length: 2\r\n"))),
            "/name" => Reply::raw(format!("{}ok", head("x y: 1\r\ncontent-length: 2\r\n"))),
            _ => Reply::ok(FRESH, asked.target()),
        }
    });
    let attacks = ["/surplus", "/nothing", "/same", "/both", "/lengths", "/folded", "/return", "/zero", "/name"];
    for turn in 0..3 {
        for attack in attacks {
            let got = ask(&mut scene.connect(), "GET", attack, "");
            assert!(!got.text().contains("evil"), "{attack}: {got:?}");
            assert!(matches!(got.head.status, 200 | 204 | 304 | 502), "{attack}: {got:?}");
            let target = format!("/next?{attack}{turn}");
            for _ in 0..2 {
                let next = scene.get(&target, "");
                assert_eq!((next.head.status, next.text()), (200, target.clone()));
            }
        }
    }
}

/// The fields of a response, and the requests that reach the origin of two from clients.
#[test]
fn lies_about_time_make_nothing_fresher() {
    let far = "Fri, 31 Dec 2100 23:59:59 GMT";
    let past = "Sat, 01 Jan 2000 00:00:00 GMT";
    let cases = [
        ("cache-control: max-age=60".to_owned(), 1),
        ("cache-control: max-age=60\r\nage: 59999".to_owned(), 2),
        ("cache-control: max-age=60\r\nage: 99999999999999999999999999".to_owned(), 2),
        ("cache-control: max-age=60\r\nage: -1".to_owned(), 1),
        ("cache-control: max-age=60\r\nage: soon".to_owned(), 1),
        (format!("cache-control: max-age=60\r\ndate: {past}"), 2),
        (format!("cache-control: max-age=60\r\ndate: {past}\r\ndate: {far}"), 2),
        (format!("cache-control: max-age=60\r\ndate: {far}"), 1),
        ("cache-control: max-age=60\r\ndate: yesterday".to_owned(), 1),
        (format!("expires: {far}"), 1),
        (format!("expires: {past}"), 2),
        (format!("date: {far}\r\nexpires: {far}"), 2),
        (format!("expires: {far}\r\nexpires: {past}"), 2),
        ("expires: 0".to_owned(), 2),
        ("expires: tomorrow".to_owned(), 2),
        ("cache-control: max-age=60, max-age=0".to_owned(), 2),
        ("cache-control: max-age=-60".to_owned(), 2),
        ("cache-control: max-age=99999999999999999999999999".to_owned(), 1),
        ("cache-control: max-age=60\r\ncache-control: no-store".to_owned(), 2),
        (format!("last-modified: {far}"), 2),
        (format!("last-modified: {far}\r\ndate: {far}"), 2),
    ];
    let lines: Vec<_> = cases.iter().map(|(fields, _)| format!("{fields}\r\n")).collect();
    let scene = Scene::set(move |asked| Reply::ok(&lines[asked.path()[1..].parse::<usize>().unwrap()], "ok"));
    for (number, (fields, requests)) in cases.iter().enumerate() {
        let target = format!("/{number}");
        for _ in 0..2 {
            assert_eq!(scene.get(&target, "").text(), "ok", "{fields}");
        }
        assert_eq!(scene.origin.count(&target), *requests, "{fields}");
    }
}

/// Clients of other targets do not wait for it, and its own ones read what has come.
#[test]
fn a_slow_origin_delays_only_its_own_clients() {
    const LEN: u64 = 600_000;
    let gate = Gate::default();
    let opened = gate.clone();
    let scene = Scene::set(move |asked| match asked.path() {
        "/slow" => Reply::object(asked, 1, LEN, "\"1\"", FRESH).behind(&gate),
        _ => Reply::ok(FRESH, "ok"),
    });
    opened.open(100_000);
    let mut clients = [(); 3].map(|()| scene.connect());
    for http in &mut clients {
        http.send(b"GET /slow HTTP/1.1\r\nhost: site.test\r\n\r\n").unwrap();
        assert_eq!(http.read_head().unwrap().len().unwrap(), LEN);
        http.check_body(0..100_000, LEN, 1).unwrap();
    }
    for number in 0..10 {
        assert_eq!(scene.get(&format!("/{number}"), "").text(), "ok");
    }
    assert_eq!(state(scene.agent()).unwrap()["filling"], 1);
    opened.open(u64::MAX);
    for http in &mut clients {
        http.check_body(100_000..LEN, LEN, 1).unwrap();
    }
    assert_eq!(scene.origin.count("/slow"), 1);
    until("it is stored", || state(scene.agent()).unwrap()["filling"] == 0);
    assert!(scene.get("/slow", "").is_hit());
}

/// An endless response is relayed as long as a client reads it, and memory stays bounded.
#[test]
fn an_endless_response_ends_with_its_clients() {
    let plan = Plan { agents: Some(ALONE), ..Plan::default() };
    let scene = Scene::with("{ object_mib_max = 2 }", "memory_mib = 16", &plan, |asked| match asked.path() {
        "/endless" => Reply::until_close(format!("HTTP/1.1 200 OK\r\n{FRESH}\r\n"), Content::Endless(3)),
        _ => Reply::ok(FRESH, "ok"),
    });
    let agent = scene.agent();
    scene.get("/", "");
    let before = agent.memory_kib();
    for _ in 0..2 {
        let mut http = scene.connect();
        http.send(b"GET /endless HTTP/1.1\r\nhost: site.test\r\n\r\n").unwrap();
        assert_eq!(http.read_head().unwrap().status, 200);
        let mut at = 0;
        while at < 20_000_000 {
            let chunk = http.read_chunk().unwrap();
            let end = at + chunk.len() as u64;
            assert!(!chunk.is_empty() && chunk == pattern(3, at..end), "{at}");
            at = end;
        }
        assert_eq!(state(agent).unwrap()["filling"], 1);
        drop(http);
        until("the origin is left", || state(agent).unwrap()["filling"] == 0);
    }
    assert!(agent.count("watari_cache_memory_bytes", "") <= 16 << 20);
    assert!(agent.memory_kib() < before + (60 << 10), "{before} {}", agent.memory_kib());
    assert!(scene.get("/", "").is_hit());
    assert_eq!(scene.origin.count("/endless"), 2);
}

/// An origin that sends its head byte by byte, or none, is given up.
#[test]
fn an_origin_that_does_not_answer_fails_all_that_wait() {
    let plan = Plan { agents: Some(ALONE), ..Plan::default() };
    let gate = Gate::default();
    let scene = Scene::with("true", "", &plan, move |asked| match asked.path() {
        "/silent" => Reply::until_close("", Content::Gated(0, 0..1, gate.clone())),
        _ => Reply::ok(FRESH, "ok"),
    });
    scene.agent().reconfigure(|text| {
        text.replace(
            "[[agent.proxy.route]]",
            "[agent.proxy.pool.limits]\nresponse_timeout = \"1s\"\n[[agent.proxy.route]]",
        )
    });
    let mut clients: Vec<_> = (0..5).map(|_| scene.connect()).collect();
    for http in &mut clients {
        http.send(b"GET /silent HTTP/1.1\r\nhost: site.test\r\n\r\n").unwrap();
    }
    assert_eq!(scene.get("/other", "").text(), "ok");
    for http in &mut clients {
        assert_eq!(http.read_head().unwrap().status, 504);
    }
    assert_eq!(scene.origin.count("/silent"), 1);
    assert_eq!(state(scene.agent()).unwrap()["asking"], 0);
}

#[test]
fn content_larger_than_the_store_is_relayed() {
    const LEN: u64 = 5_000_000;
    for (cache, store) in [("true", "memory_mib = 1"), ("{ object_mib_max = 1 }", "memory_mib = 64")] {
        let plan = Plan { agents: Some(ALONE), ..Plan::default() };
        let scene = Scene::with(cache, store, &plan, |asked| match asked.path() {
            "/weak" => Reply::object(asked, 6, LEN, "W/\"1\"", FRESH),
            _ => Reply::object(asked, 5, LEN, "\"1\"", FRESH),
        });
        for _ in 0..3 {
            assert!(scene.get("/large", "").content == pattern(5, 0..LEN), "{cache} {store}");
            assert!(scene.get("/weak", "").content == pattern(6, 0..LEN), "{cache} {store}");
            let part = scene.get("/large", "range: bytes=4000000-4000999\r\n");
            assert!(part.content == pattern(5, 4_000_000..4_001_000), "{cache} {store}");
        }
        assert!(scene.agent().count("watari_cache_memory_bytes", "") <= 64 << 20);
    }
}
