//! Upgrades: which are forwarded, how they are accepted, and the bytes of the tunnel.

use std::time::Duration;

use aws_lc_rs::digest::{self, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Request, Version};
use http_body_util::{Empty, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use watari_http2::server::Protocol;
use watari_proxy::{HttpVersion, Limits, OriginAddress, PoolConfig, Transport, Tunnel, TunnelBroken};

use crate::common::upgrade::{AGREED, LONG, echo, get_echo, join};
use crate::common::{Fixture, ScriptedOrigin, answer, ok, read};

/// A listener whose connections a test serves itself.
struct Origin {
    address: OriginAddress,
    listener: TcpListener,
}

impl Origin {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self { address: format!("http://{}", listener.local_addr().unwrap()).parse().unwrap(), listener }
    }

    /// Accepts one request, and responds with the result of `answer` for its head.
    async fn answer(&self, answer: impl FnOnce(&str) -> String) -> TcpStream {
        let (mut socket, _) = self.listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(socket.read_u8().await.unwrap());
        }
        let answer = answer(&String::from_utf8(head).unwrap());
        socket.write_all(answer.as_bytes()).await.unwrap();
        socket
    }
}

/// An extended `CONNECT` of HTTP/2, as the agent passes it on.
fn stream(protocol: &'static str) -> Request<Empty<Bytes>> {
    let request = Request::builder().method(Method::CONNECT).version(Version::HTTP_2).uri("https://example.org/chat");
    let request = request.header("sec-websocket-version", "13").header("sec-websocket-protocol", "superchat");
    request.extension(Protocol::new(protocol)).body(Empty::new()).unwrap()
}

/// A proxy whose client and origin are joined by a tunnel, seen from both ends.
struct Joined {
    client: DuplexStream,
    origin: TcpStream,
    end: JoinHandle<Result<(), TunnelBroken>>,
}

impl Joined {
    async fn new(silence_max: Duration) -> Self {
        let origin = Origin::start().await;
        let fixture = Fixture::new([origin.address.clone()], Limits::default());
        let (response, origin) = tokio::join!(fixture.respond(get_echo()), origin.answer(|_| AGREED.to_owned()));
        let (client, end) = join(response, silence_max);
        Self { client, origin, end }
    }
}

#[tokio::test]
async fn an_agreed_upgrade_is_passed_back_with_its_fields() {
    let origin = Origin::start().await;
    let fixture = Fixture::new([origin.address.clone()], Limits::default());
    let asked = |head: &str| {
        for line in ["\r\nconnection: upgrade\r\n", "\r\nupgrade: echo\r\n"] {
            assert!(head.contains(line), "{head}");
        }
        AGREED.to_owned()
    };
    let (response, mut origin) = tokio::join!(fixture.respond(get_echo()), origin.answer(asked));
    let field = |name: &str| response.headers()[name].to_str().unwrap();
    assert_eq!([field("connection"), field("upgrade"), field("x-own")], ["upgrade", "echo", "1"]);
    assert_eq!(response.status(), 101);
    let (mut client, _) = join(response, LONG);
    client.write_all(b"ping").await.unwrap();
    let mut four = [0; 4];
    origin.read_exact(&mut four).await.unwrap();
    origin.write_all(b"pong").await.unwrap();
    client.read_exact(&mut four).await.unwrap();
    assert_eq!(&four, b"pong");
}

/// The first bytes of an origin may arrive together with its 101.
#[tokio::test]
async fn nothing_is_lost_at_the_switch() {
    let origin = Origin::start().await;
    let fixture = Fixture::new([origin.address.clone()], Limits::default());
    let (response, _origin) =
        tokio::join!(fixture.respond(get_echo()), origin.answer(|_| format!("{AGREED}first words")));
    let (mut client, _) = join(response, LONG);
    let mut words = [0; 11];
    client.read_exact(&mut words).await.unwrap();
    assert_eq!(&words, b"first words");
}

