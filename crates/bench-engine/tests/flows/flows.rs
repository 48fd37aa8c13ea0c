//! Flows against a shop that sells only to clients that submitted its forms.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use watari_bench_engine::ending::EndingKind;
use watari_bench_engine::flow::Flow;
use watari_bench_engine::load::{Finished, Load};
use watari_bench_engine::plan::{Pace, Plan, Protocol, Stop, Timeouts, Work};
use watari_bench_engine::schedule::{Rate, Schedule, Spacing};
use watari_bench_engine::site::Site;
use watari_bench_engine::tls::TlsOptions;

use crate::server::{Asked, Server};

const FLOW: &str = r#"
[[step]]
name = "form"
uri = "/form?user=${user}"
take.token = { regex = 'token=(\w+)' }

[[step]]
name = "order"
think = "1ms"
uri = "/order"
body = "token=${token}"
expect = 303
take.place = { header = "location" }

[[step]]
name = "done"
uri = "${place}"
"#;

/// Hands out tokens and cookies in pairs, and accepts orders only with both of a pair.
fn shop() -> Server {
    let next = AtomicU64::new(0);
    Server::plain(move |asked: &Asked| {
        let cookie = asked.field("cookie").and_then(|cookie| cookie.strip_prefix("id="));
        if asked.line.starts_with("GET /form") {
            let id = next.fetch_add(1, Ordering::Relaxed);
            (200, format!("set-cookie: id={id}\r\n"), format!("<form token=t{id}x>"))
        } else if asked.line.starts_with("POST /order") {
            let good = cookie.is_some_and(|id| asked.body == format!("token=t{id}x"));
            if good { (303, format!("location: /done/{}\r\n", cookie.unwrap()), String::new()) } else { answer(403) }
        } else {
            let place = format!("GET /done/{} HTTP/1.1", cookie.unwrap_or("?"));
            answer(if asked.line == place { 200 } else { 404 })
        }
    })
}

fn answer(status: u16) -> (u16, String, String) {
    (status, String::new(), String::new())
}

fn run(server: &Server, flow: &str, pace: Pace, flows: u64) -> Finished {
    let url = format!("http://{}/", server.address);
    let flow = Flow::parse(Path::new("shop.toml"), flow, &url.parse().unwrap(), 1).unwrap();
    let plan = Plan {
        work: Work::Flow { flow: Arc::new(flow), site: Arc::new(Site::resolve(&url).unwrap().0), seed: 1 },
        sources: None,
        pace,
        stop: Stop { requests: Some(flows), after: None },
        protocol: Protocol::Http1 { requests_per_connection: None, pipeline: 1 },
        tls: TlsOptions::default(),
        timeouts: Timeouts::default(),
        threads: 2,
    };
    Load::start(plan, None).unwrap().finish()
}

/// For each step, the number of its requests, and how many of them ended this way.
fn ended(finished: &Finished, kind: EndingKind) -> Vec<(u64, u64)> {
    let parts = (0..finished.tally.classes().len()).map(|class| finished.tally.by_class(class));
    parts.map(|part| (part.requests, part.endings.of(kind))).collect()
}

/// Completed flows, and failed flows.
fn flows(finished: &Finished) -> (u64, u64) {
    let flows = finished.tally.flows();
    (flows.done.count(), flows.failed)
}

#[test]
fn users_go_through_their_flow_each_with_what_is_his() {
    let server = shop();
    let finished = run(&server, FLOW, Pace::Closed { connections: 4 }, 50);
    assert_eq!(ended(&finished, EndingKind::Normal), [(50, 50), (50, 50), (50, 50)]);
    assert_eq!(finished.tally.total().connections.opened, 50, "a connection for each user");
    assert_eq!((finished.tally.given_up(), finished.causes.len()), (0, 0));
    assert_eq!(flows(&finished), (50, 0));
    let lines: HashSet<_> = server.asked().into_iter().map(|asked| asked.line).collect();
    assert!((0..50).all(|user| lines.contains(&format!("GET /form?user={user} HTTP/1.1"))));
    assert_eq!(server.asked().len(), 150);
}

