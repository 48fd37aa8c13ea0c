//! Exchanges over streams in memory, with an origin that a test plays itself.

#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Version, response};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};
use watari_body::{BoxError, BoxedRequest, OnInformational, empty};

use super::*;
use crate::exchange::error::ExchangeError;
use crate::exchange::limits::Limits;
use crate::transport::connections::{Connections, Lease};
use crate::transport::relay::Relayed;

const WAIT_MAX: Duration = Duration::from_secs(10);
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
const TRAILERS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n";

fn peer() -> SocketAddr {
    "192.0.2.1:80".parse().unwrap()
}

/// A connection that holds at most `size` bytes in each direction, and the origin's end.
fn pair(size: usize) -> (Http1, DuplexStream) {
    let (ours, theirs) = duplex(size);
    (Http1::new(ours, peer()), theirs)
}

fn get() -> BoxedRequest {
    Request::get("/").header("host", "a").body(empty()).unwrap().into()
}

/// A POST whose length is known, or which is sent in chunks.
fn post(
    body: impl http_body::Body<Data = Bytes, Error = Infallible> + Send + 'static,
    has_length: bool,
) -> BoxedRequest {
    let mut request = Request::post("/").header("host", "a");
    if let Some(length) = body.size_hint().exact().filter(|_| has_length) {
        request = request.header("content-length", length);
    }
    request.body(body).unwrap().into()
}

type Piece = Result<Frame<Bytes>, BoxError>;

/// A body with the pieces of a channel.
struct Pieces(mpsc::UnboundedReceiver<Piece>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        self.0.poll_recv(cx)
    }
}

/// A POST in chunks, and the channel for its body.
fn upload() -> (mpsc::UnboundedSender<Piece>, BoxedRequest) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, Request::post("/").header("host", "a").body(Pieces(receiver)).unwrap().into())
}

fn send(pieces: &mpsc::UnboundedSender<Piece>, text: &str) {
    pieces.send(Ok(Frame::data(Bytes::copy_from_slice(text.as_bytes())))).unwrap();
}

/// The head and the whole content of a response, and its trailers.
type Whole = (response::Parts, Bytes, Option<HeaderMap>);

async fn whole(exchange: &mut Exchange) -> Result<Whole, ExchangeError> {
    let head = exchange.response().await?;
    let (mut data, mut trailers) = (BytesMut::new(), None);
    while let Some(frame) = exchange.frame().await {
        match frame?.into_data() {
            Ok(piece) => data.extend_from_slice(&piece),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    assert!(exchange.is_end_stream());
    Ok((head, data.freeze(), trailers))
}

/// Makes an exchange with an origin that writes `response` at once, and then keeps the connection.
async fn exchange(response: &str) -> (Result<Whole, ExchangeError>, Option<Http1>, DuplexStream) {
    let (connection, mut origin) = pair(1 << 20);
    let mut exchange = Exchange::new(connection, &mut get(), None).unwrap();
    // Before it is read, the origin's end is checked for bytes that came too early.
    let answer = async {
        let mut head = Vec::new();
        read_until(&mut origin, b"\r\n\r\n", &mut head).await;
        origin.write_all(response.as_bytes()).await.unwrap();
    };
    let (result, ()) = timeout(WAIT_MAX, async { tokio::join!(whole(&mut exchange), answer) }).await.unwrap();
    (result, exchange.into_connection(), origin)
}

async fn read_until(origin: &mut DuplexStream, end: &[u8], text: &mut Vec<u8>) {
    while !text.ends_with(end) {
        text.push(origin.read_u8().await.unwrap());
    }
}

#[tokio::test]
async fn any_framing_arrives_however_it_is_split() {
    let long = "x".repeat(300);
    let (length, chunks) = (format!("content-length: 300\r\n\r\n{long}"), format!("12c\r\n{long}\r\n0\r\n\r\n"));
    for (has_length, sent) in [(true, length), (false, format!("transfer-encoding: chunked\r\n\r\n{chunks}"))] {
        for size in [1, 2, 7, 1 << 16] {
            for (answer, expected) in [(OK, "abc"), (CHUNKED, "abcde"), (TRAILERS, "abc")] {
                let (connection, mut origin) = pair(size);
                let mut request = post(Full::from(long.clone()), has_length);
                let mut exchange = Exchange::new(connection, &mut request, None).unwrap();
                let serve = async {
                    let mut text = Vec::new();
                    read_until(&mut origin, sent.as_bytes(), &mut text).await;
                    origin.write_all(answer.as_bytes()).await.unwrap();
                    String::from_utf8(text).unwrap()
                };
                let (result, request) = tokio::join!(whole(&mut exchange), serve);
                let (_, data, trailers) = result.unwrap();
                assert_eq!(request, format!("POST / HTTP/1.1\r\nhost: a\r\n{sent}"));
                assert_eq!((&data[..], trailers.is_some()), (expected.as_bytes(), answer == TRAILERS), "{size}");
                assert!(exchange.into_connection().unwrap().is_open());
            }
        }
    }
}

#[tokio::test]
async fn trailers_of_a_request_are_sent() {
    let (connection, mut origin) = pair(1 << 16);
    let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), HeaderValue::from_static("1"))]);
    let (pieces, mut request) = upload();
    send(&pieces, "abc");
    pieces.send(Ok(Frame::trailers(trailers))).unwrap();
    drop(pieces);
    let mut exchange = Exchange::new(connection, &mut request, None).unwrap();
    let serve = async {
        read_until(&mut origin, b"3\r\nabc\r\n0\r\nx-sum: 1\r\n\r\n", &mut Vec::new()).await;
        origin.write_all(OK.as_bytes()).await.unwrap();
    };
    let (result, ()) = tokio::join!(whole(&mut exchange), serve);
    assert_eq!(result.unwrap().1, "abc");
    assert!(exchange.into_connection().is_some());
}

