#![allow(clippy::unwrap_used)]

use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use watari_endings::{Profile, Tally};
use watari_packets::Timestamp;

use super::*;
use crate::report::{Health, Report};

/// Longer than any test takes, on any machine.
const LONG: Duration = Duration::from_secs(30);

/// The last part of an event, as a chunk (RFC 9112, section 7.1).
const EVENT_END: &str = "2\r\n\n\n\r\n";

/// The endpoint of a page with one server, and the sender of its ticks.
struct Fixture {
    address: SocketAddr,
    ticks: watch::Sender<Bytes>,
    shutdown: CancellationToken,
}

impl Fixture {
    fn new() -> Self {
        Self::with(LIMITS, COMMENT_INTERVAL)
    }

    fn with(limits: Limits, comment_interval: Duration) -> Self {
        let board = Arc::new(Mutex::new(board()));
        let (ticks, seen) = watch::channel(tick(&board));
        let site = Site { board, ticks: seen, names: vec!["watch.example".to_owned()] };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let page = Page { site, comment_interval, shutdown: shutdown.clone() };
        Endpoint::new("a test", limits, page, shutdown.clone()).listen_std(listener).unwrap();
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
        let mut response = Vec::new();
        timeout(LONG, stream.read_to_end(&mut response)).await.unwrap().unwrap();
        String::from_utf8_lossy(&response).into_owned()
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

fn header<'a>(response: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = response.split("\r\n\r\n").next()?.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[tokio::test]
async fn each_resource_is_served_and_errors_have_a_reason() {
    let page = Fixture::new();
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
        let response = page.ask(request, "host: localhost\r\n").await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request}: {response}");
        assert!(response.contains(part), "{request}: {response}");
        let policy = header(&response, "content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(header(&response, "x-content-type-options"), Some("nosniff"));
    }
}

#[tokio::test]
async fn head_is_answered_without_content() {
    let page = Fixture::new();
    for target in ["/", "/licences.txt", "/api/board", "/api/live"] {
        let response = page.ask(&format!("HEAD {target}"), "host: localhost\r\n").await;
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
        assert!(response.ends_with("\r\n\r\n"), "{response}");
    }
}

#[tokio::test]
async fn assets_are_cached_by_etag_and_the_board_is_not() {
    let page = Fixture::new();
    for asset in assets::all() {
        let response = page.get(asset.path).await;
        let is_page = asset.path == "/";
        let caching = header(&response, "cache-control").unwrap();
        assert_eq!(caching.contains("immutable"), !is_page && asset.path != "/licences.txt", "{}", asset.path);
        let etag = header(&response, "etag").unwrap();
        let known = format!("host: localhost\r\nif-none-match: \"x\", W/{etag}\r\n");
        let again = page.ask(&format!("GET {}", asset.path), &known).await;
        assert!(again.starts_with("HTTP/1.1 304 Not Modified\r\n"), "{again}");
        assert!(again.ends_with("\r\n\r\n"), "{again}");
    }
    assert_eq!(header(&page.get("/api/board").await, "cache-control"), Some("no-store"));
}

#[tokio::test]
async fn the_page_loads_existing_files_and_has_no_inline_script() {
    let page = Fixture::new();
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
async fn a_foreign_host_name_is_refused() {
    let page = Fixture::new();
    for fields in ["host: evil.example\r\n", "host: localhost\r\nhost: localhost\r\n", "host: a b\r\n", ""] {
        let response = page.ask("GET /api/board", fields).await;
        assert!(!response.contains("192.0.2.1"), "{fields}: {response}");
        assert!(response.starts_with("HTTP/1.1 421 ") || response.starts_with("HTTP/1.1 400 "), "{fields}: {response}");
    }
    let absolute = page.ask("GET http://evil.example/api/board", "host: localhost\r\n").await;
    assert!(absolute.starts_with("HTTP/1.1 421 "), "{absolute}");
    for host in ["watch.example:8484", "127.0.0.1", "[::1]:1"] {
        let response = page.ask("GET /api/board", &format!("host: {host}\r\n")).await;
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{host}: {response}");
    }
}

#[tokio::test]
async fn a_live_stream_begins_with_the_latest_tick() {
    let page = Fixture::new();
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
async fn a_live_stream_without_ticks_has_comments() {
    let page = Fixture::with(LIMITS, Duration::from_millis(20));
    read_to(&mut page.live().await, "\r\n:\n\n\r\n").await;
}

#[tokio::test]
async fn a_viewer_that_does_not_read_is_disconnected_and_others_are_not_delayed() {
    let page = Fixture::with(Limits { write_timeout: Some(Duration::from_secs(2)), ..LIMITS }, COMMENT_INTERVAL);
    let mut slow = page.live().await;
    let mut eager = page.live().await;
    read_to(&mut eager, EVENT_END).await;
    let large = Bytes::from(vec![b'x'; 1 << 20]);
    // The task of the slow viewer holds a receiver of ticks until it ends.
    let begun = Instant::now();
    let receivers = || page.ticks.receiver_count();
    assert_eq!(receivers(), 3);
    while receivers() > 2 {
        assert!(begun.elapsed() < LONG, "it is still there");
        page.ticks.send_replace(large.clone());
        read_to(&mut eager, EVENT_END).await;
    }
    let mut rest = Vec::new();
    let _ = timeout(LONG, slow.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.len() < 16 << 20, "{} bytes were buffered for it", rest.len());
}

#[tokio::test]
async fn shutdown_ends_live_streams_and_the_listener() {
    let page = Fixture::new();
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
