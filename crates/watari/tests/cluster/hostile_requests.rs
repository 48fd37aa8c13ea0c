//! Invalid requests, and requests that two servers might parse differently (RFC 9112, section 11.2). The agent refuses
//! them before any part reaches an origin, or rewrites them so that they have one meaning only.

use std::sync::Arc;

use crate::clients::h2::{Answer, H2, PROTOCOL_ERROR, STATUS_200, STATUS_400, STATUS_LITERAL};
use crate::clients::http::{Fault, Http};
use crate::clients::tls::{Taste, Tls};
use crate::harness::recorder::{Recorded, Recorder};
use crate::harness::site::SITE;
use crate::harness::wait::until_some;
use crate::harness::{Cluster, Content, Plan};

/// A cluster before an origin that records.
struct Scene {
    cluster: Arc<Cluster>,
    origin: Recorder,
}

impl Scene {
    fn set() -> Self {
        let origin = Recorder::start();
        let plan = Plan {
            content: Content::Behind(vec![format!("http://{}", origin.address)]),
            agents: Some(&["a1"]),
            ..Plan::default()
        };
        Self { cluster: Arc::new(Cluster::start(&plan)), origin }
    }

    fn connect(&self) -> Http<Tls> {
        let tls = Tls::to_site(self.cluster.clients.any(), self.cluster.service, &Taste::default()).unwrap();
        Http::new(tls)
    }

    /// Sends `bytes`. Returns the status that the client gets, and whether its connection is closed. The data behind
    /// `bytes` must never become a request.
    fn request(&self, bytes: &[u8]) -> (Option<u16>, bool) {
        let mut client = self.connect();
        // The agent may not read the rest any more.
        let _ = client.send(&[bytes, b"GET /smuggled HTTP/1.1\r\nhost: site.test\r\n\r\n"].concat());
        let status = match client.read_head() {
            Ok(head) => Some(head.status),
            Err(Fault::Wrong(wrong)) => panic!("{wrong}"),
            Err(_) => None,
        };
        (status, client.ends_cleanly())
    }

    /// The only recorded request with `target`.
    fn recorded(&self, target: &str) -> Recorded {
        until_some("the request is recorded", || {
            let [request] = &self.origin.requests_with(target)[..] else { return None };
            request.is_whole.then(|| request.clone())
        })
    }
}

/// A request to `target`, with these lines after the first.
fn request(method: &str, target: &str, lines: &str) -> Vec<u8> {
    format!("{method} {target} HTTP/1.1\r\n{lines}").into_bytes()
}

fn with_host(lines: &str) -> String {
    format!("host: {SITE}\r\n{lines}")
}

