//! Scripted origins, and a client that sends requests to them through a proxy.

// `paper` does not need all items of this module.
#![allow(dead_code)]

pub(crate) mod download;
pub(crate) mod pki;
pub(crate) mod upgrade;

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use watari_body::{Body, BoxError};
use watari_proxy::{Client, Config, Limits, Metrics, OriginAddress, PoolConfig, Proxy};

/// The reaction of a scripted origin to the next request, on any connection.
#[derive(Clone)]
pub(crate) enum Act {
    /// Writes this and waits for the next request on the same connection.
    Answer(Vec<u8>),
    /// Writes this and closes the connection.
    AnswerAndClose(Vec<u8>),
    /// Writes this, and leaves the connection open without further action.
    AnswerAndStall(Vec<u8>),
    /// Reads only the head of the request.
    Ignore,
    /// Writes this after the head of the request, and closes the connection after the other side has.
    AnswerTheHead(Vec<u8>),
    /// Requests the body by a 100 after the head. Then the next act follows.
    AskForTheBody,
}

pub(crate) fn answer(text: &str) -> Act {
    Act::Answer(text.into())
}

pub(crate) fn answer_and_close(text: &str) -> Act {
    Act::AnswerAndClose(text.into())
}

pub(crate) fn answer_and_stall(text: &str) -> Act {
    Act::AnswerAndStall(text.into())
}

/// An origin on a loopback port, with plain TCP so that it can misbehave.
pub(crate) struct ScriptedOrigin {
    pub(crate) address: OriginAddress,
    /// The requests in the order of arrival, each with the number of its connection (from 1).
    pub(crate) requests: mpsc::UnboundedReceiver<(usize, String)>,
}

impl ScriptedOrigin {
    pub(crate) async fn start(script: impl IntoIterator<Item = Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let (sender, requests) = mpsc::unbounded_channel();
        let script: Vec<Act> = script.into_iter().collect();
        tokio::spawn(play(listener, script, sender));
        Self { address, requests }
    }

    /// The next request's text.
    pub(crate) async fn request(&mut self) -> String {
        self.requests.recv().await.unwrap().1
    }

    /// The numbers of the connections that the requests so far came on.
    pub(crate) fn connections(&mut self) -> Vec<usize> {
        std::iter::from_fn(|| self.requests.try_recv().ok()).map(|(connection, _)| connection).collect()
    }
}

/// Serves one connection after the other. A connection that is to stall is stored in a list.
async fn play(listener: TcpListener, script: Vec<Act>, requests: mpsc::UnboundedSender<(usize, String)>) {
    let mut script = script.into_iter();
    let mut stalled = Vec::new();
    for connection in 1.. {
        let (mut socket, _) = listener.accept().await.unwrap();
        while let Some(head) = read_head(&mut socket).await {
            let mut act = script.next().expect("the script is long enough");
            if let Act::AskForTheBody = act {
                socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
                act = script.next().expect("the script is long enough");
            }
            if let Act::Ignore = act {
                requests.send((connection, head)).ok();
                stalled.push(socket);
                break;
            }
            if let Act::AnswerTheHead(bytes) = act {
                requests.send((connection, head)).ok();
                socket.write_all(&bytes).await.unwrap();
                assert_eq!(socket.read_to_end(&mut Vec::new()).await.unwrap(), 0, "nothing was asked for");
                break;
            }
            let body = read_body(&mut socket, &head).await;
            requests.send((connection, head + &body)).ok();
            match act {
                Act::Answer(bytes) => socket.write_all(&bytes).await.unwrap(),
                Act::AnswerAndClose(bytes) => {
                    socket.write_all(&bytes).await.unwrap();
                    break;
                }
                Act::AnswerAndStall(bytes) => {
                    socket.write_all(&bytes).await.unwrap();
                    stalled.push(socket);
                    break;
                }
                Act::Ignore | Act::AnswerTheHead(_) | Act::AskForTheBody => unreachable!("handled above"),
            }
        }
    }
}

