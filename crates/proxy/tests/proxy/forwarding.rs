//! Forwarded requests and responses, as origins and clients get them.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Version};
use http_body::Frame;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::TcpListener;
use tokio::time::timeout;
use watari_body::Body;
use watari_proxy::Limits;

use crate::common::{Act, Fixture, ScriptedOrigin, answer, answer_and_close, client, get, ok, post, read, upload};

#[tokio::test]
async fn the_origin_gets_a_plain_request() {
    let mut origin = ScriptedOrigin::start([ok("")]).await;
    let fixture = Fixture::new([origin.address.clone()], Limits::default());
    let request = Request::get("https://example.org/path?query")
        .version(Version::HTTP_2)
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .header("upgrade", "h2c")
        .body(Empty::<Bytes>::new())
        .unwrap();
    assert_eq!(fixture.respond(request).await.status(), 200);
    let request = origin.request().await;
    let mut lines: Vec<&str> = request.trim_end().split("\r\n").collect();
    assert_eq!(lines.remove(0), "GET /path?query HTTP/1.1");
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "cookie: a=1; b=2",
            "forwarded: for=192.0.2.7;host=\"example.org\";proto=https",
            "host: example.org",
            "via: 2.0 watari",
            "x-forwarded-for: 192.0.2.7",
            "x-forwarded-host: example.org",
            "x-forwarded-proto: https",
        ]
    );
}

#[tokio::test]
async fn the_client_gets_the_origins_response() {
    let text = "HTTP/1.1 404 Gone Fishing\r\nDate: Sun, 13 Sep 2020 12:26:40 GMT\r\nServer: origin\r\nSet-Cookie: a\r\n\
                Set-Cookie: b\r\nConnection: x-hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nContent-Length: 2\r\n\r\nno";
    let origin = ScriptedOrigin::start([answer(text)]).await;
    let fixture = Fixture::new([origin.address.clone()], Limits::default());
    let response = fixture.respond(get()).await;
    assert_eq!(response.status(), 404);
    let mut names: Vec<&str> = response.headers().iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-length", "date", "server", "set-cookie", "set-cookie"]);
    assert_eq!(response.headers()["server"], "origin");
    assert_eq!(read(response).await.1, Ok("no".into()));
    let origin = &origin.address;
    fixture.assert_metric(&format!("watari_proxy_requests_total{{origin=\"{origin}\",class=\"4xx\"}} 1"));
}

#[tokio::test]
async fn origins_take_turns() {
    let first = ScriptedOrigin::start([ok("1"), ok("1")]).await;
    let second = ScriptedOrigin::start([ok("2"), ok("2")]).await;
    let fixture = Fixture::new([first.address, second.address], Limits::default());
    for expected in ["1", "2", "1", "2"] {
        assert_eq!(fixture.get().await, (200, Ok(expected.into())));
    }
}

#[tokio::test]
async fn connections_are_kept() {
    let chunked = answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n");
    let script = [ok(""), ok("text"), chunked, answer("HTTP/1.1 204 No Content\r\n\r\n"), ok("last")];
    let count = script.len();
    let mut origin = ScriptedOrigin::start(script).await;
    let fixture = Fixture::new([origin.address.clone()], Limits::default());
    for _ in 0..count {
        assert!(fixture.get().await.1.is_ok());
    }
    assert_eq!(origin.connections(), [1; 5]);
}

