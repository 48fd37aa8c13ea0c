#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;

use http::{HeaderValue, Request};
use proptest::prelude::*;

use super::*;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
const EMPTY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const CLOSING: &str = "HTTP/1.1 200 OK\r\n\r\n";
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n";

fn head(method: &str, target: &str, fields: &[(&str, &str)]) -> http_request::Parts {
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn client() -> Client {
    Client::new(Limits { head_bytes_max: 200, fields_max: 4, ..Limits::default() })
}

fn start(client: &mut Client, head: &http_request::Parts, size: ContentSize) -> Result<(Content, String), Misuse> {
    let mut out = b"before".to_vec();
    let content = client.start_request(head, size, &mut out);
    let written = String::from_utf8(out).unwrap().split_off("before".len());
    if content.is_err() {
        assert_eq!(written, "", "nothing is written on misuse");
    }
    Ok((content?, written))
}

/// A client that has sent the head of a request.
fn sent(method: &str, fields: &[(&str, &str)], size: ContentSize) -> Client {
    let mut client = client();
    let fields = [&[("host", "a")], fields].concat();
    start(&mut client, &head(method, "/", &fields), size).unwrap();
    client
}

fn state(client: &Client) -> String {
    let receiving = match client.receiving {
        Receiving::Idle => "Idle",
        Receiving::Head(end) if end.has_begun() => "Begun",
        Receiving::Head(_) => "Head",
        Receiving::Content(_) => "Content",
        Receiving::Complete => "Complete",
        Receiving::Stopped => "Stopped",
    };
    let sending = match client.sending {
        Sending::Idle => "Idle",
        Sending::Content(_) => "Content",
        Sending::Complete => "Complete",
        Sending::Stopped => "Stopped",
    };
    format!("{receiving}/{sending}")
}

/// A client in each state, by the events that lead there.
fn states() -> Vec<(&'static str, Client)> {
    let after = |mut client: Client, response: &str| {
        client.parse_response(response.as_bytes()).unwrap();
        client
    };
    let abandoned = |mut client: Client| {
        client.abandon_content();
        client
    };
    let get = || sent("GET", &[], ContentSize::None);
    let post = || sent("POST", &[], ContentSize::Unknown);
    let mut faulty = post();
    faulty.parse_response(b"x\n\n").unwrap_err();
    let mut ended = client();
    ended.end_of_input().unwrap();
    vec![
        ("idle", client()),
        ("ended", ended),
        ("sent", get()),
        ("sent, begun", after(get(), "HTTP")),
        ("sent, in content", after(get(), OK)),
        ("sent, in content until close", after(get(), CLOSING)),
        ("sent, complete", after(get(), EMPTY)),
        ("sending", post()),
        ("sending, in content", after(post(), OK)),
        ("sending, complete", after(post(), EMPTY)),
        ("sending, faulty", faulty),
        ("abandoned", abandoned(post())),
        ("abandoned, in content", after(abandoned(post()), OK)),
        ("abandoned, complete", after(abandoned(post()), EMPTY)),
        ("tunnel", after(sent("GET", &[("upgrade", "x"), ("connection", "upgrade")], ContentSize::None), SWITCH)),
    ]
}

/// An event, and what it returns, in short.
type Event = (&'static str, fn(&mut Client) -> String);

const EVENTS: [Event; 8] = [
    ("start_request", |client| {
        short(client.start_request(&head("GET", "http://a", &[]), ContentSize::None, &mut vec![]))
    }),
    ("encode", |client| short(client.encode(1).map(|framed| framed.prefix().len()))),
    ("finish", |client| short(client.finish(None, &mut Vec::new()))),
    ("abandon_content", |client| {
        client.abandon_content();
        "-".into()
    }),
    ("parse_response", |client| match client.parse_response(OK.as_bytes()) {
        Ok(Some(_)) => "response".into(),
        Ok(None) => "-".into(),
        Err(fault) => format!("{fault:?}"),
    }),
    ("decode", |client| match client.decode(b"abc") {
        Ok(found) => format!("{} {}", found.consumed, if found.is_end { "end" } else { "more" }),
        Err(fault) => format!("{fault:?}"),
    }),
    ("next_exchange", |client| client.next_exchange().map_or("-".into(), |next| format!("{next:?}"))),
    ("end_of_input", |client| short(client.end_of_input())),
];

fn short<T: std::fmt::Debug, E: std::fmt::Debug>(result: Result<T, E>) -> String {
    result.map_or_else(|error| format!("!{error:?}"), |value| format!("{value:?}"))
}

/// The table has each state, and each event that changes it or has a result. Any other event does nothing, or is
/// misuse.
#[test]
fn every_transition() {
    let mut table = String::new();
    for (name, client) in states() {
        writeln!(table, "{name}: {}", state(&client)).unwrap();
        for (event, apply) in EVENTS {
            let mut client = client.clone();
            let before = state(&client);
            let result = apply(&mut client);
            let after = state(&client);
            if after != before {
                writeln!(table, "  {event}: {result} -> {after}").unwrap();
            } else if result != "-" && result != "!NotDue" {
                writeln!(table, "  {event}: {result}").unwrap();
            }
        }
    }
    assert_eq!(table, include_str!("transitions.txt"), "{table}");
}

#[test]
fn requests_are_framed_as_their_content() {
    use ContentSize::{Known, Unknown};
    const LENGTH: &[(&str, &str)] = &[("content-length", "3")];
    const CHUNKED: &str = "transfer-encoding: chunked\r\n";
    for (method, fields, size, content, written) in [
        ("GET", &[][..], ContentSize::None, Content::None, ""),
        ("GET", &[("content-length", "0")], ContentSize::None, Content::None, "content-length: 0\r\n"),
        ("POST", &[], ContentSize::None, Content::None, "content-length: 0\r\n"),
        ("POST", &[], Known(3), Content::Length(3), "content-length: 3\r\n"),
        ("POST", &[], Known(0), Content::Length(0), "content-length: 0\r\n"),
        ("POST", LENGTH, Known(3), Content::Length(3), "content-length: 3\r\n"),
        ("POST", LENGTH, Unknown, Content::Length(3), "content-length: 3\r\n"),
        ("POST", &[], Unknown, Content::Chunked, CHUNKED),
        ("GET", &[("transfer-encoding", "gzip")], Unknown, Content::Chunked, CHUNKED),
        (
            "GET",
            &[("connection", "te"), ("te", "trailers")],
            ContentSize::None,
            Content::None,
            "te: trailers\r\nconnection: te\r\n",
        ),
    ] {
        let (framed, head) = start(&mut client(), &head(method, "http://a/b?c", fields), size).unwrap();
        let expected = format!("{method} /b?c HTTP/1.1\r\nhost: a\r\n{written}\r\n");
        assert_eq!((framed, head), (content, expected), "{method} {fields:?} {size:?}");
    }
    let misuse = |method, target, fields, size| start(&mut client(), &head(method, target, fields), size).unwrap_err();
    assert_eq!(misuse("PUT", "http://a", LENGTH, Known(4)), Misuse::LengthDiffers);
    assert_eq!(misuse("PUT", "http://a", &[("content-length", "x")], Known(4)), Misuse::InvalidLength);
    assert_eq!(misuse("PUT", "/", &[], Known(4)), Misuse::Host);
    assert_eq!(misuse("PUT", "http://u@a/", &[], Known(4)), Misuse::Host);
    assert_eq!(misuse("PUT", "/", &[("host", "a"), ("host", "a")], Known(4)), Misuse::Host);
    assert_eq!(misuse("CONNECT", "a:80", &[], Known(4)), Misuse::Method);
}

#[test]
fn informational_responses_come_first() {
    let mut client = sent("GET", &[], ContentSize::None);
    let hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 9\r\n\r\n";
    for _ in 0..INFORMATIONAL_MAX {
        let response = client.parse_response(hints).unwrap().unwrap();
        assert_eq!((response.head.status.as_u16(), response.consumed), (103, hints.len()));
        assert_eq!(client.next_exchange(), None);
    }
    assert_eq!(client.clone().parse_response(OK.as_bytes()).unwrap().unwrap().content, Content::Length(3));
    assert_eq!(client.parse_response(hints).unwrap_err(), ResponseFault::Informational);
    assert_eq!(client.next_exchange(), Some(Next::Close));
}

#[test]
fn the_response_to_head_has_no_content() {
    let mut client = sent("HEAD", &[], ContentSize::None);
    assert_eq!(client.parse_response(OK.as_bytes()).unwrap().unwrap().content, Content::None);
    assert_eq!(client.next_exchange(), Some(Next::Idle));
    client.expect_response(true).unwrap();
    assert_eq!(client.expect_response(true), Err(Misuse::NotDue));
    let mut room = field_room();
    let (head, content) = client.parse_head(CLOSING.as_bytes(), &mut room).unwrap().unwrap();
    assert_eq!((head.status, content, client.is_response_complete()), (200, Content::None, true));
}

#[test]
fn connections_persist_if_both_sides_agree() {
    let end = |fields: &[(&str, &str)], response: &str| {
        let mut client = sent("GET", fields, ContentSize::None);
        client.parse_response(response.as_bytes()).unwrap().unwrap();
        client.decode(b"abc").unwrap();
        client.next_exchange()
    };
    assert_eq!(end(&[], OK), Some(Next::Idle));
    assert_eq!(end(&[("connection", "close")], OK), Some(Next::Close));
    assert_eq!(end(&[], &OK.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")), Some(Next::Close));
    assert_eq!(end(&[], &OK.replace("HTTP/1.1", "HTTP/1.0")), Some(Next::Close));
    let old = OK.replace("HTTP/1.1", "HTTP/1.0").replace("\r\n\r\n", "\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(end(&[], &old), Some(Next::Idle));
}

#[test]
fn the_protocol_switches_only_if_it_was_asked() {
    for fields in [&[][..], &[("upgrade", "x")], &[("connection", "upgrade")]] {
        let mut client = sent("GET", fields, ContentSize::None);
        assert_eq!(client.parse_response(SWITCH.as_bytes()).unwrap_err(), ResponseFault::Upgrade);
    }
}

#[test]
fn limits_are_exact() {
    let fault = |fields: &str| {
        let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
        sent("GET", &[], ContentSize::None).parse_response(text.as_bytes()).err()
    };
    assert_eq!(fault(&"a: b\r\n".repeat(4)), None);
    assert_eq!(fault(&"a: b\r\n".repeat(5)), Some(ResponseFault::Fields));
    let others = "HTTP/1.1 200 OK\r\na: \r\n\r\n".len();
    assert_eq!(fault(&format!("a: {}\r\n", "b".repeat(200 - others))), None);
    assert_eq!(fault(&format!("a: {}\r\n", "b".repeat(201 - others))), Some(ResponseFault::HeadLen));
}

#[test]
fn more_fields_than_usual_are_allocated() {
    let parse = |fields: usize| {
        let mut client = Client::new(Limits { fields_max: 200, ..Limits::default() });
        client.expect_response(false).unwrap();
        let text = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(fields));
        client.parse_response(text.as_bytes()).map(|response| response.unwrap().head.headers.len())
    };
    assert_eq!(parse(200), Ok(200));
    assert_eq!(parse(201), Err(ResponseFault::Fields));
}

#[test]
fn trailers_end_chunks() {
    let mut client = sent("POST", &[], ContentSize::Unknown);
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from_static("1"));
    let mut out = Vec::new();
    client.finish(Some(&trailers), &mut out).unwrap();
    assert_eq!(out, b"0\r\nx-sum: 1\r\n\r\n");
    assert_eq!(sent("POST", &[], ContentSize::Known(3)).finish(None, &mut out), Err(Misuse::TooShort));
}

proptest! {
    /// A response in any pieces is read as in one. A malformed head may be refused before its end has come.
    #[test]
    fn any_split_reads_alike(
        text in "(HTTP/1.[012]) [0-9]{2,3}( OK)?\r?\n((Content-Length|Transfer-Encoding): (3|0|chunked)\r?\n|A:b\r\n| x){0,3}\r\n(3\r\n)?(abc)?(\r\n0\r\n\r\n)?",
        size in 1usize..20,
    ) {
        let whole = read(text.as_bytes(), text.len());
        let in_pieces = read(text.as_bytes(), size);
        prop_assert!(in_pieces == whole || (in_pieces.is_err() && whole.is_err()), "{:?} {:?}", in_pieces, whole);
    }
}

/// Heads and data of the responses in `text`, read in pieces of a size.
fn read(text: &[u8], size: usize) -> Result<(String, Option<Next>), String> {
    let (mut client, mut found, mut start, mut end) = (sent("GET", &[], ContentSize::None), String::new(), 0, 0);
    while end < text.len() {
        end = (end + size).min(text.len());
        while let Some(response) = client.parse_response(&text[start..end]).map_err(|fault| format!("{fault:?}"))? {
            write!(found, "{:?}", response.head).unwrap();
            start += response.consumed;
        }
        loop {
            let content = client.decode(&text[start..end]).map_err(|fault| format!("{fault:?}"))?;
            found.push_str(std::str::from_utf8(&text[start..end][content.data.clone()]).unwrap());
            start += content.consumed;
            if content.data.is_empty() || content.is_end {
                break;
            }
        }
    }
    client.end_of_input().map_err(|fault| format!("{fault:?}"))?;
    Ok((found, client.next_exchange()))
}
