//! `WebSocket` through agents, over HTTP/1.1 and HTTP/2, with clients and an origin of an independent library.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;

use tungstenite::handshake::server::{Request, Response};
use tungstenite::protocol::Role;
use tungstenite::{Error, HandshakeError, Message, WebSocket, accept_hdr, client};

use crate::clients::h2::{Answer, Frame, H2, STATUS_200};
use crate::clients::http::Http;
use crate::clients::tls::{Taste, Tls, reset};
use crate::harness::pattern::pattern;
use crate::harness::site::SITE;
use crate::harness::wait::until;
use crate::harness::{Cluster, Content, Plan, ctl};

/// The length of a large message, in bytes: more than any buffer on the way holds.
pub(crate) const LARGE: u64 = 8_000_000;

/// An origin that echoes messages at `/echo`, and resets the connection after a message at `/reset`. It refuses all
/// other paths.
fn start_origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || serve(stream.unwrap()));
        }
    });
    address
}

// The library defines the size of a refusal.
#[allow(clippy::result_large_err)]
fn serve(stream: TcpStream) {
    let mut resets = false;
    let look = |request: &Request, response: Response| match request.uri().path() {
        "/echo" => Ok(response),
        "/reset" => {
            resets = true;
            Ok(response)
        }
        _ => Err(http::Response::builder().status(403).body(None).unwrap()),
    };
    let Ok(mut socket) = accept_hdr(stream, look) else { return };
    while let Ok(message) = socket.read() {
        if resets {
            return reset(socket.get_ref());
        }
        // A client that has closed the connection gets no echo.
        if (message.is_text() || message.is_binary()) && socket.send(message).is_err() {
            return;
        }
    }
}

/// A cluster before such an origin.
pub(crate) fn plan() -> Plan {
    Plan { content: Content::Behind(vec![format!("http://{}", start_origin())]), ..Plan::default() }
}

pub(crate) fn connect(cluster: &Cluster, source: IpAddr) -> Tls {
    Tls::to_site(source, cluster.service, &Taste::default()).unwrap()
}

pub(crate) fn open<S: Read + Write>(stream: S, path: &str) -> WebSocket<S> {
    client(format!("ws://{SITE}{path}"), stream).unwrap().0
}

pub(crate) fn check_echo<S: Read + Write>(socket: &mut WebSocket<S>, len: u64, seed: u64) {
    let message = Message::binary(pattern(seed, 0..len));
    socket.send(message.clone()).unwrap();
    assert!(socket.read().unwrap() == message, "{len} bytes come back as they went");
}

/// The closing handshake (RFC 6455, section 7).
pub(crate) fn close<S: Read + Write>(socket: &mut WebSocket<S>) {
    socket.close(None).unwrap();
    assert!(socket.read().unwrap().is_close());
    assert!(matches!(socket.read(), Err(Error::ConnectionClosed)));
}

pub(crate) fn until_no_tunnel_is_left(cluster: &Cluster) {
    until("no tunnel is left", || cluster.count_on_agents("watari_agent_tunnels", "") == 0);
}

/// Also over connections that have moved.
#[test]
fn messages_of_any_size_go_both_ways() {
    let cluster = Cluster::start(&plan());
    for source in cluster.clients.two_of_each_agent() {
        let mut http = Http::new(connect(&cluster, source));
        http.send(format!("GET /elsewhere HTTP/1.1\r\nhost: {SITE}\r\n\r\n").as_bytes()).unwrap();
        assert_eq!(http.read_head().unwrap().status, 502, "the origin takes nothing but WebSockets");
        let mut socket = open(http.stream, "/echo");
        for (len, seed) in [(0, 1), (1, 2), (70_000, 3), (LARGE, 4), (5, 5)] {
            check_echo(&mut socket, len, seed);
        }
        close(&mut socket);
        assert_eq!(socket.get_mut().read(&mut [0]).unwrap(), 0, "the end is announced");
    }
    until_no_tunnel_is_left(&cluster);
    cluster.wait_until_idle();
}

#[test]
fn an_origin_may_refuse() {
    let cluster = Cluster::start(&plan());
    let stream = connect(&cluster, cluster.clients.any());
    match client(format!("ws://{SITE}/nowhere"), stream) {
        Err(HandshakeError::Failure(Error::Http(response))) => assert_eq!(response.status(), 403),
        other => panic!("it should be refused: {:?}", other.map(|_| ())),
    }
    assert_eq!(cluster.count_on_agents("watari_agent_tunnels", ""), 0);
}

#[test]
fn a_client_can_tell_that_its_origin_has_broken_off() {
    let cluster = Cluster::start(&plan());
    let mut socket = open(connect(&cluster, cluster.clients.any()), "/reset");
    socket.send(Message::text("anybody there?")).unwrap();
    match socket.read() {
        Err(Error::Io(error)) => assert!(error.to_string().contains("InternalError"), "{error}"),
        other => panic!("it looks like an end: {other:?}"),
    }
    until_no_tunnel_is_left(&cluster);
}

#[test]
fn a_client_that_is_gone_leaves_nothing_behind() {
    let cluster = Cluster::start(&plan());
    let mut socket = open(connect(&cluster, cluster.clients.any()), "/echo");
    check_echo(&mut socket, 100, 1);
    assert_eq!(cluster.count_on_agents("watari_agent_tunnels", ""), 1);
    reset(socket.get_ref().tcp());
    drop(socket);
    until_no_tunnel_is_left(&cluster);
    cluster.wait_until_idle();
}

