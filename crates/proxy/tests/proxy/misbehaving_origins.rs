//! Origins that are unreachable, silent, broken, or cut their responses short; clients that stop in the middle.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body::{Frame, SizeHint};
use http_body_util::Empty;
use tokio::time::{Sleep, sleep};
use watari_balance::OutlierLimits;
use watari_body::BoxError;
use watari_proxy::{Balance, Limits, PoolConfig};

use crate::common::{
    Act, Fixture, ScriptedOrigin, answer, answer_and_close, answer_and_stall, get, ok, post, read, refusing_origin,
    upload,
};

/// Short timeouts, for waits that end with an error.
fn short_timeouts() -> Limits {
    Limits { response_timeout: Duration::from_millis(30), body_timeout: Duration::from_millis(30), ..Limits::default() }
}

#[tokio::test]
async fn an_origin_that_is_away_is_passed_over() {
    let (away, _socket) = refusing_origin();
    let here = ScriptedOrigin::start([ok("1"), ok("2"), ok("3")]).await;
    let outliers = OutlierLimits { in_a_row: 1, ..OutlierLimits::default() };
    let balance = Balance { outliers, ..Balance::default() };
    let fixture = Fixture::of(PoolConfig { balance, ..PoolConfig::plain("pool", [away.clone(), here.address]) });
    for expected in ["1", "2", "3"] {
        assert_eq!(fixture.get().await, (200, Ok(expected.into())));
    }
    // Tried once, then ejected, although its turn came twice.
    fixture.assert_metric(&format!("watari_proxy_connect_errors_total{{origin=\"{away}\"}} 1"));
}

#[tokio::test]
async fn a_request_with_a_body_goes_to_the_next_origin_untouched() {
    let (away, _socket) = refusing_origin();
    let mut here = ScriptedOrigin::start([ok("thanks")]).await;
    let fixture = Fixture::new([away, here.address.clone()], Limits::default());
    let answer = read(fixture.respond(post("upload")).await).await;
    assert_eq!(answer, (200, Ok("thanks".into())));
    assert!(here.request().await.ends_with("\r\n\r\nupload"));
}

#[tokio::test]
async fn all_origins_away_is_a_bad_gateway() {
    let (away, _socket) = refusing_origin();
    let fixture = Fixture::new([away.clone()], Limits::default());
    for _ in 0..2 {
        assert_eq!(fixture.get().await, (502, Ok("Bad Gateway\n".into())));
    }
    // The only origin is tried even while it is ejected.
    fixture.assert_metric(&format!("watari_proxy_connect_errors_total{{origin=\"{away}\"}} 2"));
    fixture.assert_metric("watari_proxy_failures_total{reason=\"connect\"} 2");
}

#[tokio::test]
async fn no_more_origins_are_tried_than_allowed() {
    let (away, _socket) = refusing_origin();
    let here = ScriptedOrigin::start([]).await;
    let fixture = Fixture::new([away.clone(), away, here.address], Limits { attempts_max: 2, ..Limits::default() });
    assert_eq!(fixture.get().await.0, 502);
}

#[tokio::test]
async fn no_origin_is_unavailable() {
    let fixture = Fixture::new([], Limits::default());
    assert_eq!(fixture.get().await.0, 503);
    fixture.assert_metric("watari_proxy_failures_total{reason=\"no_origin\"} 1");
}

#[tokio::test]
async fn connecting_takes_no_longer_than_allowed() {
    // With no backlog, one connection that is not accepted makes the kernel drop the next one's SYN.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let full = socket.listen(0).unwrap();
    let address = full.local_addr().unwrap();
    let _first = tokio::net::TcpStream::connect(address).await.unwrap();
    let limits = Limits { connect_timeout: Duration::from_millis(30), ..Limits::default() };
    let fixture = Fixture::new([format!("http://{address}").parse().unwrap()], limits);
    assert_eq!(fixture.get().await, (504, Ok("Gateway Timeout\n".into())));
    fixture.assert_metric("watari_proxy_failures_total{reason=\"connect_timeout\"} 1");
}

