//! Agents that share responses: each has its owner, which the others ask before the origin.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use super::script::{Gate, Reply};
use super::{FRESH, Scene, ask, settled, take};
use crate::harness::AGENTS;
use crate::harness::pattern::pattern;

const SHARED: &str = "{ shared = true }";
const LEN: u64 = 20 << 20;
/// How long clients may take to connect.
const READY_MAX: Duration = Duration::from_mins(1);

/// Clients of all agents come while the content is on its way. Some of them request a range.
#[test]
fn clients_of_three_agents_make_one_request() {
    const CLIENTS: usize = 30;
    let gate = Gate::default();
    let opened = gate.clone();
    let scene = Scene::with(SHARED, "", &settled(), move |asked| match asked.path() {
        "/large" => Reply::object(asked, 1, LEN, "\"1\"", FRESH).behind(&opened),
        _ => Reply::ok(FRESH, "short"),
    });
    let expected = pattern(1, 0..LEN);
    gate.open(1);
    connect_owners(&scene);
    let mut first = scene.connect_to("a1");
    first.send(b"GET /large HTTP/1.1\r\nhost: site.test\r\n\r\n").unwrap();
    first.read_head().unwrap();
    let (ready, waiting) = channel();
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (scene, ready, expected) = (&scene, ready.clone(), &expected);
            scope.spawn(move || {
                let mut http = scene.connect_to(AGENTS[number % AGENTS.len()]);
                let from = if number < 6 { number * 500_003 } else { 0 };
                let range = if from > 0 { format!("range: bytes={from}-\r\n") } else { String::new() };
                http.send(format!("GET /large HTTP/1.1\r\nhost: site.test\r\n{range}\r\n").as_bytes()).unwrap();
                ready.send(()).unwrap();
                let got = take(&mut http, "GET");
                assert_eq!(got.head.status, if from > 0 { 206 } else { 200 });
                assert!(got.content == expected[from..], "client {number}: {} bytes", got.content.len());
            });
        }
        // If one of them fails, the others go on, too.
        let are_ready = (0..CLIENTS).all(|_| waiting.recv_timeout(READY_MAX).is_ok());
        gate.open(LEN);
        assert!(are_ready);
    });
    first.read_piece(1).unwrap();
    let asked = scene.origin.asked("/large");
    assert_eq!(asked.len(), 1, "{asked:?}");
    for agent in AGENTS {
        let got = ask(&mut scene.connect_to(agent), "GET", "/large", "");
        assert!(got.is_hit(), "{agent}: {}", got.status());
    }
}

/// Each agent has connections to the others afterwards. Otherwise, an agent that is slow to take one would count as away.
fn connect_owners(scene: &Scene) {
    for agent in AGENTS {
        let mut http = scene.connect_to(agent);
        for number in 0..12 {
            ask(&mut http, "GET", &format!("/connect/{agent}/{number}"), "");
        }
    }
}

/// The agent that ends owns a third of the responses, and is the only one that has them.
#[test]
fn an_agent_that_ends_hands_on_what_it_owns() {
    const PATHS: usize = 90;
    let scene = Scene::with(SHARED, "", &settled(), |asked| match asked.path().strip_prefix("/long") {
        Some(_) => Reply::object(asked, 2, 1 << 20, "\"1\"", FRESH),
        None => Reply::ok(FRESH, format!("content of {}", asked.path())),
    });
    let path = |number: usize| if number.is_multiple_of(9) { format!("/long{number}") } else { format!("/{number}") };
    connect_owners(&scene);
    let mut http = scene.connect_to("a1");
    for number in 0..PATHS {
        ask(&mut http, "GET", &path(number), "");
    }
    drop(http);
    let asked = scene.origin.total();
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
    // Until the others know that the agent has gone, they may ask it in vain, and then the origin.
    let again = scene.origin.total() - asked;
    assert!(again < PATHS / 10, "the others had to ask the origin for {again} of about {}", PATHS / 3);
}
