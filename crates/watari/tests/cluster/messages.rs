//! Messages with parts that proxies may lose: interim responses, trailers, responses without content.

use std::net::TcpListener;

use crate::clients::curl::{Curl, Manner};
use crate::clients::h2::{Answer, H2, STATUS_200, STATUS_LITERAL};
use crate::clients::http::{Fault, Http};
use crate::clients::tls::{Taste, Tls, reset};
use crate::harness::ctl;
use crate::harness::recorder::Recorder;
use crate::harness::site::SITE;
use crate::harness::wait::{until, until_some};
use crate::harness::{Cluster, Content, Plan};

fn set() -> (Cluster, Recorder) {
    let origin = Recorder::start();
    let plan = Plan {
        content: Content::Behind(vec![format!("http://{}", origin.address)]),
        agents: Some(&["a1"]),
        ..Plan::default()
    };
    (Cluster::start(&plan), origin)
}

fn connect(cluster: &Cluster) -> Http<Tls> {
    Http::new(Tls::to_site(cluster.clients.any(), cluster.service, &Taste::default()).unwrap())
}

fn put(target: &str, lines: &str) -> Vec<u8> {
    format!("PUT {target} HTTP/1.1\r\nhost: {SITE}\r\n{lines}\r\n").into_bytes()
}

#[test]
fn a_client_sends_its_content_when_the_origin_wants_it() {
    let (cluster, origin) = set();
    let mut client = connect(&cluster);
    let asking = "content-length: 5\r\nexpect: 100-continue\r\n";
    for target in ["/continued", "/silent"] {
        client.send(&put(target, asking)).unwrap();
        assert_eq!(client.read_head().unwrap().status, 100, "{target}");
        let [asked] = &origin.requests_with(target)[..] else { panic!("{target} was not asked for") };
        assert!(asked.fields("expect") == ["100-continue"] && asked.content.is_empty() && !asked.is_whole);
        client.send(b"hello").unwrap();
        assert_eq!(client.take_text().unwrap(), "ok");
        assert_eq!(origin.requests_with(target)[0].content, b"hello");
    }
    client.send(&put("/refused", asking)).unwrap();
    assert_eq!(client.read_head().unwrap().status, 413);
    assert!(client.ends_cleanly(), "it is unknown whether content will follow");
}

#[test]
fn informational_responses_of_an_origin_reach_the_client() {
    let (cluster, _origin) = set();
    let mut client = connect(&cluster);
    for _ in 0..2 {
        client.send(&put("/hinted", "content-length: 5\r\n")).unwrap();
        let hints = client.read_head().unwrap();
        assert_eq!((hints.status, hints.field("link"), hints.field("x-hop")), (103, Some("</style.css>"), None));
        let resumable = client.read_head().unwrap();
        assert_eq!((resumable.status, resumable.field("location")), (104, Some("/upload")));
        client.send(b"hello").unwrap();
        assert_eq!(client.take_text().unwrap(), "ok");
    }
}

#[test]
fn informational_responses_reach_a_stream() {
    let (cluster, _origin) = set();
    let mut h2 = H2::connect(cluster.clients.any(), cluster.service);
    let head = [(":method", "GET"), (":scheme", "https"), (":authority", SITE), (":path", "/hinted")];
    h2.begin(1, &head, true);
    for status in [STATUS_LITERAL, STATUS_LITERAL, STATUS_200] {
        assert_eq!(h2.read_status(1), Answer::Head(status));
    }
}

#[test]
fn trailers_pass_both_ways() {
    let (cluster, origin) = set();
    let mut client = connect(&cluster);
    let lines = "transfer-encoding: chunked\r\ntrailer: x-up, content-length\r\nte: trailers\r\n";
    let content = b"2\r\nhi\r\n0\r\nx-up: 1\r\ncontent-length: 7\r\n\r\n";
    client.send(&[&put("/trailers", lines)[..], content].concat()).unwrap();
    assert_eq!(client.read_head().unwrap().status, 200);
    let response = until_end(&mut client, b"\r\n\r\n");
    assert_eq!(response, "2\r\nok\r\n0\r\nx-sum: 42\r\n\r\n");
    let [request] = &origin.requests_with("/trailers")[..] else { panic!("it has come once") };
    assert_eq!((&request.content[..], request.trailers.as_str()), (&b"hi"[..], "x-up: 1\n"));
}

