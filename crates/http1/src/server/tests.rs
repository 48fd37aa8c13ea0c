#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;

use http::Response;
use proptest::prelude::*;

use super::*;

const DATE: HeaderValue = HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT");
const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";

fn server() -> Server {
    Server::new(Limits { head_bytes_max: 400, fields_max: 3, target_bytes_max: 20 })
}

/// A server that has parsed the head of a request.
fn due(head: &str) -> Server {
    let mut server = server();
    let consumed = server.parse_request(head.as_bytes()).unwrap().expect("the head is complete").consumed;
    assert_eq!(consumed, head.len());
    server
}

fn head(status: u16, fields: &[(&'static str, &str)]) -> http_response::Parts {
    let mut response = Response::builder().status(status);
    for (name, value) in fields {
        response = response.header(*name, *value);
    }
    response.body(()).unwrap().into_parts().0
}

fn start(server: &mut Server, head: &http_response::Parts, size: ContentSize) -> Result<(Content, String), Misuse> {
    let mut out = b"before".to_vec();
    let content = server.start_response(head, size, &DATE, &mut out);
    let written = String::from_utf8(out).unwrap().split_off("before".len());
    if content.is_err() {
        assert_eq!(written, "", "nothing is written on misuse");
    }
    Ok((content?, written))
}

/// The head that answers a request, without the date.
fn answer(request: &str, status: u16, fields: &[(&'static str, &str)], size: ContentSize) -> (Content, String) {
    let (content, written) = start(&mut due(request), &head(status, fields), size).unwrap();
    let date = format!("date: {}\r\n", DATE.to_str().unwrap());
    assert_eq!(written.matches(&date).count(), 1);
    (content, written.replace(&date, ""))
}

fn state(server: &Server) -> String {
    let receiving = match server.receiving {
        Receiving::Head(end) if end.has_begun() => "Begun",
        Receiving::Head(_) => "Head",
        Receiving::Content(_) => "Content",
        Receiving::Complete => "Complete",
        Receiving::Stopped => "Stopped",
    };
    let sending = match server.sending {
        Sending::Idle => "Idle",
        Sending::Due => "Due",
        Sending::Content(_) => "Content",
        Sending::Complete => "Complete",
    };
    format!("{receiving}/{sending}")
}

/// A server in each state, by the events that lead there.
fn states() -> Vec<(&'static str, Server)> {
    let started = |mut server: Server, size| {
        start(&mut server, &head(200, &[]), size).unwrap();
        server
    };
    let mut begun = server();
    assert!(begun.parse_request(b"GET").unwrap().is_none());
    let mut refused = server();
    refused.parse_request(b"GET /\r\n\r\n").unwrap_err();
    let mut ended = server();
    ended.end_of_input(b"").unwrap();
    let mut tunnel = due("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n");
    start(&mut tunnel, &head(101, &[("connection", "upgrade"), ("upgrade", "x")]), ContentSize::None).unwrap();
    vec![
        ("idle", server()),
        ("begun", begun),
        ("ended", ended),
        ("due, complete", due(GET)),
        ("due, content", due(POST)),
        ("due, refused", refused.clone()),
        ("started, complete", started(due(GET), ContentSize::Unknown)),
        ("started, content", started(due(POST), ContentSize::Unknown)),
        ("started, refused", started(refused.clone(), ContentSize::Unknown)),
        ("done, complete", started(due(GET), ContentSize::None)),
        ("done, content", started(due(POST), ContentSize::None)),
        ("done, refused", started(refused, ContentSize::None)),
        ("tunnel", tunnel),
    ]
}

/// An event, and what it returns, in short.
type Event = (&'static str, fn(&mut Server) -> String);

const EVENTS: [Event; 9] = [
    ("parse_request", |server| match server.parse_request(GET.as_bytes()) {
        Ok(Some(_)) => "request".into(),
        Ok(None) => "-".into(),
        Err(refused) => format!("{:?}", refused.fault),
    }),
    ("decode", |server| match server.decode(b"abc") {
        Ok(decoded) => format!("{} {}", decoded.consumed, if decoded.is_end { "end" } else { "more" }),
        Err(fault) => format!("{fault:?}"),
    }),
    ("informational", |server| {
        short(server.informational(StatusCode::EARLY_HINTS, &HeaderMap::new(), &mut Vec::new()))
    }),
    ("start_response", |server| short(start(server, &head(200, &[]), ContentSize::Unknown).map(|started| started.0))),
    ("encode", |server| short(server.encode(1).map(|framed| framed.prefix().len()))),
    ("finish", |server| short(server.finish(None, &mut Vec::new()))),
    ("abandon_content", |server| {
        server.abandon_content();
        "-".into()
    }),
    ("next_exchange", |server| server.next_exchange().map_or("-".into(), |next| format!("{next:?}"))),
    ("end_of_input", |server| short(server.end_of_input(b""))),
];

fn short<T: std::fmt::Debug, E: std::fmt::Debug>(result: Result<T, E>) -> String {
    result.map_or_else(|error| format!("!{error:?}"), |value| format!("{value:?}"))
}

/// The table has each state, and each event that changes it or has a result. Any other event does nothing, or is
/// misuse.
#[test]
fn every_transition() {
    let mut table = String::new();
    for (name, server) in states() {
        writeln!(table, "{name}: {}", state(&server)).unwrap();
        for (event, apply) in EVENTS {
            let mut server = server.clone();
            let before = state(&server);
            let result = apply(&mut server);
            let after = state(&server);
            if after != before {
                writeln!(table, "  {event}: {result} -> {after}").unwrap();
            } else if result != "-" && result != "!NotDue" {
                writeln!(table, "  {event}: {result}").unwrap();
            }
        }
    }
    assert_eq!(table, include_str!("transitions.txt"), "{table}");
}

/// Idle connections are many.
#[test]
fn a_connection_takes_little_memory() {
    assert!(size_of::<Server>() <= 96, "{}", size_of::<Server>());
}

#[test]
fn requests_stay_in_the_input_until_their_turn() {
    let mut server = server();
    let input = [GET, GET].concat();
    let first = server.parse_request(input.as_bytes()).unwrap().unwrap();
    let rest = &input.as_bytes()[first.consumed..];
    assert!(server.parse_request(rest).unwrap().is_none(), "a response is due");
    start(&mut server, &head(200, &[]), ContentSize::None).unwrap();
    assert!(!server.is_between_requests(rest) && server.next_exchange() == Some(Next::Idle));
    assert!(server.is_idle() && server.is_between_requests(b"") && !server.is_between_requests(rest));
    assert_eq!(server.parse_request(rest).unwrap().unwrap().consumed, rest.len());
}

#[test]
fn empty_lines_before_a_request_are_skipped() {
    let mut server = server();
    for empty in ["\r", "\r\n", "\r\n\n", "\r\n\n\r"] {
        assert!(server.parse_request(empty.as_bytes()).unwrap().is_none());
        assert!(server.is_between_requests(empty.as_bytes()), "{empty:?}");
    }
    let request = server.parse_request(format!("\r\n\n{GET}").as_bytes()).unwrap().unwrap();
    assert_eq!(request.consumed, 3 + GET.len());
    let mut server = self::server();
    assert_eq!(server.parse_request(&b"\r\n".repeat(9)).unwrap_err().fault, RequestFault::EmptyLines);
}

#[test]
fn limits_are_exact() {
    let refused = |target: &str, fields: &[&str]| {
        let mut server = server();
        let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{}\r\n", fields.concat());
        let refused = server.parse_request(text.as_bytes()).err().map(|refused| {
            assert_eq!(refused.consumed, if refused.closes { 0 } else { text.len() });
            (refused.fault, refused.closes)
        });
        // A refusal is a response like any other.
        start(&mut server, &head(200, &[]), ContentSize::None).unwrap();
        assert_eq!(server.next_exchange() == Some(Next::Close), refused.is_some_and(|(_, closes)| closes));
        refused
    };
    let target = |len: usize| format!("/{}", "a".repeat(len - 1));
    assert_eq!(refused(&target(20), &[]), None);
    assert_eq!(refused(&target(21), &[]), Some((RequestFault::TargetLen, false)));
    assert_eq!(refused(&format!("http://a{}", target(20)), &[]), None);
    assert_eq!(refused("/", &["a: b\r\n"; 2]), None);
    assert_eq!(refused("/", &["a: b\r\n"; 3]), Some((RequestFault::Fields, false)));
    assert_eq!(refused("/", &["a:\r\n"; FIELDS_ON_STACK]), Some((RequestFault::HeadLen, true)));
    let others = GET.len() + "a: \r\n".len();
    assert_eq!(refused("/", &[&format!("a: {}\r\n", "b".repeat(400 - others))]), None);
    assert_eq!(refused("/", &[&format!("a: {}\r\n", "b".repeat(401 - others))]), Some((RequestFault::HeadLen, true)));
    assert_eq!(server().parse_request(&[b'a'; 399]).map(drop), Ok(()));
    assert_eq!(server().parse_request(&[b'a'; 400]).unwrap_err().fault, RequestFault::HeadLen);
}

#[test]
fn more_fields_than_usual_are_allocated() {
    let text = |fields: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "a: b\r\n".repeat(fields - 1));
    let parse = |fields_max, fields| {
        let mut server = Server::new(Limits { fields_max, ..Limits::default() });
        server.parse_request(text(fields).as_bytes()).map(|request| request.unwrap().head.headers.len())
    };
    let over = |closes, consumed| Err(Refused { fault: RequestFault::Fields, consumed, closes });
    assert_eq!(parse(100, 100), Ok(100));
    assert_eq!(parse(100, 101), over(true, 0));
    assert_eq!(parse(50, 51), over(false, text(51).len()));
    assert_eq!(parse(200, 200), Ok(200));
    assert_eq!(parse(200, 201), over(true, 0));
}

#[test]
fn a_refused_head_gets_no_content() {
    let mut server = server();
    server.parse_request(b"HEAD /#a HTTP/1.1\r\nHost: a\r\n\r\n").unwrap_err();
    assert_eq!(start(&mut server, &head(400, &[]), ContentSize::Known(3)).unwrap().0, Content::None);
}

/// RFC 9110, section 10.1.1.
#[test]
fn a_100_is_sent_once_if_it_is_wanted() {
    const WAITING: &str = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
    let mut waiting = due(WAITING);
    let mut out = Vec::new();
    assert!(waiting.send_continue(&mut out) && !waiting.send_continue(&mut out));
    assert_eq!(out, b"HTTP/1.1 100 Continue\r\n\r\n");

    let informational = |server: &mut Server, status: u16| {
        server.informational(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), &mut Vec::new())
    };
    assert_eq!(informational(&mut due(WAITING), 100), Ok(true));
    assert_eq!(informational(&mut due(GET), 100), Ok(false));
    assert_eq!(informational(&mut due(GET), 103), Ok(true));
    assert_eq!(informational(&mut due(GET), 101), Err(Misuse::Status));
    assert_eq!(informational(&mut due(GET), 200), Err(Misuse::Status));
    assert_eq!(informational(&mut due("GET / HTTP/1.0\r\n\r\n"), 103), Ok(false));

    let mut sending = due(WAITING);
    sending.decode(b"").unwrap();
    assert!(sending.clone().send_continue(&mut out), "the client still waits");
    sending.decode(b"a").unwrap();
    assert!(!sending.send_continue(&mut out), "the client does not wait");
    assert!(!due(&WAITING.replace("1.1", "1.0")).send_continue(&mut out), "HTTP/1.0 has no 100");
    assert!(!due(&WAITING.replace("th: 3", "th: 0")).send_continue(&mut out), "there is no content");
}

#[test]
fn a_response_instead_of_a_100_ends_the_connection() {
    let waiting = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
    let mut server = due(waiting);
    let (_, written) = start(&mut server, &head(417, &[]), ContentSize::None).unwrap();
    assert!(written.contains("connection: close\r\n"));
    assert_eq!(server.next_exchange(), Some(Next::Close));
}

#[test]
fn fields_of_informational_responses_are_written_without_framing() {
    let (mut out, mut server) = (Vec::new(), due(GET));
    let fields = head(200, &[("link", "</a>"), ("content-length", "3"), ("connection", "close"), ("x", "1")]).headers;
    assert_eq!(server.informational(StatusCode::EARLY_HINTS, &fields, &mut out), Ok(true));
    assert_eq!(String::from_utf8(out).unwrap(), "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\nx: 1\r\n\r\n");
    assert_eq!(state(&server), "Complete/Due");
}

/// RFC 9112, section 6.3; RFC 9110, sections 6.4.1 and 8.6.
#[test]
fn content_is_framed_as_request_and_status_allow() {
    use ContentSize::{Known, Unknown};
    const HEAD: &str = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
    const OLD: &str = "GET / HTTP/1.0\r\n\r\n";
    let length: &[(&str, &str)] = &[("content-length", "3")];
    for (request, status, fields, size, content, written) in [
        (GET, 200, &[][..], Known(3), Content::Length(3), "content-length: 3\r\n"),
        (GET, 200, length, Known(3), Content::Length(3), "content-length: 3\r\n"),
        (GET, 200, length, Unknown, Content::Length(3), "content-length: 3\r\n"),
        (GET, 200, &[], Unknown, Content::Chunked, "transfer-encoding: chunked\r\n"),
        (GET, 200, &[("transfer-encoding", "gzip")], Unknown, Content::Chunked, "transfer-encoding: chunked\r\n"),
        (GET, 200, &[], ContentSize::None, Content::Length(0), "content-length: 0\r\n"),
        (OLD, 200, &[], Unknown, Content::UntilClose, "connection: close\r\n"),
        (OLD, 200, length, Unknown, Content::Length(3), "content-length: 3\r\nconnection: close\r\n"),
        (HEAD, 200, length, ContentSize::None, Content::None, "content-length: 3\r\n"),
        (HEAD, 200, length, Unknown, Content::None, "content-length: 3\r\n"),
        (HEAD, 200, &[], Known(3), Content::None, "content-length: 3\r\n"),
        (HEAD, 200, &[], ContentSize::None, Content::None, ""),
        (HEAD, 200, &[], Unknown, Content::None, ""),
        (GET, 204, length, Known(3), Content::None, ""),
        (GET, 304, length, ContentSize::None, Content::None, ""),
        (GET, 205, &[], ContentSize::None, Content::Length(0), "content-length: 0\r\n"),
    ] {
        let (framed, head) = answer(request, status, fields, size);
        let (line, fields) = head.split_once("\r\n").unwrap();
        assert!(line.starts_with(&format!("{} {status} ", if request == OLD { "HTTP/1.0" } else { "HTTP/1.1" })));
        assert_eq!((framed, fields), (content, &*format!("{written}\r\n")), "{request} {status} {size:?}");
    }
    let misuse = |fields, size| start(&mut due(GET), &self::head(200, fields), size).unwrap_err();
    assert_eq!(misuse(length, Known(4)), Misuse::LengthDiffers);
    assert_eq!(misuse(length, ContentSize::None), Misuse::LengthDiffers);
    assert_eq!(misuse(&[("content-length", "x")], Unknown), Misuse::InvalidLength);
    assert_eq!(misuse(&[("content-length", "3"), ("content-length", "4")], Unknown), Misuse::InvalidLength);
}

/// RFC 9112, section 9.3.
#[test]
fn connections_persist_if_both_sides_agree() {
    let old = |option: &str| format!("GET / HTTP/1.0\r\nConnection: {option}\r\n\r\n");
    let new = |option: &str| format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: {option}\r\n\r\n");
    let close: &[(&str, &str)] = &[("connection", "close")];
    for (request, fields, closing, written, next) in [
        (new("x"), &[][..], false, "", Next::Idle),
        (new("close"), &[], false, "connection: close\r\n", Next::Close),
        (new("x"), close, false, "connection: close\r\n", Next::Close),
        (new("x"), &[], true, "connection: close\r\n", Next::Close),
        (new("x"), &[("connection", "keep-alive")], true, "connection: close\r\n", Next::Close),
        (new("x"), &[("connection", "upgrade, close"), ("upgrade", "a")], true, "upgrade, close\r\n", Next::Close),
        (new("x"), &[("connection", "upgrade"), ("upgrade", "a")], true, "connection: close\r\n", Next::Close),
        (old("keep-alive"), &[], false, "connection: keep-alive\r\n", Next::Idle),
        (old("keep-alive"), close, false, "connection: close\r\n", Next::Close),
        (old("x"), &[], false, "connection: close\r\n", Next::Close),
    ] {
        let mut server = due(&request);
        if closing {
            server.close_after_response();
        }
        let (_, head) = start(&mut server, &head(200, fields), ContentSize::None).unwrap();
        let is_written = head.contains(written) && (!written.is_empty() || !head.contains("connection"));
        assert!(is_written, "{request}{fields:?}: {head}");
        assert_eq!(server.next_exchange(), Some(next), "{request}{fields:?}");
    }
}

/// RFC 9110, section 7.8.
#[test]
fn the_protocol_switches_only_if_the_client_asked() {
    const ASKING: &str = "POST / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n";
    let switch = head(101, &[("connection", "upgrade"), ("upgrade", "x")]);
    let mut server = due(ASKING);
    let (content, written) = start(&mut server, &switch, ContentSize::None).unwrap();
    assert_eq!((content, server.next_exchange()), (Content::None, Some(Next::Tunnel)));
    assert_eq!(written, "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n");
    let mut closing = due(ASKING);
    closing.close_after_response();
    assert_eq!(start(&mut closing, &switch, ContentSize::None).unwrap().1, written, "the tunnel ends by itself");
    for request in
        [GET, &ASKING.replace("1.1", "1.0"), &ASKING.replace("Connection", "A"), &ASKING.replace("Upgrade:", "A:")]
    {
        assert_eq!(start(&mut due(request), &switch, ContentSize::None).unwrap_err(), Misuse::Upgrade, "{request}");
    }
    assert_eq!(start(&mut due(ASKING), &head(102, &[]), ContentSize::None).unwrap_err(), Misuse::Status);
    let mut refused = due(ASKING);
    start(&mut refused, &head(200, &[]), ContentSize::None).unwrap();
    assert_eq!(refused.next_exchange(), Some(Next::Idle));
}

/// RFC 9110, section 6.5.1.
#[test]
fn trailers_go_to_clients_that_take_them() {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", DATE);
    trailers.insert("host", DATE);
    for (fields, is_taken) in [("TE: trailers\r\n", true), ("TE: gzip\r\n", false), ("", false)] {
        let mut server = due(&GET.replace("Host", &format!("{fields}Host")));
        let (_, written) = start(&mut server, &head(200, &[("trailer", "x-sum")]), ContentSize::Unknown).unwrap();
        assert_eq!(written.contains("trailer: x-sum\r\n"), is_taken);
        let mut out = Vec::new();
        server.finish(Some(&trailers), &mut out).unwrap();
        let sent = if is_taken { "0\r\nx-sum: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n" } else { "0\r\n\r\n" };
        assert_eq!(String::from_utf8(out).unwrap(), sent);
    }
}

#[test]
fn a_malformed_content_ends_the_connection() {
    let mut server = due("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(server.decode(b"x"), Err(ContentFault::ChunkSize));
    let (_, written) = start(&mut server, &head(400, &[]), ContentSize::None).unwrap();
    assert!(written.contains("connection: close\r\n"));
    assert_eq!(server.next_exchange(), Some(Next::Close));
}

#[test]
fn a_client_may_end_its_stream_before_the_response() {
    let mut server = due(GET);
    assert_eq!(server.end_of_input(b""), Ok(()));
    let (_, written) = start(&mut server, &head(200, &[]), ContentSize::None).unwrap();
    assert!(written.contains("connection: close\r\n"));
    assert_eq!(server.next_exchange(), Some(Next::Close));
    assert_eq!(self::server().end_of_input(b"\r\n"), Ok(()));
    assert_eq!(self::server().end_of_input(b"G"), Err(Truncated::Head));
}

proptest! {
    /// A request in any pieces is read as in one.
    #[test]
    fn any_split_reads_alike(
        text in "(\r\n){0,2}(GET|HEAD|P) (/|\\*|http://a/)(#)? HTTP/1.[012]\r?\n(Host: ?a\r?\n|A:b\r\n|Content-Length: [0-9]\r\n| x){0,4}\r\n(\r\n)?(GET)?",
        size in 1usize..20,
    ) {
        let read = |size: usize| {
            let (mut server, mut len) = (server(), 0);
            loop {
                len = (len + size).min(text.len());
                match server.parse_request(&text.as_bytes()[..len]) {
                    Ok(Some(request)) => return Ok(Some((request.consumed, format!("{:?}", request.head)))),
                    Ok(None) if len == text.len() => return Ok(None),
                    Ok(None) => {}
                    Err(refused) => return Err(refused),
                }
            }
        };
        prop_assert_eq!(read(size), read(text.len()));
    }
}