#[test]
fn flows_begin_when_they_are_due() {
    let server = shop();
    let schedule = Schedule::new(Rate::constant(500.0).unwrap(), Spacing::Even);
    let finished = run(&server, FLOW, Pace::Open { schedule, connections_max: 100 }, 40);
    assert_eq!(ended(&finished, EndingKind::Normal), [(40, 40), (40, 40), (40, 40)]);
    assert_eq!(finished.tally.lags().count(), 40);
}

#[test]
fn a_flow_ends_at_the_answer_that_lacks_something() {
    let server = shop();
    let finished = run(&server, &FLOW.replace("token=(", "ticket=("), Pace::Closed { connections: 2 }, 10);
    assert_eq!(ended(&finished, EndingKind::Local), [(10, 10), (0, 0), (0, 0)]);
    let note = "step form: no value for \"token\": the response does not contain it".to_owned();
    assert_eq!((finished.causes.clone(), flows(&finished)), (BTreeMap::from([(note, 10)]), (0, 10)));
    assert_eq!(server.asked().len(), 10);
}

#[test]
fn a_flow_ends_at_a_status_that_is_not_expected() {
    let server = shop();
    let finished = run(&server, &FLOW.replace("${token}", "forged"), Pace::Closed { connections: 2 }, 10);
    assert_eq!(ended(&finished, EndingKind::Normal), [(10, 10), (10, 0), (0, 0)]);
    assert_eq!(ended(&finished, EndingKind::Mismatch), [(10, 0), (10, 10), (0, 0)]);
    assert_eq!(finished.causes.keys().collect::<Vec<_>>(), ["step order: status 403 is not expected"]);
}

#[test]
fn a_request_that_cannot_be_made_is_counted_and_not_sent() {
    let server = shop();
    let elsewhere = FLOW.replace("uri = \"${place}\"", "uri = \"http://127.0.0.9${place}\"");
    let finished = run(&server, &elsewhere, Pace::Closed { connections: 2 }, 10);
    assert_eq!(ended(&finished, EndingKind::Local), [(10, 0), (10, 0), (10, 10)]);
    assert_eq!(finished.causes.keys().collect::<Vec<_>>(), ["step done: this leads to another site"]);
    assert_eq!(server.asked().len(), 20);
}

#[test]
fn cookies_are_not_kept_unless_the_flow_says_so() {
    let finished = run(&shop(), &format!("cookies = false\n{FLOW}"), Pace::Closed { connections: 2 }, 10);
    assert_eq!(ended(&finished, EndingKind::Mismatch), [(10, 0), (10, 10), (0, 0)]);
}

#[test]
fn a_flow_goes_on_over_another_connection() {
    let server = Server::plain(|asked| {
        let place = asked.line.split(' ').nth(1).unwrap();
        (200, "x-last: 1\r\n".to_owned(), format!("next=/a{place}"))
    });
    let step = |name: &str, uri: &str| {
        format!("[[step]]\nname = '{name}'\nuri = '{uri}'\ntake.next = {{ regex = 'next=(.*)' }}\nthink = '5ms'\n")
    };
    let flow = step("one", "/x") + &step("two", "${next}") + &step("three", "${next}");
    let finished = run(&server, &flow, Pace::Closed { connections: 2 }, 10);
    assert_eq!(ended(&finished, EndingKind::Normal), [(10, 10), (10, 10), (10, 10)]);
    assert_eq!(finished.tally.total().connections.opened, 30);
    let took = &finished.tally.flows().done;
    assert!(took.count() == 10 && took.min() >= Some(Duration::from_millis(15)), "{took:?}");
    let lines = server.asked().into_iter().map(|asked| asked.line);
    assert_eq!(lines.filter(|line| line == "GET /a/a/x HTTP/1.1").count(), 10);
}
