//! Clauses of RFC 9112 (and of RFC 9110 where named), with a case of each.
#![allow(clippy::unwrap_used)]

mod common;

use common::{DATE, receive, serve};
use http::header::HeaderMap;
use http::{HeaderValue, Request, Response};
use watari_http1::{Client, Content, ContentSize, Limits, Misuse, Next, Server};

/// Section, what a server does, the input, the outcome.
const SERVER: &[(&str, &str, &str, &str)] = &[
    (
        "2.2",
        "SHOULD ignore at least one empty line before a request",
        "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /; end",
    ),
    ("2.2", "MAY recognize a single LF as a line terminator", "GET / HTTP/1.1\nHost: a\n\n", "GET /; end"),
    ("2.2", "MUST consider a bare CR as invalid", "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", "FieldLine"),
    ("2.2", "MUST reject whitespace before the first field", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", "FieldLine"),
    ("2.2", "MUST NOT parse as Unicode", "GET / HTTP/1.1\r\nHost: a\r\nX: \u{010a}\r\n\r\n", "GET /; end"),
    ("2.3", "the version is case-sensitive", "GET / Http/1.1\r\nHost: a\r\n\r\n", "RequestLine"),
    ("3", "the elements are separated by single spaces", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", "RequestLine"),
    ("3", "RECOMMENDED are request lines of 8000 bytes", LONG_TARGET, LONG_TARGET_OUTCOME),
    ("3.1", "the method is case-sensitive", "connect / HTTP/1.1\r\nHost: a\r\n\r\n", "connect /; end"),
    ("3.2", "MUST respond with 400 without Host", "GET / HTTP/1.1\r\n\r\n", "Host"),
    ("3.2", "MUST respond with 400 to several Host fields", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "Host"),
    ("3.2", "MUST respond with 400 to an invalid Host", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "Host"),
    ("3.2", "no whitespace is allowed in a target", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", "RequestLine"),
    ("3.2.1", "the origin form has a path and a query", "GET /a?b HTTP/1.1\r\nHost: a\r\n\r\n", "GET /a?b; end"),
    ("3.2.2", "MUST accept the absolute form", "GET http://b/c HTTP/1.1\r\nHost: a\r\n\r\n", "GET http://b/c; end"),
    ("3.2.3", "the authority form is only for CONNECT", "GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n", "Target"),
    ("3.2.4", "the asterisk form is for OPTIONS", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS *; end"),
    ("3.2.4", "the asterisk form is only for OPTIONS", "PUT * HTTP/1.1\r\nHost: a\r\n\r\n", "Target"),
    ("5", "names are case-insensitive", "PUT / HTTP/1.1\r\nhOST: a\r\ncONTENT-lENGTH: 1\r\n\r\na", "PUT / 'a'; end"),
    ("5.1", "MUST reject whitespace before the colon", "GET / HTTP/1.1\r\nHost : a\r\n\r\n", "FieldLine"),
    (
        "5.1",
        "whitespace around a value is no part of it",
        "PUT / HTTP/1.1\r\nHost:a\r\nContent-Length:\t1 \r\n\r\na",
        "PUT / 'a'; end",
    ),
    ("5.2", "MUST reject folded lines", "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", "FieldLine"),
    (
        "6.1",
        "MUST be able to parse chunks",
        "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        "PUT / 'a'; end",
    ),
    (
        "6.1",
        "coding names are case-insensitive",
        "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHunked\r\n\r\n0\r\n\r\n",
        "PUT /; end",
    ),
    (
        "6.1",
        "SHOULD respond with 501 to an unknown coding",
        "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x, chunked\r\n\r\n",
        "Coding",
    ),
    (
        "6.3",
        "MUST respond with 400 if chunked is not the final coding",
        "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\n\r\n",
        "LastCoding",
    ),
    (
        "6.1",
        "MUST treat a coding in HTTP/1.0 as faulty",
        "PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "CodingVersion",
    ),
    (
        "6.1",
        "MUST close after a length beside a coding",
        "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "PUT /; close",
    ),
    (
        "6.3.5",
        "MUST respond with 400 to an invalid length",
        "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: a\r\n\r\n",
        "Length",
    ),
    (
        "6.3.5",
        "MUST respond with 400 to lengths that differ",
        "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na",
        "Length",
    ),
    (
        "6.3.6",
        "the length is that of the content",
        "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\na",
        "PUT / 'a'; end",
    ),
    ("6.3.7", "a request without both has no content", "PUT / HTTP/1.1\r\nHost: a\r\n\r\n", "PUT /; end"),
    (
        "7.1",
        "MUST anticipate large sizes and prevent overflows",
        "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000001\r\na",
        "PUT / ChunkLen",
    ),
    (
        "7.1.1",
        "MUST ignore unknown extensions",
        "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1 ; a = \"b\"\r\na\r\n0\r\n\r\n",
        "PUT / 'a'; end",
    ),
    (
        "7.1.2",
        "trailers end the content",
        "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: a\r\n\r\n",
        "PUT / {x: a}; end",
    ),
    (
        "8",
        "a request that ends early is incomplete",
        "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na",
        "PUT / Content",
    ),
    ("8", "a head that ends early is incomplete", "GET / HTTP/1.1\r\nHost: a\r\n", "Head"),
    (
        "9.3",
        "HTTP/1.1 persists",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /; GET /; end",
    ),
    ("9.3", "HTTP/1.0 persists with keep-alive", "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "GET /; end"),
    ("9.3", "HTTP/1.0 ends otherwise", "GET / HTTP/1.0\r\n\r\n", "GET /; close"),
    (
        "9.3.2",
        "pipelined requests are read in order",
        "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /1; GET /2; end",
    ),
    (
        "9.6",
        "MUST NOT process requests after close",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /; close",
    ),
    ("9110 9.3.8", "TRACE ends at a proxy", "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", "Method"),
    ("9110 4.2.4", "user information is an error", "GET http://a@b/ HTTP/1.1\r\nHost: a\r\n\r\n", "Host"),
    ("9110 7.1", "a target has no fragment", "GET /#a HTTP/1.1\r\nHost: a\r\n\r\n", "Target"),
];

/// A path of 8,000 bytes.
const LONG_TARGET: &str = "GET <8000> HTTP/1.1\r\nHost: a\r\n\r\n";
const LONG_TARGET_OUTCOME: &str = "GET <8000>; end";

/// Section, what a client does, the method of its request, the input, the outcome.
const CLIENT: &[(&str, &str, &str, &str, &str)] = &[
    (
        "2.3",
        "a response may have a lower minor version",
        "GET",
        "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na",
        "200 'a'; close",
    ),
    (
        "4",
        "SHOULD ignore the reason phrase",
        "GET",
        "HTTP/1.1 200 Not Found\r\nContent-Length: 1\r\n\r\na",
        "200 'a'; end",
    ),
    ("4", "the reason phrase may be absent", "GET", "HTTP/1.1 200 \r\nContent-Length: 1\r\n\r\na", "200 'a'; end"),
    ("5.2", "MAY reject folded lines of a response", "GET", "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", "FieldLine"),
    (
        "6.1",
        "a client that sends no TE gets only chunks",
        "GET",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "Coding",
    ),
    ("6.3.1", "a response to HEAD has no content", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n", "200; end"),
    ("6.3.1", "a 204 has no content", "GET", "HTTP/1.1 204 No Content\r\n\r\n", "204; end"),
    ("6.3.1", "a 304 has no content", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 1\r\n\r\n", "304; end"),
    (
        "6.3.1",
        "a 1xx has no content",
        "GET",
        "HTTP/1.1 103 X\r\nContent-Length: 1\r\n\r\nHTTP/1.1 204 X\r\n\r\n",
        "103; 204; end",
    ),
    (
        "6.3.3",
        "a length beside a coding ought to be an error",
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "LengthAndCoding",
    ),
    (
        "6.3.4",
        "chunks end the content",
        "GET",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        "200 'a'; end",
    ),
    (
        "6.3.5",
        "MUST discard a response with an invalid length",
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\na",
        "Lengths",
    ),
    (
        "6.3.5",
        "a list of equal lengths is one",
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\na",
        "200 'a'; end",
    ),
    (
        "6.3.6",
        "a content that ends early is incomplete",
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na",
        "200 Content",
    ),
    ("6.3.8", "a response without both lasts until the close", "GET", "HTTP/1.1 200 OK\r\n\r\na", "200 'a'; close"),
    (
        "7.1",
        "chunks that end early are incomplete",
        "GET",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
        "200 Content",
    ),
    ("8", "a response that ends in its head is incomplete", "GET", "HTTP/1.1 200 OK\r\n", "Head"),
    (
        "9.2",
        "MUST NOT take bytes without a request for a response",
        "GET",
        "HTTP/1.1 204 X\r\n\r\nHTTP/1.1 204 X\r\n\r\n",
        "204; Unsolicited",
    ),
    ("9.3", "a response in HTTP/1.0 ends the connection", "GET", "HTTP/1.0 204 X\r\n\r\n", "204; close"),
    ("9.3", "keep-alive in HTTP/1.0 does not", "GET", "HTTP/1.0 204 X\r\nConnection: keep-alive\r\n\r\n", "204; end"),
    ("9.6", "close ends the connection", "GET", "HTTP/1.1 204 X\r\nConnection: close\r\n\r\n", "204; close"),
    ("9110 7.8", "a 101 needs an Upgrade in the request", "GET", "HTTP/1.1 101 X\r\nUpgrade: x\r\n\r\n", "Upgrade"),
    ("9110 7.8", "a 101 changes the protocol", "OPTIONS", "HTTP/1.1 101 X\r\nUpgrade: x\r\n\r\n", "101; tunnel"),
    (
        "9110 15.2",
        "MUST parse 1xx before the final response",
        "GET",
        "HTTP/1.1 100 X\r\n\r\nHTTP/1.1 204 X\r\n\r\n",
        "100; 204; end",
    ),
];

#[test]
fn servers_read_requests() {
    let path = format!("/{}", "a".repeat(7_999));
    for (section, clause, input, outcome) in SERVER {
        let (input, outcome) = (input.replace("<8000>", &path), outcome.replace("<8000>", &path));
        for piece in [usize::MAX, 1] {
            assert_eq!(serve(input.as_bytes(), piece), outcome, "section {section}: {clause}");
        }
    }
}

#[test]
fn clients_read_responses() {
    for (section, clause, method, input, outcome) in CLIENT {
        for piece in [usize::MAX, 1] {
            assert_eq!(receive(method, input.as_bytes(), piece), *outcome, "section {section}: {clause}");
        }
    }
}

/// The response to a request, in text.
fn response(request: &str, status: u16, size: ContentSize) -> (String, Server) {
    let (mut server, mut out) = (Server::new(Limits::default()), Vec::new());
    server.parse_request(request.as_bytes()).unwrap().unwrap();
    let head = Response::builder().status(status).body(()).unwrap().into_parts().0;
    server.start_response(&head, size, &DATE, &mut out).unwrap();
    (String::from_utf8(out).unwrap(), server)
}

#[test]
fn servers_write_responses() {
    const NEW: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    const OLD: &str = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    const HEAD: &str = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
    use ContentSize::{Known, Unknown};
    for (section, clause, request, status, size, has, has_not) in [
        ("4", "the space after the status is not optional", NEW, 299, Known(0), "HTTP/1.1 299 \r\n", "\n\n"),
        ("6.1", "MUST NOT send a coding to HTTP/1.0", OLD, 200, Unknown, "connection: close\r\n", "transfer-encoding"),
        ("6.1", "MUST NOT send a coding in a 204", NEW, 204, Unknown, "204", "transfer-encoding"),
        ("6.2", "MUST NOT send a length beside a coding", NEW, 200, Unknown, "chunked\r\n", "content-length"),
        ("6.3", "a length is sent if it is known", NEW, 200, Known(3), "content-length: 3\r\n", "transfer-encoding"),
        (
            "9110 6.6.1",
            "MUST generate a Date",
            NEW,
            404,
            Known(0),
            "\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n",
            "\n\n",
        ),
        ("9110 8.6", "MUST NOT send a length in a 204", NEW, 204, Known(0), "204", "content-length"),
        ("9110 8.6", "MAY send the length of GET to HEAD", HEAD, 200, Known(3), "content-length: 3\r\n", "chunked"),
        ("9110 15.4.5", "a 304 has no content", NEW, 304, Known(3), "304 Not Modified\r\n", "content-length"),
        ("C.2.2", "keep-alive is announced to HTTP/1.0", OLD, 200, Known(0), "connection: keep-alive\r\n", "close"),
    ] {
        let (written, _) = response(request, status, size);
        assert!(written.contains(has) && !written.contains(has_not), "section {section}: {clause}: {written}");
    }
}

#[test]
fn servers_end_connections() {
    let (written, mut server) =
        response("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 200, ContentSize::None);
    assert!(written.contains("connection: close\r\n"), "section 9.6: MUST send close in the final response");
    assert_eq!(server.next_exchange(), Some(Next::Close), "section 9.6: MUST close");
    let mut server = Server::new(Limits::default());
    let request = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";
    server.parse_request(request.as_bytes()).unwrap().unwrap();
    server.start_response(&Response::new(()).into_parts().0, ContentSize::None, &DATE, &mut Vec::new()).unwrap();
    assert_eq!(server.next_exchange(), None, "section 9.3: MUST read the entire content, or close");
    server.abandon_content();
    assert_eq!(server.next_exchange(), Some(Next::Close), "section 9.3: MUST read the entire content, or close");
}

/// A written request, in text.
fn request(method: &str, target: &str, size: ContentSize) -> Result<(Content, String), Misuse> {
    let request = Request::builder().method(method).uri(target).header("x", "y");
    let (head, mut out) = (request.body(()).unwrap().into_parts().0, Vec::new());
    let content = Client::new(Limits::default()).start_request(&head, size, &mut out)?;
    Ok((content, String::from_utf8(out).unwrap()))
}

#[test]
fn clients_write_requests() {
    for (section, clause, method, target, size, expected) in [
        (
            "3.2.1",
            "MUST send an empty path as /",
            "GET",
            "http://a",
            ContentSize::None,
            "GET / HTTP/1.1\r\nhost: a\r\nx: y\r\n\r\n",
        ),
        (
            "3.2.1",
            "MUST send only path and query",
            "GET",
            "http://a/b?c",
            ContentSize::None,
            "GET /b?c HTTP/1.1\r\nhost: a\r\nx: y\r\n\r\n",
        ),
        (
            "3.2.1",
            "a path precedes a query",
            "GET",
            "http://a?c",
            ContentSize::None,
            "GET /?c HTTP/1.1\r\nhost: a\r\nx: y\r\n\r\n",
        ),
        (
            "6.1",
            "content of unknown length is sent in chunks",
            "PUT",
            "http://a/",
            ContentSize::Unknown,
            "PUT / HTTP/1.1\r\nhost: a\r\nx: y\r\ntransfer-encoding: chunked\r\n\r\n",
        ),
        (
            "9110 8.6",
            "SHOULD send a length of 0 with POST",
            "POST",
            "http://a/",
            ContentSize::None,
            "POST / HTTP/1.1\r\nhost: a\r\nx: y\r\ncontent-length: 0\r\n\r\n",
        ),
        (
            "9110 8.6",
            "SHOULD NOT send a length of 0 with GET",
            "GET",
            "http://a/",
            ContentSize::None,
            "GET / HTTP/1.1\r\nhost: a\r\nx: y\r\n\r\n",
        ),
    ] {
        assert_eq!(request(method, target, size).unwrap().1, expected, "section {section}: {clause}");
    }
    assert_eq!(request("GET", "/", ContentSize::None), Err(Misuse::Host), "section 3.2: MUST send Host");
}

#[test]
fn trailers_are_no_framing() {
    let (_, mut server) = response("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n", 200, ContentSize::Unknown);
    let mut trailers = HeaderMap::new();
    for name in ["content-length", "transfer-encoding", "host", "authorization", "content-type", "x-sum"] {
        trailers.insert(name, HeaderValue::from_static("1"));
    }
    let mut out = Vec::new();
    server.finish(Some(&trailers), &mut out).unwrap();
    assert_eq!(out, b"0\r\nx-sum: 1\r\n\r\n", "RFC 9110, section 6.5.1: MUST NOT generate these trailers");
}