/// RFC 9112, section 8: a message that was cut is never complete.
#[tokio::test]
async fn an_end_at_any_byte_never_looks_complete() {
    let interim = format!("HTTP/1.1 103 Early Hints\r\n\r\n{OK}");
    for text in [OK, CHUNKED, TRAILERS, "HTTP/1.1 204 No Content\r\n\r\n", &interim] {
        for len in 0..=text.len() {
            let (connection, mut origin) = pair(1 << 16);
            let mut exchange = Exchange::new(connection, &mut get(), None).unwrap();
            let serve = async {
                read_until(&mut origin, b"\r\n\r\n", &mut Vec::new()).await;
                origin.write_all(&text.as_bytes()[..len]).await.unwrap();
                drop(origin);
            };
            let (result, ()) = tokio::join!(whole(&mut exchange), serve);
            let is_cut = matches!(result, Err(ExchangeError::Closed(_)));
            assert_eq!((result.is_ok(), is_cut), (len == text.len(), len < text.len()), "{len} bytes of {text:?}");
            let is_open = exchange.into_connection().is_some_and(|mut connection| connection.is_open());
            assert!(!is_open);
        }
    }
}

#[tokio::test]
async fn the_end_of_the_connection_completes_content_without_a_length() {
    let (connection, mut origin) = pair(1 << 16);
    let mut exchange = Exchange::new(connection, &mut get(), None).unwrap();
    let serve = async {
        read_until(&mut origin, b"\r\n\r\n", &mut Vec::new()).await;
        origin.write_all(b"HTTP/1.0 200 OK\r\n\r\nuntil the end").await.unwrap();
        drop(origin);
    };
    let (result, ()) = tokio::join!(whole(&mut exchange), serve);
    let (head, data, _) = result.unwrap();
    assert_eq!((head.version, &data[..]), (Version::HTTP_10, &b"until the end"[..]));
    assert!(exchange.into_connection().is_none());
}

/// RFC 9112, section 9.2: they are no response to the next request.
#[tokio::test]
async fn bytes_behind_a_response_end_its_connection() {
    for text in [OK, CHUNKED, "HTTP/1.1 204 No Content\r\n\r\n"] {
        let (result, connection, _origin) = exchange(&format!("{text}{OK}")).await;
        assert!(result.is_ok() && connection.is_none(), "{text}");

        let (_, connection, mut origin) = exchange(text).await;
        let mut connection = connection.unwrap();
        assert!(connection.is_open());
        origin.write_all(OK.as_bytes()).await.unwrap();
        assert!(!connection.is_open(), "they came later");
    }
    let (_, connection, origin) = exchange(OK).await;
    drop(origin);
    let exchange = Exchange::new(connection.unwrap(), &mut get(), None);
    let mut exchange = exchange.unwrap();
    assert!(matches!(exchange.response().await, Err(ExchangeError::Closed(_))));
    assert!(exchange.into_untouched().is_some());
}