#[tokio::test]
async fn a_silent_origin_is_a_gateway_timeout() {
    let origin = ScriptedOrigin::start([Act::Ignore]).await;
    let fixture = Fixture::new([origin.address], short_timeouts());
    assert_eq!(fixture.get().await, (504, Ok("Gateway Timeout\n".into())));
    fixture.assert_metric("watari_proxy_failures_total{reason=\"response_timeout\"} 1");
}

#[tokio::test]
async fn answers_that_are_none_are_a_bad_gateway() {
    let many_fields = (0..200).map(|n| format!("X-{n}: x\r\n")).collect::<Vec<_>>().concat();
    for (text, reason) in [
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n".to_owned(), "bad_response"),
        ("HTTP/1.1 200 OK\r\nContent-Le".to_owned(), "bad_response"),
        (String::new(), "bad_response"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx".to_owned(), "two_lengths"),
        (format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1 << 20)), "bad_response"),
        (format!("HTTP/1.1 200 OK\r\n{many_fields}\r\n"), "bad_response"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n".to_owned(), "transfer_coding"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n".to_owned(), "transfer_coding"),
        ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n".to_owned(), "bad_switch"),
    ] {
        let origin = ScriptedOrigin::start([answer_and_stall_or_close(&text)]).await;
        let fixture = Fixture::new([origin.address], Limits::default());
        assert_eq!(fixture.get().await, (502, Ok("Bad Gateway\n".into())), "{text:.40}");
        fixture.assert_metric(&format!("watari_proxy_failures_total{{reason=\"{reason}\"}} 1"));
    }
}

/// A complete head is judged as such; an incomplete one has to end.
fn answer_and_stall_or_close(text: &str) -> Act {
    if text.ends_with("\r\n\r\n") { answer_and_stall(text) } else { answer_and_close(text) }
}

/// RFC 9110, section 8.6; RFC 9112, section 6.3. The length of a response without content frames nothing, but clients
/// read it.
#[tokio::test]
async fn a_length_that_is_none_is_a_bad_gateway() {
    let lengths = [
        ("bad_length", "Content-Length: -5\r\n"),
        ("bad_length", "Content-Length: +5\r\n"),
        ("bad_length", "Content-Length: abc\r\n"),
        ("bad_length", "Content-Length: 0x5\r\n"),
        ("bad_length", "Content-Length: 5 5\r\n"),
        ("bad_length", "Content-Length: \r\n"),
        ("bad_length", "Content-Length: 18446744073709551616\r\n"),
        ("bad_length", "Content-Length: 12345678901234567890123\r\n"),
        ("bad_length", "Connection: content-length\r\nContent-Length: -5\r\n"),
        ("two_lengths", "Content-Length: 5,\r\n"),
        ("two_lengths", "Content-Length: 5, 6\r\n"),
        ("two_lengths", "Content-Length: 5\r\nContent-Length: 6\r\n"),
    ];
    for (request, status) in [(head(), "200 OK"), (get(), "204 No Content"), (get(), "304 Not Modified")] {
        for (reason, lengths) in lengths {
            let origin = ScriptedOrigin::start([answer(&format!("HTTP/1.1 {status}\r\n{lengths}\r\n"))]).await;
            let fixture = Fixture::new([origin.address.clone()], Limits::default());
            let answer = fixture.respond(request.clone()).await;
            assert_eq!(answer.status(), 502, "{} {status} {lengths}", request.method());
            fixture.assert_metric(&format!("watari_proxy_failures_total{{reason=\"{reason}\"}} 1"));
        }
    }
    for (request, status, length, expected) in [
        (head(), "200 OK", "5", Some("5")),
        (head(), "200 OK", "0005, 0005", Some("5")),
        (head(), "200 OK", "18446744073709551615", Some("18446744073709551615")),
        (get(), "304 Not Modified", "5", Some("5")),
        (get(), "204 No Content", "5", None),
    ] {
        let text = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
        let origin = ScriptedOrigin::start([answer(&text), ok("next")]).await;
        let fixture = Fixture::new([origin.address], Limits::default());
        let response = fixture.respond(request).await;
        let passed_on = response.headers().get("content-length").map(|length| length.to_str().unwrap().to_owned());
        assert_eq!((response.status().to_string(), passed_on.as_deref()), (status.to_owned(), expected), "{length}");
        assert_eq!(fixture.get().await, (200, Ok("next".into())));
    }
}

