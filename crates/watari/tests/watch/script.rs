//! Connections that a script ends. One thread has both ends, so each step is over before the next one begins.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};
use watari_packets::build::Builder;
use watari_packets::{Flags, Segment, Timestamp};

/// The request that each script sends, and its whole answer.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789";
/// The length of a partial answer, which ends in the body.
const HALF: usize = ANSWER.len() - 5;

/// Longer than [`idle_after`](watari_endings::Settings::idle_after).
const IDLE: Duration = Duration::from_millis(1_500);
/// The timeout of `watari watch`. `TIMEOUT_AND_MORE` is longer than this and the largest delay of a report together.
pub(crate) const TIMEOUT: &str = "5s";
const TIMEOUT_AND_MORE: Duration = Duration::from_millis(5_700);

/// The side that acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// A connection in a script. Its sockets are open until it is dropped, unless the script closes them.
#[derive(Debug)]
pub(crate) struct Scene {
    listener: Socket,
    client: Option<TcpStream>,
    server: Option<TcpStream>,
    /// Sockets that only have to stay open.
    kept: Vec<Socket>,
    pub(crate) known: Known,
    /// Earlier or parallel connections of the same script, with their ending and phase.
    pub(crate) others: Vec<(&'static str, &'static str, Known)>,
}

/// The facts about a connection that the script has, however it ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    pub(crate) to_client: u64,
    pub(crate) to_server: u64,
    /// Before the last octets of an answer were sent.
    answered: Option<Instant>,
    /// After a side closed.
    closed: Option<Instant>,
}

impl Known {
    /// A connection before any data.
    pub(crate) fn new(client: SocketAddr, server: SocketAddr) -> Self {
        Self { client, server, to_client: 0, to_server: 0, answered: None, closed: None }
    }

    /// A side closed so soon after the answer that the connection was not idle.
    pub(crate) fn closed_at_once(&self) -> bool {
        let time = self.answered.zip(self.closed).map(|(answered, closed)| closed - answered);
        time.is_none_or(|time| time < Duration::from_secs(1))
    }
}

impl Scene {
    /// A server that listens, without any client.
    pub(crate) fn new(ip: IpAddr) -> Self {
        let listener = socket(ip);
        listener.bind(&SockAddr::from(SocketAddr::new(ip, 0))).unwrap();
        // The backlog has room for one connection.
        listener.listen(0).unwrap();
        let server = address(listener.local_addr());
        let known = Known::new(SocketAddr::new(ip, 0), server);
        Self { listener, client: None, server: None, kept: Vec::new(), known, others: Vec::new() }
    }

    /// A client connects, and the server accepts.
    pub(crate) fn connect(&mut self) {
        let client = socket(self.known.server.ip());
        client.connect(&self.known.server.into()).unwrap();
        self.take(client);
    }

    /// A client connects from a port that the system assigns to no other connection, for [`again`](Self::again).
    pub(crate) fn connect_from_fixed_port(&mut self) {
        self.known.client.set_port(FIXED_PORT);
        self.connect_from(self.known.client);
    }

    /// The client sends a request, and the server reads it.
    pub(crate) fn ask(&mut self) {
        self.send(Side::Client, REQUEST);
    }

    /// The server sends the whole answer, and the client reads it.
    pub(crate) fn answer(&mut self) {
        self.send(Side::Server, ANSWER);
    }

    /// The server sends a part of the answer.
    pub(crate) fn begin_answer(&mut self) {
        self.send(Side::Server, &ANSWER[..HALF]);
    }

    /// A side sends data, and the other one reads them.
    pub(crate) fn send(&mut self, side: Side, data: &[u8]) {
        self.send_unread(side, data);
        self.stream(other(side)).read_exact(&mut vec![0; data.len()]).unwrap();
    }

    /// A side sends data that are not read.
    pub(crate) fn send_unread(&mut self, side: Side, data: &[u8]) {
        let count = match side {
            Side::Client => &mut self.known.to_server,
            Side::Server => &mut self.known.to_client,
        };
        *count += data.len() as u64;
        if side == Side::Server {
            self.known.answered = Some(Instant::now());
        }
        self.stream(side).write_all(data).unwrap();
    }

    /// The hello of a TLS client.
    pub(crate) fn hello(&mut self) {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let mut hello = Vec::new();
        let mut client = ClientConnection::new(Arc::new(config), "test".try_into().unwrap()).unwrap();
        client.write_tls(&mut hello).unwrap();
        self.send(Side::Client, &hello);
    }

    /// A side sends a FIN, and reads on.
    pub(crate) fn close_half(&mut self, side: Side) {
        self.stream(side).shutdown(Shutdown::Write).unwrap();
        self.known.closed.get_or_insert(Instant::now());
    }

    /// A side closes its socket. The system sends a FIN if it has read everything, else a RST.
    pub(crate) fn leave(&mut self, side: Side) {
        drop(self.end(side).take().unwrap());
        self.known.closed.get_or_insert(Instant::now());
    }

    /// A side closes, then the other one, after it has seen the end.
    pub(crate) fn close(&mut self, side: Side) {
        self.leave(side);
        // The end of the stream, or a reset.
        let _ = self.stream(other(side)).read(&mut [0]);
        self.leave(other(side));
    }

    /// A side sends a RST.
    pub(crate) fn reset(&mut self, side: Side) {
        socket2::SockRef::from(&*self.stream(side)).set_linger(Some(Duration::ZERO)).unwrap();
        self.close(side);
    }