#[test]
fn a_tunnel_without_another_agent_says_why_it_stays_and_outlasts_a_drain() {
    let cluster = Cluster::start(&Plan { agents: Some(&["a1"]), ..plan() });
    let source = cluster.clients.any();
    let mut socket = open(connect(&cluster, source), "/echo");
    check_echo(&mut socket, 100, 1);
    let connection = cluster.connection_of(source);

    let mut drain = ctl::drain(&cluster.dispatcher().admin(), &connection.node);
    until("it is asked to leave", || cluster.dispatcher().log().contains("drain begun"));
    until("it says that it stays", || cluster.connection_of(source).stays.as_deref() == Some("tunnel"));
    check_echo(&mut socket, LARGE, 2);
    assert!(drain.try_wait().unwrap().is_none(), "it is waited for");
    close(&mut socket);
    drop(socket);
    assert!(drain.wait().unwrap().success());
}

#[test]
fn a_silent_tunnel_is_cut_and_does_not_look_complete() {
    let cluster = Cluster::start(&Plan { agent_limits: "tunnel_timeout = \"1s\"", ..plan() });
    let mut socket = open(connect(&cluster, cluster.clients.any()), "/echo");
    check_echo(&mut socket, 100, 1);
    assert!(matches!(socket.read(), Err(Error::Io(_))));
    until_no_tunnel_is_left(&cluster);
}

#[test]
fn a_tunnel_takes_the_place_of_a_request() {
    let cluster = Cluster::start(&Plan { agents: Some(&["a1"]), agent_limits: "requests_max = 1", ..plan() });
    let mut socket = open(connect(&cluster, cluster.clients.any()), "/echo");
    check_echo(&mut socket, 100, 1);
    let refused = client(format!("ws://{SITE}/echo"), connect(&cluster, cluster.clients.any()));
    match refused {
        Err(HandshakeError::Failure(Error::Http(response))) => assert_eq!(response.status(), 503),
        other => panic!("it should be refused: {:?}", other.map(|_| ())),
    }
    close(&mut socket);
    drop(socket);
    until("the place is free again", || {
        let mut http = Http::new(connect(&cluster, cluster.clients.any()));
        http.send(format!("GET / HTTP/1.1\r\nhost: {SITE}\r\n\r\n").as_bytes()).unwrap();
        http.read_head().unwrap().status == 502
    });
}

/// An HTTP/2 stream as the transport of a `WebSocket`.
struct Stream<'a> {
    h2: &'a mut H2,
    number: u32,
    unread: Vec<u8>,
}

impl<'a> Stream<'a> {
    /// RFC 8441, section 5.
    fn open(h2: &'a mut H2, number: u32, protocol: &str, path: &str) -> (Self, Answer) {
        let head = [
            (":method", "CONNECT"),
            (":protocol", protocol),
            (":scheme", "https"),
            (":authority", SITE),
            (":path", path),
            ("sec-websocket-version", "13"),
        ];
        h2.begin(number, &head, false);
        let answer = h2.read_status(number);
        (Self { h2, number, unread: Vec::new() }, answer)
    }
}

impl Read for Stream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.unread.is_empty() {
            match self.h2.next_frame() {
                Some(Frame::Data { bytes, is_end: true, .. }) if bytes.is_empty() => return Ok(0),
                Some(Frame::Data { bytes, .. }) => self.unread = bytes,
                other => return Err(io::Error::new(ErrorKind::ConnectionReset, format!("{other:?}"))),
            }
        }
        let len = self.unread.len().min(buffer.len());
        buffer[..len].copy_from_slice(&self.unread[..len]);
        self.unread.drain(..len);
        Ok(len)
    }
}

impl Write for Stream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len().min(16_384);
        self.h2.data(self.number, &bytes[..len], false);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn streams_of_http2_are_websockets_too() {
    let cluster = Cluster::start(&Plan { agents: Some(&["a1"]), ..plan() });
    let mut h2 = H2::connect(cluster.clients.any(), cluster.service);
    for number in [1, 3] {
        let (stream, answer) = Stream::open(&mut h2, number, "websocket", "/echo");
        assert_eq!(answer, Answer::Head(STATUS_200));
        let mut socket = WebSocket::from_raw_socket(stream, Role::Client, None);
        for (len, seed) in [(1, 1), (300_000, 2)] {
            check_echo(&mut socket, len, seed);
        }
        assert_eq!(cluster.count_on_agents("watari_agent_tunnels", ""), 1);
        socket.close(None).unwrap();
        assert!(socket.read().unwrap().is_close());
        assert_eq!(socket.get_mut().read(&mut [0]).unwrap(), 0, "the origin has ended its side");
        h2.data(number, &[], true);
        until_no_tunnel_is_left(&cluster);
    }
    for (number, protocol, path) in [(5, "websocket", "/nowhere"), (7, "connect-udp", "/echo")] {
        let (_, answer) = Stream::open(&mut h2, number, protocol, path);
        assert!(matches!(answer, Answer::Head(status) if status != STATUS_200), "{answer:?}");
    }
}