/// RFC 9110, section 8.6: the length in a response to HEAD is that of the response to GET. So both have the same end.
#[tokio::test]
async fn head_and_get_agree_on_lengths() {
    for (length, status) in [("18446744073709551615", 200), ("18446744073709551616", 502)] {
        for request in [head(), get()] {
            let method = request.method().clone();
            let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            let origin = ScriptedOrigin::start([answer_and_stall(&text)]).await;
            let fixture = Fixture::new([origin.address], Limits::default());
            assert_eq!(fixture.respond(request).await.status(), status, "{method} {length}");
        }
    }
}

/// It is a failure of the origin, which then gets no requests for a while.
#[tokio::test]
async fn an_origin_that_sends_lengths_that_are_none_is_put_out() {
    let wrong = ScriptedOrigin::start([answer("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n")]).await;
    let right = ScriptedOrigin::start(std::iter::repeat_n(answer("HTTP/1.1 200 OK\r\n\r\n"), 4)).await;
    let outliers = OutlierLimits { in_a_row: 1, ..OutlierLimits::default() };
    let balance = Balance { outliers, ..Balance::default() };
    let fixture = Fixture::of(PoolConfig { balance, ..PoolConfig::plain("pool", [wrong.address, right.address]) });
    let mut failed = 0;
    for _ in 0..4 {
        failed += usize::from(fixture.respond(head()).await.status() == 502);
    }
    assert_eq!(failed, 1);
}

fn head() -> Request<Empty<Bytes>> {
    let mut request = get();
    *request.method_mut() = Method::HEAD;
    request
}

#[tokio::test]
async fn a_length_that_is_said_twice_is_one() {
    for fields in ["Content-Length: 2, 2\r\n", "Content-Length: 2\r\nContent-Length: 2\r\n"] {
        let origin = ScriptedOrigin::start([answer(&format!("HTTP/1.1 200 OK\r\n{fields}\r\nok"))]).await;
        let fixture = Fixture::new([origin.address], Limits::default());
        let response = fixture.respond(get()).await;
        assert_eq!(response.headers().get_all("content-length").iter().collect::<Vec<_>>(), ["2"], "{fields}");
        assert_eq!(read(response).await, (200, Ok("ok".into())));
    }
}

#[tokio::test]
async fn a_body_cut_short_does_not_end_cleanly() {
    for text in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nA\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n",
    ] {
        let origin = ScriptedOrigin::start([answer_and_close(text)]).await;
        let fixture = Fixture::new([origin.address.clone()], Limits::default());
        assert_eq!(fixture.get().await, (200, Err("the origin cut its response short".into())), "{text:?}");
        fixture.assert_metric(&format!("watari_proxy_bodies_cut_total{{origin=\"{}\"}} 1", origin.address));
    }
}

#[tokio::test]
async fn a_body_that_stalls_does_not_end_cleanly() {
    let origin = ScriptedOrigin::start([answer_and_stall("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")]).await;
    let fixture = Fixture::new([origin.address], short_timeouts());
    assert_eq!(fixture.get().await, (200, Err("the origin stopped in the middle of its response".into())));
}

#[tokio::test]
async fn a_kept_connection_that_closes_costs_a_get_nothing() {
    let mut origin = ScriptedOrigin::start([ok("1"), answer_and_close(""), ok("2")]).await;
    let fixture = Fixture::new([origin.address.clone()], Limits::default());
    assert_eq!(fixture.get().await, (200, Ok("1".into())));
    assert_eq!(fixture.get().await, (200, Ok("2".into())));
    assert_eq!(origin.connections(), [1, 1, 2]);
}