#[tokio::test]
async fn connections_that_the_origin_closes_are_not_used_again() {
    for text in [
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    ] {
        let (result, connection, _origin) = exchange(text).await;
        assert!(result.is_ok() && connection.is_none());
    }
}

#[tokio::test]
async fn faults_are_the_origins() {
    for text in ["garbage\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"] {
        let (result, connection, _origin) = exchange(text).await;
        assert!(matches!(result, Err(ExchangeError::Head(_))) && connection.is_none(), "{text}");
    }
    let (result, ..) = exchange("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx").await;
    assert!(matches!(result, Err(ExchangeError::Content(_))));
}

#[tokio::test]
async fn long_content_arrives() {
    let text: String = (b'a'..=b'w').cycle().take(300_000).map(char::from).collect();
    let chunk = |chunk: &[u8]| format!("{:x}\r\n{}\r\n", chunk.len(), str::from_utf8(chunk).unwrap());
    let chunks = text.as_bytes().chunks(999).map(chunk).collect::<Vec<_>>().concat();
    for answer in [
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()),
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"),
    ] {
        let (result, connection, _origin) = exchange(&answer).await;
        assert!(result.unwrap().1 == text && connection.is_some());
    }
}

/// A stream that nothing can be written to.
struct Unwritable;

impl AsyncRead for Unwritable {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Unwritable {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn the_body_of_a_request_of_which_nothing_was_written_is_returned_whole() {
    let (pieces, streamed) = upload();
    send(&pieces, "a");
    send(&pieces, "bc");
    drop(pieces);
    for (mut request, expected) in [(get(), ""), (post(Full::from("abc"), true), "abc"), (streamed, "abc")] {
        let mut exchange = Exchange::new(Http1::new(Unwritable, peer()), &mut request, None).unwrap();
        assert!(matches!(exchange.response().await, Err(ExchangeError::Closed(_))));
        let body = exchange.into_untouched().unwrap();
        assert_eq!(body.collect().await.unwrap().to_bytes(), expected);
    }
}

#[tokio::test]
async fn the_body_of_a_request_of_which_a_byte_was_written_is_not_returned() {
    let (connection, origin) = pair(1);
    let mut exchange = Exchange::new(connection, &mut get(), None).unwrap();
    let serve = async {
        let mut origin = origin;
        origin.read_u8().await.unwrap();
    };
    let (result, ()) = tokio::join!(exchange.response(), serve);
    assert!(matches!(result, Err(ExchangeError::Closed(_))));
    assert!(exchange.into_untouched().is_none());
}

#[tokio::test]
async fn a_body_that_fails_is_told_from_an_origin_that_does() {
    let (connection, _origin) = pair(1 << 16);
    let (pieces, mut request) = upload();
    send(&pieces, "half");
    pieces.send(Err("gone".into())).unwrap();
    let mut exchange = Exchange::new(connection, &mut request, None).unwrap();
    assert!(matches!(exchange.response().await, Err(ExchangeError::Upload(_))));
}

/// The origin refuses the rest of a request, and closes the connection.
#[tokio::test]
async fn a_response_counts_although_the_request_could_not_be_written() {
    let (connection, mut origin) = pair(256);
    let mut request = post(Full::from("x".repeat(100_000)), true);
    let mut exchange = Exchange::new(connection, &mut request, None).unwrap();
    let serve = async {
        origin.read_exact(&mut [0; 100]).await.unwrap();
        origin.write_all(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        drop(origin);
    };
    let (head, ()) = tokio::join!(exchange.response(), serve);
    assert_eq!(head.unwrap().status, 413);
    assert!(exchange.is_end_stream() || !exchange.is_sent());
    exchange.send_rest().await;
    assert!(exchange.is_sent() && exchange.into_connection().is_none());
}

#[tokio::test]
async fn a_connection_is_used_again_if_both_sides_are_complete() {
    let (connection, mut origin) = pair(1 << 16);
    let (_pieces, mut request) = upload();
    let mut exchange = Exchange::new(connection, &mut request, None).unwrap();
    let serve = async {
        read_until(&mut origin, b"\r\n\r\n", &mut Vec::new()).await;
        origin.write_all(OK.as_bytes()).await.unwrap();
    };
    let (result, ()) = tokio::join!(whole(&mut exchange), serve);
    assert_eq!(result.unwrap().1, "abc");
    assert!(!exchange.is_sent() && exchange.into_connection().is_none());
    assert_eq!(origin.read(&mut [0]).await.unwrap(), 0, "it is closed");
}

/// A lease of one of two connections that may be kept.
fn lease() -> (Arc<Connections>, Lease) {
    let connections = Arc::new(Connections::new(&Limits::default()));
    let lease = Lease::new(&connections, true, connections.permit().unwrap());
    (connections, lease)
}

#[tokio::test]
async fn a_response_does_not_wait_for_its_request_nor_the_request_for_it() {
    let (connection, mut origin) = pair(64);
    let (connections, lease) = lease();
    let (pieces, mut request) = upload();
    let mut exchange = Exchange::new(connection, &mut request, None).unwrap();
    let serve = async {
        read_until(&mut origin, b"\r\n\r\n", &mut Vec::new()).await;
        origin.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
    };
    let (head, ()) = tokio::join!(exchange.response(), serve);
    assert_eq!(head.unwrap().status, 200);
    let mut content = Relayed::start(exchange, lease, WAIT_MAX);

    // No frame is taken, and the request goes on.
    let text = "x".repeat(100);
    send(&pieces, &text);
    read_until(&mut origin, text.as_bytes(), &mut Vec::new()).await;
    // No piece of the request comes, and the response goes on.
    for expected in ["abc", "de"] {
        origin.write_all(format!("{}\r\n{expected}\r\n", expected.len()).as_bytes()).await.unwrap();
        let frame = timeout(WAIT_MAX, std::future::poll_fn(|cx| content.poll_frame(cx))).await.unwrap();
        assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), expected);
    }
    origin.write_all(b"0\r\n\r\n").await.unwrap();
    let end = timeout(WAIT_MAX, std::future::poll_fn(|cx| content.poll_frame(cx))).await.unwrap();
    assert!(end.is_none());
    drop(content);
    // The response is complete, the request is not.
    assert_eq!((connections.in_flight(), connections.has_spare(Instant::now())), (1, false));
    send(&pieces, "last");
    drop(pieces);
    read_until(&mut origin, b"4\r\nlast\r\n0\r\n\r\n", &mut Vec::new()).await;
    while !connections.has_spare(Instant::now()) {
        tokio::task::yield_now().await;
    }
    assert_eq!(connections.in_flight(), 0);
}

#[tokio::test]
async fn a_relayed_response_that_is_dropped_closes_its_connection() {
    let (connection, mut origin) = pair(1 << 16);
    let (connections, lease) = lease();
    let (_pieces, mut request) = upload();
    let mut exchange = Exchange::new(connection, &mut request, None).unwrap();
    let serve = async {
        read_until(&mut origin, b"\r\n\r\n", &mut Vec::new()).await;
        origin.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc").await.unwrap();
    };
    let (head, ()) = tokio::join!(exchange.response(), serve);
    assert_eq!(head.unwrap().status, 200);
    drop(Relayed::start(exchange, lease, WAIT_MAX));
    assert_eq!(timeout(WAIT_MAX, origin.read(&mut [0])).await.unwrap().unwrap(), 0);
    assert_eq!((connections.in_flight(), connections.has_spare(Instant::now())), (0, false));
}

/// A body that waits until it is wanted, and counts how often it is read.
struct Held {
    wanted: Pin<Box<dyn Future<Output = ()> + Send>>,
    read: Arc<AtomicUsize>,
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        ready!(self.wanted.as_mut().poll(cx));
        let is_first = self.read.fetch_add(1, Ordering::Relaxed) == 0;
        self.wanted = Box::pin(std::future::ready(()));
        Poll::Ready(is_first.then(|| Ok(Frame::data("body".into()))))
    }
}