#[test]
fn heads_that_are_wrong_reach_no_origin() {
    let scene = Scene::set();
    let long = format!("x: {}\r\n\r\n", "x".repeat(70_000));
    let many: String = (0..101).map(|n| format!("x-{n}: 1\r\n")).chain(["\r\n".to_owned()]).collect();
    let chunk = "\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let absolute = |scheme: &str| format!("{scheme}://{SITE}/wrong");
    let coding = |value: &str| with_host(&format!("transfer-encoding: {value}{chunk}"));
    let length = |value: &str| with_host(&format!("content-length: {value}\r\n\r\nhello"));
    let field = |line: &str| with_host(&format!("{line}\r\n\r\n"));
    let cases = [
        (400, length("5\r\ncontent-length: 6")),
        (400, length("5, 6")),
        (400, length("5, 5")),
        (400, length("+5")),
        (400, length("-5")),
        (400, length("0x5")),
        (400, length("5 5")),
        (400, length("")),
        (400, length("five")),
        (400, length("18446744073709551616")),
        (400, coding("chunked, chunked")),
        (400, coding("chunked\r\ntransfer-encoding: chunked")),
        (400, coding("chunked, identity")),
        (400, coding("chunked;q=1")),
        (400, coding("xchunked")),
        (400, coding("identity")),
        (400, coding("\u{b}chunked")),
        (501, coding("gzip, chunked")),
        (501, coding("gzip\r\ntransfer-encoding: chunked")),
        (400, field("x: 1\r\n folded")),
        (400, field("x : 1")),
        (400, field("x\t: 1")),
        (400, field("x: a\rb")),
        (400, field("x: a\0b")),
        (400, field("no colon")),
        (400, field(": no name")),
        (400, field("a name: 1")),
        (400, " host: site.test\r\n\r\n".to_owned()),
        (400, "x: nobody\r\n\r\n".to_owned()),
        (400, field("host: site.test")),
        (400, field("host: other.test")),
        (400, "host: a b\r\n\r\n".to_owned()),
        (400, "host: a/b\r\n\r\n".to_owned()),
        (400, "host: user@site.test\r\n\r\n".to_owned()),
        (400, "host:\r\n\r\n".to_owned()),
        (431, with_host(&long)),
        (431, with_host(&many)),
    ];
    for (status, lines) in cases {
        assert_eq!(scene.request(&request("POST", "/wrong", &lines)), (Some(status), true), "{lines:.200?}");
    }
    let host = with_host("\r\n");
    for (status, bytes) in [
        (501, request("TRACE", "/wrong", &host)),
        (400, request("GET", "*", &host)),
        (400, request("GET", "wrong.test:80", &host)),
        (501, request("PRI", "/wrong", &host)),
        (400, request("GET", &absolute("ftp"), &host)),
        (400, request("GET", &absolute("file"), &host)),
        (501, request("CONNECT", "/wrong", &host)),
        (501, request("CONNECT", "wrong.test:80", &host)),
        (400, request("GE(T", "/wrong", &host)),
        (400, request("GET", "/wrong with spaces", &host)),
        (400, request("GET", " /wrong", &host)),
        (505, format!("GET /wrong HTTP/1.2\r\n{host}").into_bytes()),
        (505, format!("GET /wrong HTTP/2.0\r\n{host}").into_bytes()),
        (400, format!("GET /wrong http/1.1\r\n{host}").into_bytes()),
        (400, b"GET /wrong\r\n\r\n".to_vec()),
        (400, format!("POST /wrong HTTP/1.0\r\n{}", coding("chunked")).into_bytes()),
        (431, request("GET", &format!("/wrong{}", "x".repeat(66_000)), &host)),
    ] {
        let (said, ends_cleanly) = scene.request(&bytes);
        assert_eq!((said, ends_cleanly), (Some(status), true), "{:.200?}", String::from_utf8_lossy(&bytes));
    }
    // HTTP/2 without ALPN.
    assert_eq!(scene.request(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), (Some(505), true));
    assert!(scene.origin.requests_with("wrong").is_empty() && scene.origin.requests_with("*").is_empty());
    assert!(scene.origin.requests_with("smuggled").is_empty());
}

/// The head has been forwarded by then. The origin can detect that the rest is missing.
#[test]
fn content_that_is_wrong_is_cut() {
    let scene = Scene::set();
    let long = format!("1;{}\r\nx", "x".repeat(20_000));
    let trailers = format!("0\r\n{}\r\n", "x: 1\r\n".repeat(200));
    for (number, content) in [
        "0x5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "5\nhello\n0\n\n",
        "5\rhello\r\n0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5;a=\n1\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nx : 1\r\n\r\n",
        "5\r\nhello\r\n0\r\nx: a\0b\r\n\r\n",
        "5\r\nhello\r\n0\r\nx: 1\r\n folded\r\n\r\n",
        long.as_str(),
        trailers.as_str(),
    ]
    .into_iter()
    .enumerate()
    {
        let target = format!("/cut{number}-");
        let lines = with_host(&format!("transfer-encoding: chunked\r\n\r\n{content}"));
        let (status, _) = scene.request(&request("POST", &target, &lines));
        assert!(matches!(status, Some(400) | None), "{content:.100?}: {status:?}");
        let came = scene.origin.requests_with(&target);
        assert!(came.iter().all(|request| !request.is_whole), "{content:.100?}: {came:?}");
    }
    assert!(scene.origin.requests_with("smuggled").is_empty());
}

