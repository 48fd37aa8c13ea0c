#![allow(clippy::unwrap_used)]

use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use watari_endings::{Profile, Tally};
use watari_packets::Timestamp;

use super::*;
use crate::report::{Health, Report};

/// Longer than any test takes, on any machine.
const LONG: Duration = Duration::from_secs(30);

/// The last part of an event, as a chunk (RFC 9112, section 7.1).
const EVENT_END: &str = "2\r\n\n\n\r\n";

/// A page with one server, and the sender of its ticks.
struct Page {
    address: SocketAddr,
    ticks: watch::Sender<Bytes>,
    shutdown: CancellationToken,
}

impl Page {
    fn new(limits: Limits) -> Self {
        let board = Arc::new(Mutex::new(board()));
        let (ticks, seen) = watch::channel(tick(&board));
        let site = Site { board, ticks: seen, names: vec!["watch.example".to_owned()] };
        let listener = StdTcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        serve_within(limits, listener, site, shutdown.clone()).unwrap();
        Self { address, ticks, shutdown }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends a request, and reads until the server closes.
    async fn ask(&self, request: &str, fields: &str) -> String {
        let mut stream = self.connect().await;
        let head = format!("{request} HTTP/1.1\r\nconnection: close\r\n{fields}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        timeout(LONG, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    async fn get(&self, target: &str) -> String {
        self.ask(&format!("GET {target}"), "host: localhost\r\n").await
    }

    async fn live(&self) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(b"GET /api/live HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        stream
    }
}

fn board() -> Board {
    let mut board = Board::new(Profile::site());
    let tally = Tally { opened: 3, s_normal: 2, ..Tally::default() };
    let at = Timestamp(1_000_000_000_000);
    let tallies = vec![("192.0.2.1:443".parse().unwrap(), 999, tally)];
    assert!(board.take("a <b> & ü", 0, &Report { at, tallies, health: Health::default() }));
    board.advance(at);
    board
}

/// Reads until `wanted` has come.
async fn read_to(stream: &mut TcpStream, wanted: &str) -> String {
    let mut all = Vec::new();
    let reading = async {
        while !String::from_utf8_lossy(&all).contains(wanted) {
            let mut some = [0; 4096];
            let count = stream.read(&mut some).await.unwrap();
            assert!(count > 0, "ended before {wanted}: {}", String::from_utf8_lossy(&all));
            all.extend_from_slice(&some[..count]);
        }
    };
    timeout(LONG, reading).await.unwrap_or_else(|_| panic!("no {wanted}"));
    String::from_utf8(all).unwrap()
}

fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = answer.split("\r\n\r\n").next()?.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[tokio::test]
async fn each_resource_answers_and_others_say_what_is_wrong() {
    let page = Page::new(Limits::USUAL);
    let course = "/api/course?sensor=a+%3Cb%3E+%26+%C3%BC&server=192.0.2.1:443";
    let cases = [
        ("GET /", "200 OK", "<div id=\"page\">"),
        ("GET /licences.txt", "200 OK", "# d3-ternary"),
        ("GET /api/board", "200 OK", "\"server\":\"192.0.2.1:443\""),
        (&format!("GET {course}"), "200 OK", "{\"rows\":[[999,2,"),
        ("GET /api/course?sensor=b&server=192.0.2.1:443", "404 Not Found", "no such server is watched\n"),
        ("GET /api/course?sensor=b&server=x", "400 Bad Request", "?sensor=NAME&server=ADDRESS:PORT\n"),
        ("GET /api/course", "400 Bad Request", "?sensor=NAME&server=ADDRESS:PORT\n"),
        ("GET /metrics", "404 Not Found", "the page is at /\n"),
        ("GET /src/main.tsx", "404 Not Found", "the page is at /\n"),
        ("GET /../etc/passwd", "404 Not Found", "the page is at /\n"),
        ("POST /api/board", "405 Method Not Allowed", "only GET and HEAD\n"),
        ("DELETE /", "405 Method Not Allowed", "only GET and HEAD\n"),
    ];
    for (request, status, part) in cases {
        let answer = page.ask(request, "host: localhost\r\n").await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request}: {answer}");
        assert!(answer.contains(part), "{request}: {answer}");
        let policy = header(&answer, "content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(header(&answer, "x-content-type-options"), Some("nosniff"));
    }
}

#[tokio::test]
async fn head_is_answered_without_content() {
    let page = Page::new(Limits::USUAL);
    for target in ["/", "/licences.txt", "/api/board", "/api/live"] {
        let answer = page.ask(&format!("HEAD {target}"), "host: localhost\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\n"), "{answer}");
    }
}

#[tokio::test]
async fn what_may_be_kept_is_kept() {
    let page = Page::new(Limits::USUAL);
    for asset in assets::all() {
        let answer = page.get(asset.path).await;
        let is_page = asset.path == "/";
        let caching = header(&answer, "cache-control").unwrap();
        assert_eq!(caching.contains("immutable"), !is_page && asset.path != "/licences.txt", "{}", asset.path);
        let etag = header(&answer, "etag").unwrap();
        let known = format!("host: localhost\r\nif-none-match: \"x\", W/{etag}\r\n");
        let again = page.ask(&format!("GET {}", asset.path), &known).await;
        assert!(again.starts_with("HTTP/1.1 304 Not Modified\r\n"), "{again}");
        assert!(again.ends_with("\r\n\r\n"), "{again}");
    }
    assert_eq!(header(&page.get("/api/board").await, "cache-control"), Some("no-store"));
}

#[tokio::test]
async fn the_page_asks_for_what_is_there_and_runs_nothing_of_its_own() {
    let page = Page::new(Limits::USUAL);
    let html = page.get("/").await;
    let named: Vec<_> = html.split('"').filter(|part| part.starts_with('/')).collect();
    assert_eq!(named.len(), 3, "{html}");
    for path in named {
        assert!(page.get(path).await.starts_with("HTTP/1.1 200 OK\r\n"), "{path}");
    }
    assert!(!html.contains("<style") && !html.contains("onload"), "{html}");
    assert_eq!(html.matches("<script").count(), 1);
}

#[tokio::test]
async fn a_name_of_somebody_else_is_not_answered() {
    let page = Page::new(Limits::USUAL);
    for fields in ["host: evil.example\r\n", "host: localhost\r\nhost: localhost\r\n", "host: a b\r\n", ""] {
        let answer = page.ask("GET /api/board", fields).await;
        assert!(!answer.contains("192.0.2.1"), "{fields}: {answer}");
        assert!(answer.starts_with("HTTP/1.1 421 ") || answer.starts_with("HTTP/1.1 400 "), "{fields}: {answer}");
    }
    let absolute = page.ask("GET http://evil.example/api/board", "host: localhost\r\n").await;
    assert!(absolute.starts_with("HTTP/1.1 421 "), "{absolute}");
    for host in ["watch.example:8484", "127.0.0.1", "[::1]:1"] {
        let answer = page.ask("GET /api/board", &format!("host: {host}\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{host}: {answer}");
    }
}

#[tokio::test]
async fn viewers_get_the_latest_at_once_and_each_that_follows() {
    let page = Page::new(Limits::USUAL);
    let mut viewers = [page.live().await, page.live().await];
    for viewer in &mut viewers {
        let begin = read_to(viewer, EVENT_END).await;
        assert_eq!(header(&begin, "content-type"), Some("text/event-stream"));
        assert_eq!(header(&begin, "cache-control"), Some("no-store"));
        assert!(begin.contains("event: board\ndata: \r\n") && begin.contains("\r\n{\"now\":1000.0,"), "{begin}");
    }
    page.ticks.send_replace(Bytes::from_static(b"{\"now\":1001.0}"));
    for viewer in &mut viewers {
        let next = read_to(viewer, EVENT_END).await;
        assert!(next.contains("event: board\ndata: ") && next.contains("{\"now\":1001.0}"), "{next}");
    }
}

#[tokio::test]
async fn a_silent_stream_says_that_it_is_there() {
    let page = Page::new(Limits { keep_alive: Duration::from_millis(20), ..Limits::USUAL });
    read_to(&mut page.live().await, "\r\n:\n\n\r\n").await;
}

#[tokio::test]
async fn who_does_not_read_is_cut_off_and_others_are_not_held_up() {
    let page = Page::new(Limits { patience: Duration::from_secs(2), ..Limits::USUAL });
    let mut lazy = page.live().await;
    let mut eager = page.live().await;
    read_to(&mut eager, EVENT_END).await;
    let large = Bytes::from(vec![b'x'; 1 << 20]);
    // The task of the slow viewer holds a receiver of ticks until it ends.
    let begun = Instant::now();
    let watched = || page.ticks.receiver_count();
    assert_eq!(watched(), 3);
    while watched() > 2 {
        assert!(begun.elapsed() < LONG, "it is still there");
        page.ticks.send_replace(large.clone());
        read_to(&mut eager, EVENT_END).await;
    }
    let mut rest = Vec::new();
    let _ = timeout(LONG, lazy.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.len() < 16 << 20, "{} octets were held for it", rest.len());
}

#[tokio::test]
async fn connections_are_limited_and_places_are_given_back() {
    let page = Page::new(Limits { connections_max: 2, ..Limits::USUAL });
    let (mut first, mut second) = (page.live().await, page.live().await);
    read_to(&mut first, EVENT_END).await;
    read_to(&mut second, EVENT_END).await;
    let mut third = page.live().await;
    let mut nothing = Vec::new();
    // The server closed it with an unread request, which may cause a reset.
    let _ = timeout(LONG, third.read_to_end(&mut nothing)).await.unwrap();
    assert!(nothing.is_empty());
    drop(first);
    let begun = Instant::now();
    loop {
        let mut next = page.connect().await;
        let asked = next.write_all(b"GET /api/board HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
        let mut answer = Vec::new();
        if asked.is_ok() && timeout(LONG, next.read_to_end(&mut answer)).await.unwrap().is_ok() && !answer.is_empty() {
            return;
        }
        assert!(begun.elapsed() < LONG, "no place is given back");
    }
}

#[tokio::test]
async fn a_head_that_does_not_come_is_not_waited_for() {
    let page = Page::new(Limits { head_max: Duration::from_secs(2), ..Limits::USUAL });
    let mut stream = page.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: local").await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(LONG, stream.read_to_end(&mut answer)).await.unwrap();
    assert!(!String::from_utf8_lossy(&answer).contains("200"));
    let mut kept = page.connect().await;
    kept.write_all(b"GET /api/board HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(LONG, kept.read_to_end(&mut answer)).await.expect("an idle connection is closed");
    assert!(String::from_utf8_lossy(&answer).contains("192.0.2.1"));
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let page = Page::new(Limits::USUAL);
    let mut stream = page.connect().await;
    let head = format!("GET / HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(2 * ON_ITS_WAY_MAX));
    // The server closed it with unread bytes. That may cause a reset, without an answer or with a part of it.
    let mut answer = Vec::new();
    if stream.write_all(head.as_bytes()).await.is_ok() {
        let _ = timeout(LONG, stream.read_to_end(&mut answer)).await.unwrap();
    }
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test]
async fn the_end_ends_all() {
    let page = Page::new(Limits::USUAL);
    let mut viewer = page.live().await;
    read_to(&mut viewer, EVENT_END).await;
    page.shutdown.cancel();
    let mut rest = Vec::new();
    let _ = timeout(LONG, viewer.read_to_end(&mut rest)).await.unwrap();
    let begun = Instant::now();
    while TcpStream::connect(page.address).await.is_ok() {
        assert!(begun.elapsed() < LONG, "it still listens");
    }
}
