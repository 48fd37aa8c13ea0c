//! Limits, timeouts and shutdown of an endpoint.

#![allow(clippy::unwrap_used)]

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use watari_http_endpoint::{Endpoint, Handler, Limits, Listener};

/// Longer than any test takes, on any machine.
const LONG: Duration = Duration::from_secs(30);

const LIMITS: Limits = Limits {
    connections_max: 3,
    head_timeout: LONG,
    buffer_max: 16 << 10,
    keep_alive: true,
    connection_timeout: None,
    write_timeout: None,
};

/// Responds with as many bytes as the path says.
struct Length;

impl Handler for Length {
    type Body = Full<Bytes>;

    fn respond(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let len = request.uri().path().trim_start_matches('/').parse().unwrap_or(2);
        Response::new(Full::from(vec![b'x'; len]))
    }
}

struct Fixture {
    endpoint: Endpoint<Length>,
    listener: Listener,
    address: SocketAddr,
    shutdown: CancellationToken,
}

impl Fixture {
    fn new(limits: Limits) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let endpoint = Endpoint::new("a test", limits, Length, shutdown.clone());
        let listener = endpoint.listen_std(socket).unwrap();
        Self { endpoint, listener, address, shutdown }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A connection that has had a response.
    async fn idle(&self) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(b"GET /2 HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut response = Vec::new();
        while !response.ends_with(b"\r\n\r\nxx") {
            response.push(timeout(LONG, stream.read_u8()).await.unwrap().unwrap());
        }
        stream
    }
}

/// Reads until the end, also by a reset, for at most [`LONG`].
async fn to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    let _ = timeout(LONG, stream.read_to_end(&mut received)).await.expect("the connection is not closed");
    received
}

#[tokio::test]
async fn connections_over_the_limit_are_reset_and_slots_are_freed() {
    let fixture = Fixture::new(LIMITS);
    let mut idle = Vec::new();
    for _ in 0..LIMITS.connections_max {
        idle.push(fixture.idle().await);
    }
    assert!(to_end(&mut fixture.connect().await).await.is_empty());
    assert_eq!(fixture.endpoint.refused().get(), 1);
    idle.pop();
    let begin = Instant::now();
    loop {
        let mut stream = fixture.connect().await;
        let sent = stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
        if sent.is_ok() && !to_end(&mut stream).await.is_empty() {
            return;
        }
        assert!(begin.elapsed() < LONG, "no slot is freed");
    }
}

#[tokio::test]
async fn connections_end_at_the_head_timeout() {
    let fixture = Fixture::new(Limits { head_timeout: Duration::from_secs(2), ..LIMITS });
    let (mut silent, mut half, mut idle) = (fixture.connect().await, fixture.connect().await, fixture.idle().await);
    half.write_all(b"GET / HTTP/1.1\r\nhost").await.unwrap();
    // The server responds with 408 or not at all.
    for stream in [&mut silent, &mut half, &mut idle] {
        let received = to_end(stream).await;
        assert!(received.is_empty() || received.starts_with(b"HTTP/1.1 408 "), "{received:?}");
    }
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let fixture = Fixture::new(LIMITS);
    let mut stream = fixture.connect().await;
    let head = format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(2 * LIMITS.buffer_max));
    // The server closed it with unread bytes. That may cause a reset, without a response or with a part of it.
    let sent = stream.write_all(head.as_bytes()).await;
    let response = if sent.is_ok() { to_end(&mut stream).await } else { Vec::new() };
    assert!(response.is_empty() || response.starts_with(b"HTTP/1.1 431 "), "{response:?}");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected_at_the_write_timeout() {
    const LEN: usize = 32 << 20;
    let fixture = Fixture::new(Limits { write_timeout: Some(Duration::from_secs(1)), ..LIMITS });
    let mut stream = fixture.connect().await;
    stream.write_all(format!("GET /{LEN} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(to_end(&mut stream).await.len() < LEN);
}

#[tokio::test]
async fn connections_end_at_the_connection_timeout() {
    let fixture = Fixture::new(Limits { connection_timeout: Some(Duration::from_secs(1)), ..LIMITS });
    assert!(to_end(&mut fixture.idle().await).await.is_empty());
}

#[tokio::test]
async fn a_closed_listener_keeps_its_connections_and_shutdown_ends_them() {
    let fixture = Fixture::new(LIMITS);
    let mut stream = fixture.idle().await;
    fixture.listener.close().await;
    assert!(TcpStream::connect(fixture.address).await.is_err());
    stream.write_all(b"GET /1 HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut begin = [0; 15];
    timeout(LONG, stream.read_exact(&mut begin)).await.unwrap().unwrap();
    assert_eq!(begin, *b"HTTP/1.1 200 OK");
    fixture.shutdown.cancel();
    assert!(to_end(&mut stream).await.ends_with(b"\r\n\r\nx"));
}