#[test]
fn what_can_be_read_in_one_way_goes_on_in_one_way() {
    let scene = Scene::set();
    let chunks = "5;ext=\"a\"\r\nhello\r\n0\r\n\r\n";
    let both = "host: site.test\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n";
    let both_otherwise = "host: site.test\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n";
    for (target, lines, closes) in [
        ("/both", format!("{both}{chunks}"), true),
        ("/otherwise", format!("{both_otherwise}{chunks}"), true),
        ("/tab", with_host(&format!("transfer-encoding:\tChunked \r\n\r\n{chunks}")), false),
        ("/extended", with_host(&format!("transfer-encoding: chunked\r\n\r\n{chunks}")), false),
        ("/twice", with_host("content-length: 5\r\ncontent-length: 5\r\n\r\nhello"), false),
        ("/zeros", with_host("content-length: 0005\r\n\r\nhello"), false),
        ("/line-feeds", "host: site.test\ncontent-length: 5\n\nhello".to_owned(), false),
        (
            "/underscores",
            with_host("content_length: 2\r\ntransfer_encoding: chunked\r\ncontent-length: 5\r\n\r\nhello"),
            false,
        ),
        (
            "/connection",
            with_host("connection: content-length, x-secret\r\nx-secret: 1\r\ncontent-length: 5\r\n\r\nhello"),
            false,
        ),
    ] {
        let mut client = scene.connect();
        client.send(&request("POST", target, &lines)).unwrap();
        assert_eq!(client.take_text().unwrap(), "ok", "{target}");
        let came = scene.recorded(target);
        assert_eq!(came.content, b"hello", "{target}");
        let framings = came.fields("content-length").len() + came.fields("transfer-encoding").len();
        let doubtful =
            ["content_length", "transfer_encoding", "x-secret", "connection"].map(|name| came.fields(name).len());
        assert_eq!((framings, doubtful), (1, [0; 4]), "{came:?}");
        if closes {
            assert!(client.ends_cleanly(), "{target}");
        } else {
            assert_eq!(client.get_text("/next", "").unwrap(), "ok", "{target}");
        }
    }
    let mut client = scene.connect();
    client.send(&request("GET", "http://site.test/absolute", "host: other.test\r\n\r\n")).unwrap();
    assert_eq!(client.take_text().unwrap(), "ok");
    assert_eq!(scene.recorded("/absolute").fields("host"), [SITE]);
    client.send(&request("GET", "http://site.test?query", "host: other.test\r\n\r\n")).unwrap();
    assert_eq!(client.take_text().unwrap(), "ok");
    assert_eq!(scene.recorded("/?query").fields("host"), [SITE]);
}