#[tokio::test]
async fn connections_are_not_kept_when_they_may_not_be() {
    for (limits, text) in [
        (Limits::default(), "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx"),
        (Limits::default(), "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx"),
        (Limits { idle_max: 0, ..Limits::default() }, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"),
        (
            Limits { idle_timeout: std::time::Duration::ZERO, ..Limits::default() },
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
        ),
    ] {
        let mut origin = ScriptedOrigin::start([answer(text), ok("2")]).await;
        let fixture = Fixture::new([origin.address.clone()], limits);
        assert_eq!(fixture.get().await, (200, Ok("x".into())));
        assert_eq!(fixture.get().await, (200, Ok("2".into())));
        assert_eq!(origin.connections(), [1, 2], "{text}");
    }
}

/// Although no other request follows.
#[tokio::test]
async fn an_idle_connection_is_closed_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let closed = tokio::spawn(async move {
        let (mut origin, _) = listener.accept().await.unwrap();
        let mut read = [0; 4096];
        assert!(origin.read(&mut read).await.unwrap() > 0);
        origin.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").await.unwrap();
        origin.read(&mut read).await.unwrap()
    });
    let fixture = Fixture::new([address], Limits { idle_timeout: Duration::from_millis(10), ..Limits::default() });
    fixture.proxy.start();
    assert_eq!(fixture.get().await, (200, Ok("x".into())));
    assert_eq!(timeout(Duration::from_secs(30), closed).await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn a_response_dropped_half_way_closes_its_connection() {
    let long = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1 << 30);
    let mut origin = ScriptedOrigin::start([crate::common::answer_and_close(&long), ok("2")]).await;
    let fixture = Fixture::new([origin.address.clone()], Limits::default());
    drop(fixture.respond(get()).await);
    assert_eq!(fixture.get().await, (200, Ok("2".into())));
    assert_eq!(origin.connections(), [1, 2]);
}

#[tokio::test]
async fn a_response_without_length_ends_with_its_connection() {
    let origin = ScriptedOrigin::start([answer_and_close("HTTP/1.0 200 OK\r\n\r\nuntil the end")]).await;
    let fixture = Fixture::new([origin.address], Limits::default());
    let response = fixture.respond(get()).await;
    // In HTTP/1.0 the agent could not show its client that a body was cut.
    assert_eq!(response.version(), Version::HTTP_11);
    assert_eq!(read(response).await.1, Ok("until the end".into()));
}

#[tokio::test]
async fn uploads_keep_their_framing() {
    let mut origin = ScriptedOrigin::start([ok("1"), ok("2"), ok("3"), ok("4")]).await;
    let fixture = Fixture::new([origin.address.clone()], Limits::default());
    assert_eq!(fixture.respond(post("text")).await.status(), 200);
    let request = origin.request().await;
    assert_eq!(request.matches("content-length: 4\r\n").count(), 1, "{request}");
    assert!(request.ends_with("\r\n\r\ntext"), "{request}");

    assert_eq!(fixture.respond(post("")).await.status(), 200);
    let request = origin.request().await;
    assert_eq!(request.matches("content-length: 0\r\n").count(), 1, "{request}");

    // Content is forwarded even if it is unusual with its method.
    for method in [Method::POST, Method::GET] {
        let (pieces, mut request) = upload();
        *request.method_mut() = method;
        for piece in ["one ", "two"] {
            pieces.send(Ok(Frame::data(piece.into()))).unwrap();
        }
        drop(pieces);
        assert_eq!(fixture.respond(request).await.status(), 200);
        let request = origin.request().await;
        assert_eq!(request.matches("transfer-encoding: chunked\r\n").count(), 1, "{request}");
        assert!(request.ends_with("\r\n\r\n4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n"), "{request}");
    }
}

#[tokio::test]
async fn a_body_flows_before_it_is_complete() {
    // The origin responds before the upload ends, and both continue.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let fixture = Fixture::new([address], Limits::default());
    let (pieces, request) = upload();
    pieces.send(Ok(Frame::data("ping".into()))).unwrap();
    let echo = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"ping\r\n") {
            seen.push(socket.read_u8().await.unwrap());
        }
        socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npong").await.unwrap();
        let mut more = [0; 9];
        socket.read_exact(&mut more).await.unwrap();
        assert_eq!(&more, b"4\r\nmore\r\n");
        socket.write_all(b"rest").await.unwrap();
        socket
    };
    let ask = async {
        let mut body = fixture.respond(request).await.into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "pong");
        pieces.send(Ok(Frame::data("more".into()))).unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "rest");
    };
    tokio::join!(echo, ask);
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    let text = "HTTP/1.1 200 OK\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Sum: 7\r\n\r\n";
    let mut origin = ScriptedOrigin::start([answer(text)]).await;
    let fixture = Fixture::new([origin.address.clone()], Limits::default());
    let (pieces, mut request) = upload();
    request.headers_mut().insert("trailer", HeaderValue::from_static("x-check"));
    let trailers = HeaderMap::from_iter([("x-check".parse().unwrap(), HeaderValue::from_static("0"))]);
    pieces.send(Ok(Frame::trailers(trailers))).unwrap();
    drop(pieces);
    let response = fixture.respond(request).await;
    assert_eq!(response.headers()["trailer"], "x-sum");
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["x-sum"], "7");
    assert!(origin.request().await.contains("x-check: 0\r\n"));
}