#[tokio::test]
async fn much_goes_both_ways_at_once_and_each_way_ends_by_itself() {
    let Joined { client, origin, end } = Joined::new(LONG).await;
    let (up, down) = (vec![1; 5_000_000], vec![2; 7_000_000]);
    let (mut client_in, mut client_out) = tokio::io::split(client);
    let (mut origin_in, mut origin_out) = origin.into_split();
    let (mut came_up, mut came_down) = (Vec::new(), Vec::new());
    let upwards = async {
        client_out.write_all(&up).await.unwrap();
        client_out.shutdown().await.unwrap();
    };
    let downwards = async {
        // Only after the other direction has ended.
        origin_in.read_to_end(&mut came_up).await.unwrap();
        origin_out.write_all(&down).await.unwrap();
        origin_out.shutdown().await.unwrap();
    };
    let (.., read) = tokio::join!(upwards, downwards, client_in.read_to_end(&mut came_down));
    read.unwrap();
    assert!(came_up == up && came_down == down);
    end.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_origin_that_breaks_off_is_told_from_one_that_ends() {
    let joined = Joined::new(LONG).await;
    joined.origin.set_zero_linger().unwrap();
    drop(joined.origin);
    let broken = joined.end.await.unwrap().unwrap_err();
    assert!(matches!(broken, TunnelBroken::Origin(_)), "{broken:?}");
}

#[tokio::test]
async fn a_client_that_is_gone_costs_the_origin_its_connection() {
    let mut joined = Joined::new(LONG).await;
    drop(joined.client);
    assert_eq!(joined.origin.read(&mut [0]).await.unwrap(), 0);
    joined.origin.write_all(b"who is there?").await.unwrap();
    let broken = joined.end.await.unwrap().unwrap_err();
    assert!(matches!(broken, TunnelBroken::Client(_)), "{broken:?}");
}

#[tokio::test]
async fn a_silent_tunnel_ends() {
    let mut joined = Joined::new(Duration::from_millis(1)).await;
    assert!(matches!(joined.end.await.unwrap(), Err(TunnelBroken::Silent(_))));
    assert_eq!(joined.origin.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn an_origin_of_http2_is_asked_in_http1() {
    let origin = Origin::start().await;
    let transport = Transport { version: HttpVersion::Http2, ..Transport::default() };
    let fixture = Fixture::of(PoolConfig { transport, ..PoolConfig::plain("pool", [origin.address.clone()]) });
    let (response, _far) = tokio::join!(fixture.respond(get_echo()), origin.answer(|_| AGREED.to_owned()));
    assert_eq!(response.status(), 101);
}

#[tokio::test]
async fn an_origin_may_decline() {
    let mut origin =
        ScriptedOrigin::start([answer("HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno"), ok("yes")])
            .await;
    let fixture = Fixture::new([origin.address.clone()], Limits::default());
    let mut response = fixture.respond(get_echo()).await;
    assert!(Tunnel::take(&mut response).is_none());
    assert_eq!(read(response).await, (426, Ok("no".into())));
    assert_eq!(fixture.get().await, (200, Ok("yes".into())));
    assert_eq!(origin.connections(), [1, 1], "a connection that was not switched is kept");
}

#[tokio::test]
async fn an_upgrade_that_must_not_be_is_not_asked_for() {
    let mut origin = ScriptedOrigin::start([ok(""), ok(""), ok("")]).await;
    let fixture = Fixture::new([origin.address.clone()], Limits::default());
    let with_content = echo().method("POST").header("content-length", "4").body(Full::from("data")).unwrap();
    assert_eq!(fixture.respond(with_content).await.status(), 200);
    for (name, value) in [("connection", "close"), ("upgrade", "h2c")] {
        let mut request = echo().header("http2-settings", "AAMAAABkAAQCAAAAAAIAAAAA").body(Empty::new()).unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
        assert_eq!(fixture.respond(request).await.status(), 200);
    }
    for _ in 0..3 {
        let request = origin.request().await;
        assert!(!request.contains("upgrade") && !request.contains("connection"), "{request}");
    }
}

#[tokio::test]
async fn a_switch_to_something_else_is_a_bad_gateway() {
    for upgrade in ["", "Upgrade: other\r\n", "Upgrade: echo, h2c\r\n"] {
        let text = format!("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n{upgrade}\r\n");
        let origin = ScriptedOrigin::start([answer(&text)]).await;
        let fixture = Fixture::new([origin.address.clone()], Limits::default());
        let response = fixture.respond(get_echo()).await;
        assert_eq!(response.status(), 502, "{upgrade}");
        fixture.assert_metric(r#"watari_proxy_failures_total{reason="bad_switch"} 1"#);
    }
}

#[tokio::test]
async fn a_tunnel_is_a_request_in_flight() {
    let origin = Origin::start().await;
    let fixture = Fixture::new([origin.address.clone()], Limits { in_flight_max: 1, ..Limits::default() });
    let (response, _far) = tokio::join!(fixture.respond(get_echo()), origin.answer(|_| AGREED.to_owned()));
    let (client, end) = join(response, LONG);
    assert_eq!(fixture.respond(get_echo()).await.status(), 503);
    end.abort();
    drop((client, end.await));
    let (response, _far) = tokio::join!(fixture.respond(get_echo()), origin.answer(|_| AGREED.to_owned()));
    assert_eq!(response.status(), 101);
}

/// The accept value for the key in this head (RFC 6455, section 4.2.2).
fn accepted(head: &str) -> String {
    let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).unwrap();
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()))
}

#[tokio::test]
async fn a_stream_of_http2_becomes_a_websocket_of_http1() {
    let origin = Origin::start().await;
    let fixture = Fixture::new([origin.address.clone()], Limits::default());
    let agree = |head: &str| {
        let lines: Vec<_> = head.lines().collect();
        assert_eq!(lines[0], "GET /chat HTTP/1.1");
        for line in ["host: example.org", "connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13"] {
            assert!(lines.contains(&line), "{head}");
        }
        let accepted = accepted(head);
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: {accepted}\r\nSec-WebSocket-Protocol: superchat\r\n\r\nhello"
        )
    };
    let (response, _far) = tokio::join!(fixture.respond(stream("websocket")), origin.answer(agree));
    let names: Vec<_> = response.headers().keys().map(http::HeaderName::as_str).collect();
    assert_eq!((response.status().as_u16(), names), (200, vec!["sec-websocket-protocol"]));
    let (mut client, _) = join(response, LONG);
    let mut hello = [0; 5];
    client.read_exact(&mut hello).await.unwrap();
    assert_eq!(&hello, b"hello");
}

#[tokio::test]
async fn a_stream_is_open_only_if_the_origin_has_switched() {
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";
    for (text, status, reason) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned(), 502, Some("not_switched")),
        (format!("{switch}\r\n"), 502, Some("bad_switch")),
        (format!("{switch}Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"), 502, Some("bad_switch")),
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_owned(), 403, None),
    ] {
        let origin = ScriptedOrigin::start([answer(&text)]).await;
        let fixture = Fixture::new([origin.address.clone()], Limits::default());
        let mut response = fixture.respond(stream("websocket")).await;
        assert_eq!(response.status(), status, "{text}");
        assert!(Tunnel::take(&mut response).is_none());
        if let Some(reason) = reason {
            fixture.assert_metric(&format!("watari_proxy_failures_total{{reason=\"{reason}\"}} 1"));
        }
    }
}

#[tokio::test]
async fn a_stream_of_another_protocol_is_not_implemented() {
    let fixture = Fixture::new([Origin::start().await.address], Limits::default());
    assert_eq!(fixture.respond(stream("connect-udp")).await.status(), 501);
}
