//! How many allocations a head costs: the same for one field and for twenty, and one more for each name that the crate
//! `http` does not know and so copies.
#![allow(clippy::unwrap_used)]

use allocation_counter::measure;
use http::{HeaderValue, Request, Response};
use watari_http1::{Client, ContentSize, Limits, Server};

const DATE: HeaderValue = HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT");

/// Names that `http` knows.
const KNOWN: [&str; 20] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "authorization",
    "cache-control",
    "cookie",
    "dnt",
    "etag",
    "forwarded",
    "from",
    "if-match",
    "if-none-match",
    "last-modified",
    "link",
    "origin",
    "referer",
    "server",
    "user-agent",
    "vary",
    "via",
];
const UNKNOWN: [&str; 5] = ["x-a", "x-b", "x-c", "x-d", "x-e"];

/// Room for all heads that are written here.
const ROOM: usize = 4096;

fn lines(names: &[&str]) -> String {
    names.iter().flat_map(|name| [name, ": value\r\n"]).collect()
}

/// The allocations for parsing a request with these fields and a Host.
fn to_parse_request(names: &[&str]) -> u64 {
    let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", lines(names));
    let mut server = Server::new(Limits::default());
    let mut parsed = None;
    let allocations = measure(|| parsed = server.parse_request(text.as_bytes()).unwrap());
    assert_eq!(parsed.unwrap().head.headers.len(), 1 + names.len());
    allocations.count_total
}

/// The allocations for parsing a response with these fields and a Content-Length.
fn to_parse_response(names: &[&str]) -> u64 {
    let text = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{}\r\n", lines(names));
    let mut client = Client::new(Limits::default());
    client.start_request(&request(&[]), ContentSize::None, &mut Vec::new()).unwrap();
    let mut parsed = None;
    let allocations = measure(|| parsed = client.parse_response(text.as_bytes()).unwrap());
    assert_eq!(parsed.unwrap().head.headers.len(), 1 + names.len());
    allocations.count_total
}

fn request(names: &[&'static str]) -> http::request::Parts {
    let request = Request::get("/").header("host", "a");
    names.iter().fold(request, |request, name| request.header(*name, "value")).body(()).unwrap().into_parts().0
}

/// The allocations for writing heads with these fields.
fn to_write(names: &[&'static str]) -> u64 {
    let response = names.iter().fold(Response::builder(), |response, name| response.header(*name, "value"));
    let (request, response) = (request(names), response.body(()).unwrap().into_parts().0);
    let mut client = Client::new(Limits::default());
    let mut server = Server::new(Limits::default());
    server.parse_request(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut out = Vec::with_capacity(ROOM);
    let allocations = measure(|| {
        client.start_request(&request, ContentSize::None, &mut out).unwrap();
        server.start_response(&response, ContentSize::Known(0), &DATE, &mut out).unwrap();
    });
    assert!(out.len() > 2 * lines(names).len());
    allocations.count_total
}

#[test]
fn a_field_is_parsed_without_an_allocation() {
    for to_parse in [to_parse_request, to_parse_response] {
        let few = to_parse(&KNOWN[..1]);
        assert!(few > 0, "allocations are counted");
        assert_eq!(to_parse(&KNOWN), few);
        assert_eq!(to_parse(&UNKNOWN), few + UNKNOWN.len() as u64);
    }
}

#[test]
fn a_head_is_written_without_an_allocation() {
    assert_eq!([to_write(&[]), to_write(&KNOWN), to_write(&UNKNOWN)], [0; 3]);
}