/// Fields that HTTP/2 forbids, and malformed ones (RFC 9113, section 8).
#[test]
fn malformed_streams_reach_no_origin() {
    let scene = Scene::set();
    let connect = || H2::connect(scene.cluster.clients.any(), scene.cluster.service);
    let pseudo = [(":method", "GET"), (":scheme", "https"), (":authority", SITE), (":path", "/wrong")];
    let behind = |name, value| pseudo.iter().copied().chain([(name, value)]).collect::<Vec<_>>();
    let without = |name| pseudo.iter().copied().filter(|field| field.0 != name).collect::<Vec<_>>();
    let with = |name, value| pseudo.map(|field| if field.0 == name { (name, value) } else { field }).to_vec();
    let cases = [
        behind("connection", "close"),
        behind("transfer-encoding", "chunked"),
        behind("upgrade", "websocket"),
        behind("keep-alive", "timeout=5"),
        behind("proxy-connection", "close"),
        behind("te", "gzip"),
        behind("X-Upper", "1"),
        behind("x", "a\r\nb: c"),
        behind("x", "a\nb"),
        behind("x", "a\0b"),
        behind("x y", "1"),
        behind("", "1"),
        behind(":path", "/wrong"),
        behind(":unknown", "1"),
        behind(":status", "200"),
        [vec![("x", "1")], pseudo.to_vec()].concat(),
        without(":method"),
        without(":scheme"),
        without(":path"),
        with(":path", ""),
        with(":path", "/wrong HTTP/1.1\r\nx: y"),
        with(":method", "GET / HTTP/1.1"),
        with(":path", "?q"),
        with(":path", "wrong"),
        with(":path", "*"),
        with(":path", "*?q"),
        with(":method", "PRI"),
        with(":method", ""),
        with(":scheme", "ftp"),
        with(":scheme", "http"),
        with(":scheme", ""),
        with(":authority", "user@site.test"),
        with(":authority", ""),
        with(":authority", ":80"),
        with(":authority", "a b"),
        behind("host", "other.test"),
        behind("content-length", "5"),
        behind("content-length", ""),
        behind("content-length", "-5"),
        [behind("host", SITE), vec![("host", SITE)]].concat(),
        // CONNECT has no scheme and no path, unless it is extended CONNECT (RFC 9113, section 8.5; RFC 8441, section
        // 4).
        with(":method", "CONNECT"),
        vec![(":method", "CONNECT"), (":authority", SITE)],
        vec![(":method", "CONNECT"), (":authority", SITE), (":protocol", "websocket")],
        vec![(":method", "GET"), (":authority", SITE)],
    ];
    for fields in cases {
        let mut h2 = connect();
        h2.begin(1, &fields, true);
        let answer = h2.read_status(1);
        let refused = [
            Answer::Reset(PROTOCOL_ERROR),
            Answer::GoAway(PROTOCOL_ERROR),
            Answer::Head(STATUS_400),
            Answer::Head(STATUS_LITERAL),
        ];
        assert!(refused.contains(&answer), "{fields:?}: {answer:?}");
    }
    assert!(scene.origin.requests_with("wrong").is_empty());
    let mut h2 = connect();
    h2.begin(1, &with(":path", "/right"), true);
    assert_eq!(h2.read_status(1), Answer::Head(STATUS_200));
}

/// RFC 9113, section 8.1: no pseudo-header fields in trailers. Other fields pass.
#[test]
fn pseudo_header_fields_in_trailers_are_malformed() {
    let scene = Scene::set();
    let mut h2 = H2::connect(scene.cluster.clients.any(), scene.cluster.service);
    let cases = [(":path", "/"), (":method", "GET"), (":status", "200"), (":authority", SITE), ("x-sum", "7")];
    for (stream, (name, value)) in (1..).step_by(2).zip(cases) {
        let target = format!("/trailers{stream}-");
        h2.begin(stream, &[(":method", "POST"), (":scheme", "https"), (":authority", SITE), (":path", &target)], false);
        h2.data(stream, b"hello", false);
        h2.begin(stream, &[(name, value)], true);
        let answer = h2.read_status(stream);
        let expected = if name == "x-sum" { Answer::Head(STATUS_200) } else { Answer::Reset(PROTOCOL_ERROR) };
        assert_eq!(answer, expected, "{name}");
        if name == "x-sum" {
            let came = scene.recorded(&target);
            assert_eq!((&came.content[..], came.fields("max-forwards").len()), (&b"hello"[..], 0), "{came:?}");
        } else {
            let came = scene.origin.requests_with(&target);
            assert!(came.iter().all(|request| !request.is_whole), "{name}: {came:?}");
        }
    }
}

#[test]
fn a_stream_whose_content_is_not_as_long_as_it_says_is_cut() {
    let scene = Scene::set();
    let mut h2 = H2::connect(scene.cluster.clients.any(), scene.cluster.service);
    for (stream, length) in [(1, "4"), (3, "6")] {
        let target = format!("/stream{stream}-");
        let fields = [(":method", "POST"), (":scheme", "https"), (":authority", SITE), (":path", &target)];
        h2.begin(stream, &[&fields[..], &[("content-length", length)]].concat(), false);
        h2.data(stream, b"hello", true);
        let answer = h2.read_status(stream);
        assert_eq!(answer, Answer::Reset(PROTOCOL_ERROR), "{length}");
        let came = scene.origin.requests_with(&target);
        assert!(came.iter().all(|request| !request.is_whole), "{came:?}");
    }
}
