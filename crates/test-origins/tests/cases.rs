//! Checks with a plain client that the origins have the faults of their cases.

#![allow(clippy::unwrap_used)]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use watari_test_origins::raw::{self, Answer, End};
use watari_test_origins::{Case, Content, Fault, Moment, Origin, Pace, Resource, Verdict};

const LEN: u64 = 300_000;
const CUT_AT: u64 = 100_000;
/// How much the client requests again, in bytes.
const OVERLAP: u64 = 100;
/// The read timeout for a stall. Any beginning of the rest is correct.
const WAIT_MAX: Duration = Duration::from_secs(2);

fn resource() -> Resource {
    Resource::new(Content::generated(1, LEN))
}

/// The result for a client that continues as RFC 9110 permits.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// The rest, or the beginning of it.
    Bytes(Vec<u8>),
    Refused,
    NotMovable,
}

#[test]
fn each_case_gets_the_verdict_that_it_should() {
    let resource = resource();
    for case in Case::ALL {
        let stage = case.stage(&resource, Fault::Death { after: CUT_AT });
        let outcome = go_on(stage.first.address(), stage.second.address());
        match (case.verdict, outcome) {
            (Verdict::Continues, Outcome::Bytes(bytes)) => {
                assert_eq!(resource.content.difference(CUT_AT, &bytes), None, "{}", case.name);
            }
            (Verdict::Undetectable, Outcome::Bytes(bytes)) => {
                assert_eq!(resource.content.difference(CUT_AT, &bytes), Some(LEN - 1), "{}", case.name);
            }
            (Verdict::Refused, Outcome::Refused) | (Verdict::Incomplete, Outcome::NotMovable) => {}
            (verdict, outcome) => panic!("{} ({}): {outcome:.60?} instead of {verdict:?}", case.name, case.does),
        }
    }
}

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = Case::ALL.iter().map(|case| case.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Case::ALL.len());
}

/// Begins at the first origin, and continues at the second.
fn go_on(first: SocketAddr, second: SocketAddr) -> Outcome {
    let begun = raw::ask(first, "GET", "/file", &[]).unwrap();
    let Some(tag) = begun.field("etag").filter(|tag| is_movable(&begun, tag)) else { return Outcome::NotMovable };
    assert_eq!(begun.end, End::Reset);
    assert_eq!(resource().content.difference(0, &begun.body), None);
    assert_eq!(begun.body.len() as u64, CUT_AT);
    let wanted = CUT_AT - OVERLAP..LEN;
    let range = format!("bytes={}-{}", wanted.start, wanted.end - 1);
    let fields = [("Range", range.as_str()), ("If-Range", tag), ("Accept-Encoding", "identity")];
    match raw::ask_within(WAIT_MAX, second, "GET", "/file", &fields) {
        Ok(answer) => judge(&answer, tag, wanted, &begun.body),
        Err(_) => Outcome::Refused,
    }
}

fn is_movable(answer: &Answer, tag: &str) -> bool {
    let plain = answer.field("content-encoding").is_none() && answer.field("transfer-encoding").is_none();
    plain && answer.field("accept-ranges") == Some("bytes") && !tag.starts_with("W/")
}

/// Accepts only the answer to the request.
fn judge(answer: &Answer, tag: &str, wanted: Range<u64>, begun: &[u8]) -> Outcome {
    let said = format!("bytes {}-{}/{LEN}", wanted.start, wanted.end - 1);
    let lengths = answer.count("content-length") + answer.count("transfer-encoding");
    let folded = answer.fields.iter().any(|(name, _)| name.starts_with(' '));
    let coded = answer.field("content-encoding").is_some();
    let same = answer.field("etag") == Some(tag) && answer.field("content-range") == Some(&said);
    if answer.status != 206 || !same || lengths != 1 || folded || coded {
        return Outcome::Refused;
    }
    let mut body = if answer.field("transfer-encoding").is_some() { joined(&answer.body) } else { answer.body.clone() };
    body.truncate((wanted.end - wanted.start) as usize);
    let overlap = body.len().min(OVERLAP as usize);
    if begun[wanted.start as usize..][..overlap] != body[..overlap] {
        return Outcome::Refused;
    }
    Outcome::Bytes(body.split_off(overlap))
}

/// The content of chunks.
fn joined(mut chunks: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = chunks.windows(2).position(|window| window == b"\r\n") {
        let len = usize::from_str_radix(std::str::from_utf8(&chunks[..end]).unwrap(), 16).unwrap();
        body.extend_from_slice(&chunks[end + 2..][..len]);
        chunks = &chunks[end + 2 + len + 2..];
    }
    body
}

#[test]
fn a_good_origin_answers_each_question() {
    let origin = Origin::start(Resource::new(Content::given("0123456789")));
    let date = resource().last_modified.unwrap();
    for (method, target, fields, status, body) in [
        ("GET", "/file", &[][..], 200, "0123456789"),
        ("GET", "/file?query", &[], 200, "0123456789"),
        ("HEAD", "/file", &[], 200, ""),
        ("GET", "/other", &[], 404, "not here\n"),
        ("POST", "/file", &[], 405, "not here\n"),
        ("GET", "/file", &[("Range", "bytes=2-4")], 206, "234"),
        ("GET", "/file", &[("Range", "bytes=8-")], 206, "89"),
        ("GET", "/file", &[("Range", "bytes=8-99")], 206, "89"),
        ("GET", "/file", &[("Range", "bytes=10-")], 416, "no such range\n"),
        ("GET", "/file", &[("Range", "items=2-4")], 200, "0123456789"),
        ("GET", "/file", &[("Range", "bytes=2-4"), ("If-Range", "\"v1\"")], 206, "234"),
        ("GET", "/file", &[("Range", "bytes=2-4"), ("If-Range", &date)], 206, "234"),
        ("GET", "/file", &[("Range", "bytes=2-4"), ("If-Range", "\"v2\"")], 200, "0123456789"),
        ("GET", "/file", &[("Range", "bytes=2-4"), ("If-Match", "\"v2\", \"v1\"")], 206, "234"),
        ("GET", "/file", &[("Range", "bytes=2-4"), ("If-Match", "\"v2\"")], 412, "another one\n"),
    ] {
        let answer = raw::ask(origin.address(), method, target, fields).unwrap();
        assert_eq!((answer.status, answer.body), (status, body.into()), "{method} {target} {fields:?}");
    }
}

