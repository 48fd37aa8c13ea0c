//! Agents that share responses: each has its owner, which the others ask before the origin.

use std::sync::Barrier;
use std::thread;

use super::script::{Gate, Reply};
use super::{FRESH, Scene, ask, take};
use crate::harness::pattern::pattern;
use crate::harness::{AGENTS, Plan};

const SHARED: &str = "{ shared = true }";
const LEN: u64 = 20 << 20;

/// Connections stay at their agents.
fn plan() -> Plan {
    Plan { dispatcher: "bulk = \"off\"", ..Plan::default() }
}

/// Clients of all agents come while the content is on its way. Some of them request a range.
#[test]
fn clients_of_three_agents_make_one_request() {
    const CLIENTS: usize = 30;
    let gate = Gate::default();
    let opened = gate.clone();
    let scene =
        Scene::with(SHARED, "", &plan(), move |asked| Reply::object(asked, 1, LEN, "\"1\"", FRESH).behind(&opened));
    let expected = pattern(1, 0..LEN);
    gate.open(1);
    let mut first = scene.connect_to("a1");
    first.send(b"GET /large HTTP/1.1\r\nhost: site.test\r\n\r\n").unwrap();
    first.read_head().unwrap();
    let ready = Barrier::new(CLIENTS + 1);
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (scene, ready, expected) = (&scene, &ready, &expected);
            scope.spawn(move || {
                let mut http = scene.connect_to(AGENTS[number % AGENTS.len()]);
                let from = if number < 6 { number * 500_003 } else { 0 };
                let range = if from > 0 { format!("range: bytes={from}-\r\n") } else { String::new() };
                http.send(format!("GET /large HTTP/1.1\r\nhost: site.test\r\n{range}\r\n").as_bytes()).unwrap();
                ready.wait();
                let got = take(&mut http, "GET");
                assert_eq!(got.head.status, if from > 0 { 206 } else { 200 });
                assert!(got.content == expected[from..], "client {number}: {} bytes", got.content.len());
            });
        }
        ready.wait();
        gate.open(LEN);
    });
    first.read_piece(1).unwrap();
    let asked = scene.origin.asked("/large");
    assert_eq!(asked.len(), 1, "{asked:?}");
    for agent in AGENTS {
        let got = ask(&mut scene.connect_to(agent), "GET", "/large", "");
        assert!(got.is_hit(), "{agent}: {}", got.status());
    }
}

/// The agent that ends owns a third of the responses, and is the only one that has them.
#[test]
fn an_agent_that_ends_hands_on_what_it_owns() {
    const PATHS: usize = 90;
    let scene = Scene::with(SHARED, "", &plan(), |asked| match asked.path().strip_prefix("/long") {
        Some(_) => Reply::object(asked, 2, 1 << 20, "\"1\"", FRESH),
        None => Reply::ok(FRESH, format!("content of {}", asked.path())),
    });
    let path = |number: usize| if number.is_multiple_of(9) { format!("/long{number}") } else { format!("/{number}") };
    let mut http = scene.connect_to("a1");
    for number in 0..PATHS {
        ask(&mut http, "GET", &path(number), "");
    }
    drop(http);
    assert_eq!(scene.origin.total(), PATHS);
    let ending = scene.cluster.node("a1");
    ending.terminate();
    assert!(ending.log().contains("other agents have the stored responses"));
    for agent in ["a2", "a3"] {
        let mut http = scene.connect_to(agent);
        for number in 0..PATHS {
            let got = ask(&mut http, "GET", &path(number), "");
            match number % 9 {
                0 => assert!(got.content == pattern(2, 0..1 << 20)),
                _ => assert_eq!(got.text(), format!("content of /{number}")),
            }
        }
    }
    assert_eq!(scene.origin.total(), PATHS, "the others had to ask the origin");
}