async fn read_head(socket: &mut TcpStream) -> Option<String> {
    read_until(socket, "\r\n\r\n").await
}

async fn read_body(socket: &mut TcpStream, head: &str) -> String {
    let head = head.to_ascii_lowercase();
    if head.contains("transfer-encoding: chunked") {
        return read_until(socket, "0\r\n\r\n").await.unwrap_or_default();
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    socket.read_exact(&mut body).await.ok();
    String::from_utf8(body).unwrap()
}

async fn read_until(socket: &mut TcpStream, end: &str) -> Option<String> {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        text.push(socket.read_u8().await.ok()?);
    }
    Some(String::from_utf8(text).unwrap())
}

/// An address without a listener, for as long as the socket lives.
pub(crate) fn refusing_origin() -> (OriginAddress, tokio::net::TcpSocket) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = format!("http://{}", socket.local_addr().unwrap()).parse().unwrap();
    (address, socket)
}

/// A proxy with its metrics.
pub(crate) struct Fixture {
    pub(crate) proxy: Proxy,
    registry: prometheus_client::registry::Registry,
}

impl Fixture {
    pub(crate) fn new(origins: impl IntoIterator<Item = OriginAddress>, limits: Limits) -> Self {
        Self::of(PoolConfig { limits, ..PoolConfig::plain("pool", origins) })
    }

    pub(crate) fn of(pool: PoolConfig) -> Self {
        let mut registry = prometheus_client::registry::Registry::default();
        let metrics = Metrics::register(&mut registry);
        Self { proxy: Proxy::new(Config::one_pool(pool), metrics).unwrap(), registry }
    }

    /// Asserts that the scraped metrics contain this line.
    #[track_caller]
    pub(crate) fn assert_metric(&self, line: &str) {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        assert!(text.lines().any(|candidate| candidate == line), "no {line} in\n{text}");
    }

    pub(crate) async fn respond<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.proxy.respond(request, &client()).await
    }

    /// GET `/`: the status, and the body or its error.
    pub(crate) async fn get(&self) -> (u16, Result<String, String>) {
        read(self.respond(get()).await).await
    }
}

/// Advances the clock at once.
pub(crate) async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

pub(crate) fn client() -> Client {
    Client::new("192.0.2.7:1234".parse().unwrap(), "192.0.2.1:443".parse().unwrap(), None)
}

pub(crate) fn get() -> Request<Empty<Bytes>> {
    get_path("/")
}

pub(crate) fn get_path(path: &str) -> Request<Empty<Bytes>> {
    Request::get(path).header("host", "example.org").body(Empty::new()).unwrap()
}

pub(crate) fn post(body: &'static str) -> Request<Full<Bytes>> {
    let request = Request::post("/").header("host", "example.org").header("content-length", body.len());
    request.body(Full::from(body)).unwrap()
}

/// The status, and the body, or the error of the body with its causes.
pub(crate) async fn read(response: Response<Body>) -> (u16, Result<String, String>) {
    let status = response.status().as_u16();
    let body = response.into_body().collect().await;
    (status, body.map(|body| String::from_utf8(body.to_bytes().into()).unwrap()).map_err(|error| error.to_string()))
}

pub(crate) fn ok(text: &str) -> Act {
    answer(&format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()))
}

type Piece = Result<Frame<Bytes>, BoxError>;

/// A body of unknown length, with the pieces of a channel.
pub(crate) struct Pieces(mpsc::UnboundedReceiver<Piece>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        self.0.poll_recv(cx)
    }
}

/// A POST, and the channel for its body. The body ends when the channel is dropped.
pub(crate) fn upload() -> (mpsc::UnboundedSender<Piece>, Request<Pieces>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, Request::post("/").header("host", "example.org").body(Pieces(receiver)).unwrap())
}
