//! Compares this crate with hyper on the corpus of `smuggling.rs`, on generated messages, and on mutations of both.

mod compare;
#[path = "common/corpus.rs"]
mod corpus;

use compare::Written;
use corpus::{CONTENTS, FORGED, HEADS, NEXT, RESPONSES};
use proptest::prelude::*;
use proptest::sample::{Index, select};

fn request_seeds() -> Vec<String> {
    let contents = CONTENTS.iter().map(|(_, rest, _)| format!("POST / HTTP/1.1\r\nHost: a\r\n{rest}{NEXT}"));
    contents.chain(HEADS.iter().map(|(_, head, _)| format!("{head}{NEXT}"))).collect()
}

fn response_seeds() -> Vec<String> {
    RESPONSES.iter().map(|(_, _, response, _)| format!("{response}{FORGED}")).collect()
}

#[test]
fn the_corpus_of_requests() {
    for seed in request_seeds() {
        compare::requests(seed.as_bytes(), usize::MAX);
        compare::requests(seed.as_bytes(), 1);
    }
}

#[test]
fn the_corpus_of_responses() {
    for seed in response_seeds() {
        for is_head in [false, true] {
            compare::responses(is_head, seed.as_bytes(), usize::MAX);
            compare::responses(is_head, seed.as_bytes(), 1);
        }
    }
}

/// Pieces of messages, right and wrong.
const PIECES: &[&str] = &[
    "Host: a\r\n",
    "HOST:b:80\r\n",
    "Host: u@a\r\n",
    "Content-Length: 3\r\n",
    "content-length:0\n",
    "Content-Length: 03\r\n",
    "Content-Length: 3, 3\r\n",
    "Content-Length: 18446744073709551615\r\n",
    "Content-Length: -1\r\n",
    "Transfer-Encoding: chunked\r\n",
    "transfer-encoding: Chunked\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Transfer-Encoding: chunked, \r\n",
    "Transfer-Encoding: gzip\r\n",
    "Transfer-Encoding:\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Connection: close, keep-alive\r\n",
    "Connection: upgrade\r\nUpgrade: x\r\n",
    "Expect: 100-continue\r\n",
    "TE: trailers\r\n",
    "X: y\r\n",
    "X:\r\n",
    "X : y\r\n",
    " y\r\n",
    "X: \u{e9}\r\n",
    "X: a\tb\r\n",
    "X: a\0b\r\n",
    ": y\r\n",
    "X\r\n",
    "\r\n",
    "\n",
    "\r",
    " ",
    "\t",
    "abc",
    "3\r\nabc\r\n",
    "3;a=b\r\nabc\r\n",
    "3 \r\nabc\r\n",
    "03\r\nabc\r\n",
    "3\nabc\r\n",
    "3;\x01\r\nabc\r\n",
    "0\r\n",
    "0\r\n\r\n",
    "0;x\r\nX: y\r\nHost: b\r\n\r\n",
    "0\r\nX: y\nZ: w\r\n\r\n",
    "0\r\nX : y\r\n\r\n",
    "fffffffffffffffff\r\n",
    "00000000000000003\r\nabc\r\n",
];
const REQUEST_LINES: &[&str] = &[
    "GET / HTTP/1.1\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\n",
    "POST /a?b HTTP/1.1\r\nHost: a\r\n",
    "HEAD / HTTP/1.1\nHost: a\n",
    "GET / HTTP/1.0\r\n",
    "POST / HTTP/1.0\r\nConnection: keep-alive\r\n",
    "GET http://a/b HTTP/1.1\r\nHost: a\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: a\r\n",
    "GET * HTTP/1.1\r\nHost: a\r\n",
    "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n",
    "TRACE / HTTP/1.1\r\nHost: a\r\n",
    "GET /#f HTTP/1.1\r\nHost: a\r\n",
    "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n",
    "GET / HTTP/2.0\r\nHost: a\r\n",
    "GET /\r\n",
    "G\u{e9}T / HTTP/1.1\r\n",
    "GET /\u{e9} HTTP/1.1\r\nHost: a\r\n",
];
const STATUS_LINES: &[&str] = &[
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 200\r\n",
    "HTTP/1.1 200 \u{e9}\n",
    "HTTP/1.0 200 OK\r\n",
    "HTTP/1.1 204 No Content\r\n",
    "HTTP/1.1 304 Not Modified\r\n",
    "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n",
    "HTTP/1.1 101 Switching Protocols\r\n",
    "HTTP/1.1 099 X\r\n",
    "HTTP/1.1 999 X\r\n",
    "HTTP/2.0 200 OK\r\n",
    "200 OK\r\n",
    "HTTP/1.0 304 X\r\n",
];