#[test]
fn what_was_asked_is_known() {
    let origin = Origin::start(resource());
    raw::ask(origin.address(), "GET", "/file?1", &[("Range", "bytes=0-0"), ("X-Y", "z")]).unwrap();
    raw::ask(origin.address(), "GET", "/file", &[("Range", "bytes=5-")]).unwrap();
    let requests = origin.requests();
    assert_eq!((requests[0].method.as_str(), requests[0].target.as_str()), ("GET", "/file?1"));
    assert_eq!((requests[0].connection, requests[1].connection), (1, 2));
    assert_eq!(requests[0].field("x-y"), Some("z"));
    assert_eq!((requests[0].range(), requests[1].range()), (Some((0, Some(0))), Some((5, None))));
    assert!(requests[0].is_probe() && !requests[1].is_probe());
    assert_eq!((origin.connections(), origin.sent()), (2, 1 + LEN - 5));
}

#[test]
fn connections_are_kept() {
    let origin = Origin::start(Resource::new(Content::given("0123456789")));
    let mut socket = TcpStream::connect(origin.address()).unwrap();
    // The second request is sent before the first answer.
    let requests = ["bytes=0-1", "bytes=8-9"].map(|range| format!("GET /file HTTP/1.1\r\nRange: {range}\r\n\r\n"));
    socket.write_all(requests.concat().as_bytes()).unwrap();
    let mut answers = String::new();
    while !answers.ends_with("\r\n\r\n89") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        answers.push(byte[0].into());
    }
    assert!(answers.contains("\r\n\r\n01HTTP/1.1 206 Partial Content\r\n"));
    assert_eq!(origin.requests().iter().map(|asked| asked.connection).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn a_cut_is_where_it_was_wanted() {
    // More than buffers hold, so that some bytes wait for the client.
    const LEN: u64 = 20_000_000;
    let resource = || Resource::new(Content::generated(1, LEN));
    for after in (0..300).chain([4095, 4096, 4097, 65_535, 65_536, 65_537, LEN - 1]) {
        for (fault, end) in [(Fault::Fin { after }, End::Closed), (Fault::Reset { after }, End::Reset)] {
            let origin = Origin::faulty(resource(), Moment::Transfer, fault);
            let answer = raw::ask(origin.address(), "GET", "/file", &[]).unwrap();
            assert_eq!((answer.body.len() as u64, answer.end), (after, end), "{fault:?}");
            assert_eq!(resource().content.difference(0, &answer.body), None);
        }
    }
}

#[test]
fn the_dead_and_the_absent_refuse() {
    let absent = Origin::faulty(resource(), Moment::Always, Fault::Refuses);
    let dead = Origin::faulty(resource(), Moment::Transfer, Fault::Death { after: 5 });
    assert_eq!(raw::ask(dead.address(), "HEAD", "/file", &[]).unwrap().status, 200);
    raw::ask(dead.address(), "GET", "/file", &[]).unwrap();
    let killed = Origin::start(resource());
    killed.die();
    for origin in [absent, dead, killed] {
        // `Death` reaches the accepting thread later.
        let refused = std::iter::repeat_with(|| raw::ask(origin.address(), "HEAD", "/file", &[]))
            .take(1000)
            .any(|answer| answer.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused));
        assert!(refused);
    }
}

#[test]
fn what_is_there_can_be_replaced() {
    let origin = Origin::start(resource());
    origin.replace(resource().replaced(10));
    let answer = raw::ask(origin.address(), "GET", "/file", &[]).unwrap();
    assert_eq!((answer.body.len(), answer.field("etag")), (10, Some("\"v2\"")));
    origin.misbehave([(Moment::Whole, Fault::Status(503))]);
    assert_eq!(raw::ask(origin.address(), "GET", "/file", &[]).unwrap().status, 503);
}

#[test]
fn all_transfers_share_what_there_is() {
    const TOTAL: u64 = 10_000_000;
    let content = Content::generated(1, TOTAL / 10);
    let origin = Origin::paced(Resource::new(content.clone()), Pace::capped(TOTAL));
    let begun = Instant::now();
    let sent = thread::scope(|scope| {
        let threads = [(); 4].map(|()| {
            scope.spawn(|| {
                let answer = raw::ask(origin.address(), "GET", "/file", &[]).unwrap();
                assert_eq!(content.difference(0, &answer.body), None);
                origin.sent()
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    // 0.4 s at this speed. Each transfer may have got 0.1 s in advance.
    assert!(begun.elapsed() > Duration::from_millis(300));
    // When the first one ended, the others were nearly complete.
    assert!(sent.iter().min().unwrap() > &(content.len() * 5 / 2), "{sent:?}");
}