#[tokio::test]
async fn a_post_is_never_sent_twice() {
    let mut origin = ScriptedOrigin::start([ok("1"), answer_and_close("")]).await;
    let fixture = Fixture::new([origin.address.clone()], Limits::default());
    assert_eq!(fixture.get().await, (200, Ok("1".into())));
    assert_eq!(read(fixture.respond(post("")).await).await.0, 502);
    assert_eq!(origin.connections(), [1, 1]);
}

#[tokio::test]
async fn garbage_on_a_kept_connection_is_not_asked_for_again() {
    let mut origin = ScriptedOrigin::start([ok("1"), answer("garbage\r\n\r\n")]).await;
    let fixture = Fixture::new([origin.address.clone()], Limits::default());
    assert_eq!(fixture.get().await, (200, Ok("1".into())));
    assert_eq!(fixture.get().await.0, 502);
    assert_eq!(origin.connections(), [1, 1]);
}

#[tokio::test]
async fn requests_over_the_limit_are_refused() {
    let mut origin = ScriptedOrigin::start([Act::Ignore]).await;
    let fixture = Fixture::new([origin.address.clone()], Limits { in_flight_max: 1, ..Limits::default() });
    let first = fixture.respond(get());
    tokio::pin!(first);
    tokio::select! {
        _ = &mut first => panic!("the origin does not answer"),
        _ = origin.request() => {}
    }
    assert_eq!(fixture.get().await, (503, Ok("Service Unavailable\n".into())));
    fixture.assert_metric("watari_proxy_failures_total{reason=\"saturated\"} 1");
}

#[tokio::test]
async fn an_upload_cut_short_is_the_clients_fault() {
    let origin = ScriptedOrigin::start([ok("")]).await;
    let fixture = Fixture::new([origin.address], Limits::default());
    let (pieces, request) = upload();
    pieces.send(Ok(Frame::data("half".into()))).unwrap();
    pieces.send(Err("gone".into())).unwrap();
    let answer = read(fixture.respond(request).await).await;
    assert_eq!(answer, (400, Ok("the request's body was cut short\n".into())));
}

#[tokio::test]
async fn an_upload_that_stalls_is_the_clients_fault() {
    let origin = ScriptedOrigin::start([ok("")]).await;
    let fixture = Fixture::new([origin.address], short_timeouts());
    let (pieces, request) = upload();
    pieces.send(Ok(Frame::data("half".into()))).unwrap();
    let answer = read(fixture.respond(request).await).await;
    assert_eq!(answer, (408, Ok("the request's body came too slowly\n".into())));
}

/// A body of known length, of which a byte arrives every ten milliseconds.
struct Crawl {
    left: u64,
    next: Pin<Box<Sleep>>,
}

impl http_body::Body for Crawl {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        ready!(self.next.as_mut().poll(cx));
        self.next.set(sleep(Duration::from_millis(10)));
        self.left -= 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[tokio::test]
async fn an_upload_that_crawls_is_the_clients_fault() {
    const LEN: u64 = 1_000_000;
    let origin = ScriptedOrigin::start([ok("")]).await;
    let limits = Limits { response_timeout: Duration::from_millis(300), ..Limits::default() };
    let fixture = Fixture::new([origin.address], limits);
    let body = Crawl { left: LEN, next: Box::pin(sleep(Duration::ZERO)) };
    let request = Request::post("/").header("host", "example.org").header("content-length", LEN).body(body).unwrap();
    let answer = read(fixture.respond(request).await).await;
    assert_eq!(answer, (408, Ok("the request's body came too slowly\n".into())));
}

#[tokio::test]
async fn an_origin_that_does_not_take_an_upload_is_at_fault() {
    let origin = ScriptedOrigin::start([Act::Ignore]).await;
    let fixture = Fixture::new([origin.address], short_timeouts());
    let (pieces, request) = upload();
    // More than the buffers of both ends hold.
    let piece = Bytes::from(vec![0; 1 << 20]);
    for _ in 0..64 {
        pieces.send(Ok(Frame::data(piece.clone()))).unwrap();
    }
    assert_eq!(read(fixture.respond(request).await).await.0, 504);
}