fn held() -> (BoxedRequest, Arc<Notify>, Arc<AtomicUsize>) {
    let (wanted, read) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let notified = Arc::clone(&wanted);
    let body = Held { wanted: Box::pin(async move { notified.notified().await }), read: Arc::clone(&read) };
    let mut request = post(body, false);
    request.head.headers.insert("expect", HeaderValue::from_static("100-continue"));
    (request, wanted, read)
}

/// RFC 9110, section 10.1.1.
#[tokio::test]
async fn content_waits_for_100() {
    let (connection, mut origin) = pair(1 << 16);
    let (mut request, wanted, read) = held();
    let mut exchange = Exchange::new(connection, &mut request, Some(wanted)).unwrap();
    let serve = async {
        read_until(&mut origin, b"\r\n\r\n", &mut Vec::new()).await;
        assert_eq!(read.load(Ordering::Relaxed), 0);
        origin.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
        read_until(&mut origin, b"4\r\nbody\r\n0\r\n\r\n", &mut Vec::new()).await;
        origin.write_all(OK.as_bytes()).await.unwrap();
    };
    let (result, ()) = tokio::join!(whole(&mut exchange), serve);
    assert_eq!(result.unwrap().1, "abc");
    assert!(exchange.into_connection().is_some());
}

#[tokio::test]
async fn content_that_was_not_asked_for_is_not_sent() {
    let (connection, mut origin) = pair(1 << 16);
    let (mut request, wanted, read) = held();
    let mut exchange = Exchange::new(connection, &mut request, Some(wanted)).unwrap();
    let serve = async {
        read_until(&mut origin, b"\r\n\r\n", &mut Vec::new()).await;
        origin.write_all(OK.as_bytes()).await.unwrap();
    };
    let (result, ()) = tokio::join!(whole(&mut exchange), serve);
    assert_eq!((&result.unwrap().1[..], read.load(Ordering::Relaxed)), (&b"abc"[..], 0));
    assert!(exchange.is_sent() && exchange.into_connection().is_none());
    assert_eq!(origin.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn informational_responses_reach_the_callback() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let (connection, mut origin) = pair(1 << 16);
    let mut request = get();
    request.on_informational = Some(OnInformational::new(move |status, fields: HeaderMap| {
        sink.lock().unwrap().push((status.as_u16(), fields.len(), fields.get("link").cloned()));
    }));
    let mut exchange = Exchange::new(connection, &mut request, None).unwrap();
    let serve = async {
        read_until(&mut origin, b"\r\n\r\n", &mut Vec::new()).await;
        let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: x\r\nX: 1\r\n\r\n";
        let text = format!("HTTP/1.1 100 Continue\r\n\r\n{hints}HTTP/1.1 104 x\r\n\r\n{OK}");
        origin.write_all(text.as_bytes()).await.unwrap();
    };
    let (result, ()) = tokio::join!(whole(&mut exchange), serve);
    assert_eq!(result.unwrap().0.status, 200);
    assert_eq!(*seen.lock().unwrap(), [(103, 1, Some(HeaderValue::from_static("</a>"))), (104, 0, None)]);
}

#[tokio::test]
async fn a_switched_connection_gives_what_was_read_ahead() {
    let (connection, mut origin) = pair(1 << 16);
    let mut request = get();
    request.head.headers.insert("connection", HeaderValue::from_static("upgrade"));
    request.head.headers.insert("upgrade", HeaderValue::from_static("echo"));
    let mut exchange = Exchange::new(connection, &mut request, None).unwrap();
    let serve = async {
        read_until(&mut origin, b"\r\n\r\n", &mut Vec::new()).await;
        origin.write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\n\r\nfirst").await.unwrap();
    };
    let (head, ()) = tokio::join!(exchange.response(), serve);
    assert_eq!(head.unwrap().status, 101);
    let mut switched = exchange.into_switched().unwrap();
    origin.write_all(b" words").await.unwrap();
    let mut words = [0; 11];
    switched.read_exact(&mut words).await.unwrap();
    assert_eq!(&words, b"first words");
    switched.write_all(b"back").await.unwrap();
    origin.read_exact(&mut words[..4]).await.unwrap();
    assert_eq!(&words[..4], b"back");
}