/// Start lines, each with pieces, in any order.
fn messages(starts: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let fields = prop::collection::vec(select(&PIECES[..34]), 0..4);
    let contents = prop::collection::vec(select(PIECES), 0..4);
    let message = (select(starts), fields, select(&["\r\n", "\r\n", "\r\n", "\n", ""][..]), contents);
    let text = |(start, fields, end, contents): (&str, Vec<&str>, &str, Vec<&str>)| {
        [&[start][..], &fields, &[end], &contents].concat().concat()
    };
    prop::collection::vec(message.prop_map(text), 1..3).prop_map(|messages| messages.concat().into_bytes())
}

/// A seed with a few edits.
fn mutants(seeds: Vec<String>) -> impl Strategy<Value = Vec<u8>> {
    let edit = (any::<Index>(), 0usize..6, select(PIECES), any::<u8>(), 0u8..5);
    (select(seeds), prop::collection::vec(edit, 1..4)).prop_map(|(seed, edits)| {
        let mut bytes = seed.into_bytes();
        for (at, len, piece, byte, kind) in edits {
            let at = at.index(bytes.len() + 1);
            let end = (at + len).min(bytes.len());
            match kind {
                0 => drop(bytes.splice(at..at, piece.bytes())),
                1 => drop(bytes.drain(at..end)),
                2 => drop(bytes.splice(at..at, bytes[at..end].to_vec())),
                3 => bytes.insert(at, byte),
                _ => drop(bytes.splice(at..end, [byte])),
            }
        }
        bytes
    })
}

/// Fields and content of a message. Their length is announced or not.
fn written() -> impl Strategy<Value = Written> {
    let fields = prop::collection::vec(("x-[a-z]{1,9}", "[!-~]([ -~]{0,20}[!-~])?"), 0..5);
    let pieces = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..4);
    let trailers = prop::collection::vec(("y-[a-z]{1,9}", "[!-~]{0,9}"), 0..3);
    (fields, pieces, trailers, any::<bool>()).prop_map(|(fields, pieces, trailers, has_length)| Written {
        fields,
        pieces,
        trailers,
        has_length,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn generated_requests(input in messages(REQUEST_LINES), piece in select(&[usize::MAX, 3][..])) {
        compare::requests(&input, piece);
    }

    #[test]
    fn generated_responses(input in messages(STATUS_LINES), is_head: bool, piece in select(&[usize::MAX, 3][..])) {
        compare::responses(is_head, &input, piece);
    }

    /// hyper reads what this crate writes.
    #[test]
    fn written_requests(written in written(), method in select(&["GET", "POST", "PUT", "HEAD"][..])) {
        compare::written_request(method, &written);
    }

    #[test]
    fn written_responses(written in written(), status in select(&[200u16, 204, 304, 404, 599][..]), is_head: bool) {
        compare::written_response(status, is_head, &written);
    }

    #[test]
    fn mutated_requests(input in mutants(request_seeds())) {
        compare::requests(&input, usize::MAX);
    }

    #[test]
    fn mutated_responses(input in mutants(response_seeds()), is_head: bool) {
        compare::responses(is_head, &input, usize::MAX);
    }
}