    /// A pause longer than the idle limit.
    #[expect(clippy::unused_self, reason = "same signature as the other steps of the script")]
    pub(crate) fn idle(&mut self) {
        thread::sleep(IDLE);
    }

    /// A pause longer than the timeout.
    #[expect(clippy::unused_self, reason = "same signature as the other steps of the script")]
    pub(crate) fn time_out(&mut self) {
        thread::sleep(TIMEOUT_AND_MORE);
    }

    /// The client's system sends keep-alive probes once a second.
    pub(crate) fn keep_alive(&mut self) {
        let every_second = TcpKeepalive::new().with_time(Duration::from_secs(1)).with_interval(Duration::from_secs(1));
        socket2::SockRef::from(&*self.stream(Side::Client)).set_tcp_keepalive(&every_second).unwrap();
        thread::sleep(IDLE * 2);
    }

    /// A client connects while the backlog is full: its SYN gets no answer.
    pub(crate) fn knock(&mut self) {
        let first = socket(self.known.server.ip());
        first.connect(&self.known.server.into()).unwrap();
        self.others.push(("OPEN", "before_request", Known { client: address(first.local_addr()), ..self.known }));
        let client = socket(self.known.server.ip());
        client.set_nonblocking(true).unwrap();
        client.connect(&self.known.server.into()).unwrap_err();
        self.known.client = address(client.local_addr());
        self.kept.extend([first, client]);
    }

    /// The waiting connection is accepted. So the next one gets an answer when it repeats its SYN, a second later.
    pub(crate) fn let_in(&mut self) {
        let (first, _) = self.listener.accept().unwrap();
        let client = self.kept.pop().unwrap();
        self.kept.push(first);
        self.take(client);
    }

    /// The listener is closed when the client connects.
    pub(crate) fn refuse(&mut self) {
        self.listener = socket(self.known.server.ip());
        let client = socket(self.known.server.ip());
        client.bind(&SockAddr::from(SocketAddr::new(self.known.server.ip(), 0))).unwrap();
        self.known.client = address(client.local_addr());
        client.connect(&self.known.server.into()).unwrap_err();
    }

    /// Another client connects with the same address and port, when no packets of the first are in flight any more.
    pub(crate) fn again(&mut self, ending: &'static str, phase: &'static str) {
        thread::sleep(IDLE);
        self.others.push((ending, phase, self.known));
        self.known = Known::new(self.known.client, self.known.server);
        self.connect_from(self.known.client);
    }

    /// A SYN of a program that has ended before the answer, so that its system resets.
    pub(crate) fn knock_and_forget(&mut self) {
        self.known.client.set_port(RAW_PORT);
        self.send_raw(self.known.client, self.known.server, Flags::SYN);
    }

    /// A segment to a client that has not connected.
    pub(crate) fn leave_unanswered(&mut self, flags: Flags) {
        self.known.server.set_port(RAW_PORT + u16::from(flags.0));
        self.known.client.set_port(RAW_PORT + 10_000);
        self.send_raw(self.known.server, self.known.client, flags);
    }

    #[expect(clippy::unused_self, reason = "same signature as the other steps of the script")]
    fn send_raw(&mut self, source: SocketAddr, destination: SocketAddr, flags: Flags) {
        let raw = Socket::new(Domain::for_address(source), Type::RAW, Some(Protocol::TCP)).unwrap();
        let octets = Builder::tcp(&bare(Timestamp(0), source, destination, flags), &[]).finish();
        // A raw socket has no port.
        raw.send_to(&octets, &SocketAddr::new(destination.ip(), 0).into()).unwrap();
    }

    fn connect_from(&mut self, address: SocketAddr) {
        let client = socket(address.ip());
        client.set_reuse_address(true).unwrap();
        client.bind(&address.into()).unwrap();
        client.connect(&self.known.server.into()).unwrap();
        self.take(client);
    }

    /// The client is connected to the listener, or about to be.
    fn take(&mut self, client: Socket) {
        let (server, _) = self.listener.accept().unwrap();
        client.set_nonblocking(false).unwrap();
        self.known.client = address(client.local_addr());
        (self.client, self.server) = (Some(client.into()), Some(server.into()));
    }

    fn end(&mut self, side: Side) -> &mut Option<TcpStream> {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    fn stream(&mut self, side: Side) -> &mut TcpStream {
        self.end(side).as_mut().unwrap()
    }
}

/// A segment without data.
pub(crate) fn bare(time: Timestamp, source: SocketAddr, destination: SocketAddr, flags: Flags) -> Segment<'static> {
    let (sequence, acknowledgment) = (1_000_000, u32::from(flags.contains(Flags::ACK)) * 1_000_001);
    Segment { time, source, destination, sequence, acknowledgment, flags, window: 1000, len: 0, data: &[] }
}

/// Below the ports that the system assigns, as [`FIXED_PORT`] is.
const RAW_PORT: u16 = 10_000;
const FIXED_PORT: u16 = 30_000;

fn other(side: Side) -> Side {
    match side {
        Side::Client => Side::Server,
        Side::Server => Side::Client,
    }
}

fn socket(ip: IpAddr) -> Socket {
    Socket::new(Domain::for_address(SocketAddr::new(ip, 0)), Type::STREAM, Some(Protocol::TCP)).unwrap()
}

fn address(of: std::io::Result<SockAddr>) -> SocketAddr {
    of.unwrap().as_socket().unwrap()
}