#[test]
fn trailers_pass_to_a_stream() {
    let (cluster, _origin) = set();
    let mut h2 = H2::connect(cluster.clients.any(), cluster.service);
    let head =
        [(":method", "GET"), (":scheme", "https"), (":authority", SITE), (":path", "/trailers"), ("te", "trailers")];
    h2.begin(1, &head, true);
    assert_eq!(h2.read_status(1), Answer::Head(STATUS_200));
    assert!(matches!(h2.read_status(1), Answer::Head(_)), "a second block follows the content");
}

#[test]
fn responses_without_content_say_so() {
    let (cluster, _origin) = set();
    let mut client = connect(&cluster);
    // With a 304, the agent sends no length, which is optional (RFC 9110, section 8.6).
    for (method, target, status, length) in [
        ("HEAD", "/", 200, Some(2)),
        ("GET", "/nothing", 204, None),
        ("GET", "/same", 304, None),
        ("HEAD", "/same", 304, None),
    ] {
        client.send(format!("{method} {target} HTTP/1.1\r\nhost: {SITE}\r\n\r\n").as_bytes()).unwrap();
        let head = client.read_head().unwrap();
        assert_eq!((head.status, head.len().ok()), (status, length), "{method} {target}");
    }
    assert_eq!(client.get_text("/", "").unwrap(), "ok", "nothing was left over");
}

/// Only GET gets the text of an error that the agent makes.
#[test]
fn errors_in_responses_to_head_have_no_content() {
    let (cluster, _origin) = set();
    let (ca, dir, service) = (cluster.site_ca(), cluster.dir(), cluster.service);
    for manner in Manner::all() {
        let curl = Curl { manner, source: cluster.clients.any(), service, ca: &ca, dir };
        let get = curl.run("/a/../b", &["--path-as-is"]);
        let head = curl.run("/a/../b", &["--path-as-is", "--head"]);
        assert_eq!((get.status, head.status), (400, 400), "{manner:?}");
        assert_eq!(head.field("content-length"), Some(get.body.len().to_string().as_str()), "{manner:?}");
    }
}

/// The agent drops the request of a client that has left, and frees its slot.
#[test]
fn a_client_that_leaves_leaves_nothing_at_an_origin() {
    // The kernel accepts the connections, and no process serves them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let content = Content::Behind(vec![format!("http://{}", silent.local_addr().unwrap())]);
    let cluster = Cluster::start(&Plan { content, agents: Some(&["a1"]), ..Plan::default() });
    let in_flight = || ctl::origins(&cluster.node("a1").admin())[0]["origins"][0]["requests"].as_u64().unwrap();
    let ways: [fn(&Tls); 2] = [|_| {}, |client| reset(client.tcp())];
    for prepare in ways {
        let mut client = connect(&cluster);
        client.send(format!("GET / HTTP/1.1\r\nhost: {SITE}\r\n\r\n").as_bytes()).unwrap();
        until("the origin is asked", || in_flight() == 1);
        prepare(&client.stream);
        drop(client);
        until("it is forgotten", || in_flight() == 0);
    }
    assert_eq!(cluster.node("a1").count("watari_proxy_failures_total", ""), 0, "not because the origin was silent");
}

/// All data up to these bytes.
fn until_end(client: &mut Http<Tls>, end: &[u8]) -> String {
    let mut bytes = Vec::new();
    until_some("the response ends", || {
        match client.read_piece(1024) {
            Ok(piece) => bytes.extend(piece),
            Err(Fault::Wrong(wrong)) => panic!("{wrong}"),
            Err(other) => panic!("{other:?}"),
        }
        bytes.ends_with(end).then(|| String::from_utf8(bytes.clone()).unwrap())
    })
}