#[tokio::test]
async fn answers_without_a_body_keep_their_length() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";
    let unchanged = "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 1000\r\n\r\n";
    let mut origin = ScriptedOrigin::start([answer(head), answer(unchanged)]).await;
    let fixture = Fixture::new([origin.address.clone()], Limits::default());
    let request = Request::head("/").header("host", "a").body(Empty::<Bytes>::new()).unwrap();
    for request in [request, get()] {
        let response = fixture.respond(request).await;
        assert_eq!(response.headers()["content-length"], "1000");
        assert_eq!(read(response).await.1, Ok(String::new()));
    }
    assert_eq!(origin.connections(), [1, 1]);
}

/// A client's end of a connection to a server that forwards all requests.
fn served(fixture: Arc<Fixture>, version: Version) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(16 * 1024);
    let respond = move |request: Request<Incoming>| {
        let fixture = Arc::clone(&fixture);
        async move { Ok::<Response<Body>, Infallible>(fixture.proxy.respond(request, &client()).await) }
    };
    tokio::spawn(async move {
        // The tests look for the error of a cut body at the other end.
        if version == Version::HTTP_2 {
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            server.serve_connection(TokioIo::new(theirs), service_fn(respond)).await.ok();
        } else {
            let server = hyper::server::conn::http1::Builder::new();
            server.serve_connection(TokioIo::new(theirs), service_fn(respond)).await.ok();
        }
    });
    ours
}

async fn ask(fixture: &Arc<Fixture>, version: Version) -> Result<Bytes, hyper::Error> {
    let io = TokioIo::new(served(Arc::clone(fixture), version));
    let request = get();
    let response = if version == Version::HTTP_2 {
        let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await?;
        tokio::spawn(connection);
        let request = Request::get("https://example.org/").body(request.into_body()).unwrap();
        sender.send_request(request).await?
    } else {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
        tokio::spawn(connection);
        sender.send_request(request).await?
    };
    Ok(response.into_body().collect().await?.to_bytes())
}

#[tokio::test]
async fn clients_of_both_versions_get_every_byte() {
    let text = (0..200_000).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let origin = ScriptedOrigin::start([ok(&text)]).await;
        let fixture = Arc::new(Fixture::new([origin.address], Limits::default()));
        assert!(ask(&fixture, version).await.unwrap() == text, "{version:?}");
    }
}

#[tokio::test]
async fn clients_of_both_versions_can_tell_a_cut() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        ] {
            let origin = ScriptedOrigin::start([answer_and_close(text)]).await;
            let fixture = Arc::new(Fixture::new([origin.address], Limits::default()));
            assert!(ask(&fixture, version).await.is_err(), "{version:?} {text:?}");
        }
    }
}

/// A body that must not be read.
struct Untouchable;

impl http_body::Body for Untouchable {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        panic!("the body was read");
    }
}

#[tokio::test]
async fn an_origin_that_does_not_want_a_body_never_gets_it() {
    let text = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n";
    let mut origin = ScriptedOrigin::start([Act::AnswerTheHead(text.into())]).await;
    let fixture = Fixture::new([origin.address.clone()], Limits::default());
    let request = Request::put("/").header("host", "a").header("content-length", 5).header("expect", "100-Continue");
    assert_eq!(fixture.respond(request.body(Untouchable).unwrap()).await.status(), 413);
    assert!(origin.request().await.contains("\r\nexpect: 100-continue\r\n"));
}

/// At once if the origin sends 100, and otherwise after a timeout.
#[tokio::test]
async fn an_origin_that_wants_a_body_gets_it() {
    let mut origin = ScriptedOrigin::start([Act::AskForTheBody, ok("1"), ok("2")]).await;
    let fixture = Fixture::new([origin.address.clone()], Limits::default());
    for _ in 0..2 {
        let mut request = post("text");
        request.headers_mut().insert("expect", HeaderValue::from_static("100-continue"));
        assert_eq!(fixture.respond(request).await.status(), 200);
    }
    for _ in 0..2 {
        let request = origin.request().await;
        assert!(request.contains("expect: 100-continue") && request.ends_with("\r\n\r\ntext"), "{request}");
    }
}

#[tokio::test]
async fn a_client_that_expects_to_continue_is_told_to() {
    let mut origin = ScriptedOrigin::start([ok("thanks")]).await;
    let fixture = Arc::new(Fixture::new([origin.address.clone()], Limits::default()));
    let mut stream = served(fixture, Version::HTTP_11);
    stream
        .write_all(
            b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\nConnection: close\r\n\r\n",
        )
        .await
        .unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"body").await.unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.starts_with("HTTP/1.1 200 OK\r\n") && rest.ends_with("thanks"), "{rest}");
    assert!(origin.request().await.contains("expect: 100-continue"));
}
