//! Many clients at once request what is not stored: one of them causes the request to the origin.

use std::sync::Barrier;
use std::thread;

use super::script::{Gate, Reply};
use super::{ALONE, FRESH, Scene};
use crate::harness::Plan;
use crate::harness::pattern::pattern;
use crate::harness::wait::until;

const CLIENTS: usize = 200;
const LEN: u64 = 20 << 20;

#[test]
fn a_crowd_makes_one_request_for_a_large_object() {
    let plan = Plan { agents: Some(ALONE), ..Plan::default() };
    let scene = Scene::with("true", "memory_mib = 64", &plan, |asked| Reply::object(asked, 1, LEN, "\"1\"", FRESH));
    let expected = pattern(1, 0..LEN);
    let ready = Barrier::new(CLIENTS);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut http = scene.connect();
                ready.wait();
                http.send(b"GET /large HTTP/1.1\r\nhost: site.test\r\n\r\n").unwrap();
                assert_eq!(http.read_head().unwrap().len().unwrap(), LEN);
                let mut at = 0;
                while at < expected.len() {
                    let piece = http.read_piece(expected.len() - at).unwrap();
                    assert!(piece == expected[at..at + piece.len()], "wrong bytes at {at}");
                    at += piece.len();
                }
            });
        }
    });
    let asked = scene.origin.asked("/large");
    assert_eq!(asked.len(), 1, "{asked:?}");
    let agent = scene.agent();
    assert_eq!(agent.count("watari_cache_filled_bytes_total", ""), LEN.cast_signed());
    let answered = ["miss", "hit", "collapsed"].map(|result| scene.results(result));
    assert_eq!((answered[0], answered.iter().sum::<i64>()), (1, 200), "{answered:?}");
    assert!(scene.get("/large", "").is_hit());
}

/// The response has no validator, so that no part can be requested again. All wait for one head, and read one body.
#[test]
fn a_crowd_makes_one_request_for_a_response_of_unknown_length() {
    const LEN: usize = 300_000;
    let scene = Scene::set(|_| {
        let chunk = format!("{LEN:x}\r\n{}\r\n0\r\n\r\n", "c".repeat(LEN));
        Reply::raw(format!("HTTP/1.1 200 OK\r\n{FRESH}transfer-encoding: chunked\r\n\r\n{chunk}"))
    });
    let ready = Barrier::new(50);
    thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                let mut http = scene.connect();
                ready.wait();
                let got = super::ask(&mut http, "GET", "/chunks", "");
                assert!(got.content.len() == LEN && got.content.iter().all(|byte| *byte == b'c'));
            });
        }
    });
    assert_eq!(scene.origin.total(), 1);
}

/// All clients but the first wait for a head that turns out to be private: each of them asks the origin.
#[test]
fn a_crowd_is_released_if_the_response_is_private() {
    const CLIENTS: usize = 20;
    let gate = Gate::default();
    let opened = gate.clone();
    let scene = Scene::set(move |asked| {
        if asked.earlier == 0 {
            gate.wait_until_open();
        }
        Reply::ok("cache-control: private\r\n", asked.field("cookie").unwrap().to_owned())
    });
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let scene = &scene;
            scope.spawn(move || {
                let got = scene.get("/page", &format!("cookie: client={number}\r\n"));
                assert_eq!(got.text(), format!("client={number}"));
            });
        }
        until("one asks, and the others wait", || {
            let connections = scene.agent().count("watari_agent_connections", "");
            usize::try_from(connections) == Ok(CLIENTS) && scene.origin.total() == 1
        });
        opened.open(1);
    });
    assert_eq!(scene.origin.total(), CLIENTS);
}
