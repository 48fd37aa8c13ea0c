//! Connections that move without their origins: tunnels, and streams of events. The agent that has the connection to the
//! origin is their anchor.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tungstenite::{Error, WebSocket};

use crate::clients::http::{Fault, Http};
use crate::clients::tls::{Tls, reset};
use crate::harness::ctl::{drain, order_move};
use crate::harness::node::Node;
use crate::harness::site::SITE;
use crate::harness::wait::until;
use crate::harness::{AGENTS, Cluster, Content, Plan};
use crate::websockets::{LARGE, check_echo, close, connect, open, plan, until_no_tunnel_is_left};

/// The moves of each connection.
const MOVES: usize = 12;

fn order(cluster: &Cluster, client: IpAddr, agent: &str) {
    order_move(&cluster.dispatcher().admin(), &cluster.connection_of(client).id, agent).unwrap();
}

fn until_at(cluster: &Cluster, client: IpAddr, agent: &str) {
    until("the connection has moved", || cluster.connection_of(client).node == agent);
}

fn until_nothing_is_anchored(cluster: &Cluster) {
    until("no stream is anchored", || cluster.count_on_agents("watari_agent_anchored_streams", "") == 0);
}

/// A tunnel that began at `a1`.
fn tunnel(cluster: &Cluster) -> (IpAddr, WebSocket<Tls>) {
    let client = cluster.clients.served_by("a1");
    let mut socket = open(connect(cluster, client), "/echo");
    check_echo(&mut socket, 100, 1);
    until_at(cluster, client, "a1");
    (client, socket)
}

#[test]
fn a_tunnel_moves_again_and_again() {
    let cluster = Cluster::start(&plan());
    let (client, mut socket) = tunnel(&cluster);
    for turn in 1..=MOVES {
        // It also comes back to its anchor.
        let agent = AGENTS[turn % AGENTS.len()];
        order(&cluster, client, agent);
        check_echo(&mut socket, if turn % 3 == 0 { LARGE } else { 100 }, turn as u64);
        until_at(&cluster, client, agent);
    }
    check_echo(&mut socket, LARGE, 99);
    close(&mut socket);
    assert_eq!(socket.get_mut().read(&mut [0]).unwrap(), 0, "the end is announced");
    drop(socket);
    until_no_tunnel_is_left(&cluster);
    until_nothing_is_anchored(&cluster);
    assert_eq!(cluster.count_on_agents("watari_agent_lost_in_moves_total", ""), 0);
    cluster.wait_until_idle();
}

#[test]
fn an_idle_tunnel_leaves_an_agent_that_drains() {
    let cluster = Cluster::start(&plan());
    let (client, mut socket) = tunnel(&cluster);
    assert!(drain(&cluster.dispatcher().admin(), "a1").wait().unwrap().success());
    assert_ne!(cluster.connection_of(client).node, "a1");
    until("the anchor is shown", || cluster.node("a1").count("watari_agent_anchored_streams", "") == 1);
    check_echo(&mut socket, LARGE, 2);
    // An agent that ends waits for the tunnels whose origins it has.
    thread::scope(|scope| {
        let ends = scope.spawn(|| cluster.begin_anew(&["a1"], Node::terminate));
        until("it waits", || cluster.node("a1").log().contains("node::drain: draining"));
        check_echo(&mut socket, LARGE, 3);
        assert!(!ends.is_finished());
        close(&mut socket);
        drop(socket);
        ends.join().unwrap();
    });
    cluster.wait_until_idle();
}

#[test]
fn a_client_can_tell_that_the_anchor_has_died() {
    let cluster = Cluster::start(&plan());
    let (client, mut socket) = tunnel(&cluster);
    order(&cluster, client, "a2");
    until_at(&cluster, client, "a2");
    check_echo(&mut socket, 100, 2);
    cluster.begin_anew(&["a1"], Node::kill);
    match socket.read() {
        Err(Error::Io(error)) => assert!(error.to_string().contains("InternalError"), "{error}"),
        other => panic!("it looks like an end: {other:?}"),
    }
    until_no_tunnel_is_left(&cluster);
}

#[test]
fn a_client_that_leaves_after_a_move_leaves_nothing_behind() {
    let cluster = Cluster::start(&plan());
    let (client, socket) = tunnel(&cluster);
    order(&cluster, client, "a2");
    until_at(&cluster, client, "a2");
    reset(socket.get_ref().tcp());
    drop(socket);
    until_no_tunnel_is_left(&cluster);
    until_nothing_is_anchored(&cluster);
    cluster.wait_until_idle();
}

/// The events of an origin: numbers that count up.
struct Events {
    cluster: Cluster,
    client: IpAddr,
    http: Http<Tls>,
    /// The number of the next event.
    next: u64,
    unread: Vec<u8>,
    /// Ends the origin's response.
    is_over: Arc<AtomicBool>,
}

/// What an origin does after its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    EndsResponse,
    Resets,
    SendsNothing,
}

/// An origin that sends an event every millisecond until `is_over`.
fn start_origin(is_over: &Arc<AtomicBool>, after: After) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, is_over) = (listener.local_addr().unwrap(), is_over.clone());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let is_over = is_over.clone();
            thread::spawn(move || send_events(stream.unwrap(), &is_over, after));
        }
    });
    address
}

fn send_events(mut stream: TcpStream, is_over: &AtomicBool, after: After) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    while lines.by_ref().take_while(|line| !line.is_empty()).count() > 0 {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        if stream.write_all(head.as_bytes()).is_err() {
            return;
        }
        let mut number = 0;
        while !is_over.load(Ordering::Relaxed) {
            let event = format!("data: {number}\n\n");
            if stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).is_err() {
                return;
            }
            number += 1;
            thread::sleep(Duration::from_millis(1));
        }
        match after {
            After::EndsResponse => stream.write_all(b"0\r\n\r\n").unwrap(),
            After::Resets => return reset(&stream),
            // The next line never comes: the connection ends.
            After::SendsNothing => {}
        }
    }
}

impl Events {
    fn begin(after: After) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let origin = format!("http://{}", start_origin(&is_over, after));
        let cluster = Cluster::start(&Plan { content: Content::Behind(vec![origin]), ..Plan::default() });
        let client = cluster.clients.served_by("a1");
        let mut http = Http::new(connect(&cluster, client));
        http.send(format!("GET /events HTTP/1.1\r\nhost: {SITE}\r\n\r\n").as_bytes()).unwrap();
        let head = http.read_head().unwrap();
        assert_eq!((head.status, head.field("transfer-encoding")), (200, Some("chunked")));
        let mut events = Self { cluster, client, http, next: 0, unread: Vec::new(), is_over };
        events.read_until_at("a1");
        events
    }

    /// Reads what has come, at least one byte. Returns false at the end of the response.
    fn read(&mut self) -> bool {
        self.unread.extend(self.http.read_piece(16 << 10).unwrap());
        let (mut rest, mut has_ended) = (&self.unread[..], false);
        // An agent may send several events in a chunk, but no part of one: the origin writes each at once.
        while let Some((size, content)) = split(rest) {
            if size == 0 {
                has_ended = true;
                rest = &[];
                break;
            }
            let events = std::str::from_utf8(&content[..size]).unwrap();
            for event in events.split_terminator("\n\n") {
                assert_eq!(event, format!("data: {}", self.next));
                self.next += 1;
            }
            rest = &content[size + 2..];
        }
        self.unread = rest.to_vec();
        !has_ended
    }

    fn read_until_at(&mut self, agent: &str) {
        until("the connection has moved", || {
            assert!(self.read(), "the response goes on");
            self.cluster.connection_of(self.client).node == agent
        });
    }

    fn move_to(&mut self, agent: &str) {
        order(&self.cluster, self.client, agent);
        self.read_until_at(agent);
    }
}

/// The size of the first chunk, and what follows the line with it. `None`: the chunk is incomplete.
fn split(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let size = usize::from_str_radix(std::str::from_utf8(&bytes[..line]).unwrap(), 16).unwrap();
    Some((size, &bytes[line + 2..])).filter(|(size, content)| content.len() >= size + 2)
}

#[test]
fn a_stream_of_events_moves_again_and_again() {
    let mut events = Events::begin(After::EndsResponse);
    for turn in 1..=MOVES {
        events.move_to(AGENTS[turn % AGENTS.len()]);
    }
    events.is_over.store(true, Ordering::Relaxed);
    while events.read() {}
    until_nothing_is_anchored(&events.cluster);
    // The connection goes on.
    events.is_over.store(false, Ordering::Relaxed);
    events.http.send(format!("GET /events HTTP/1.1\r\nhost: {SITE}\r\n\r\n").as_bytes()).unwrap();
    assert_eq!(events.http.read_head().unwrap().status, 200);
    events.next = 0;
    events.move_to("a2");
    assert_eq!(events.cluster.count_on_agents("watari_agent_lost_in_moves_total", ""), 0);
}

#[test]
fn a_stream_of_events_that_its_origin_cuts_does_not_look_complete() {
    let mut events = Events::begin(After::Resets);
    events.move_to("a2");
    events.is_over.store(true, Ordering::Relaxed);
    loop {
        match events.http.read_piece(16 << 10) {
            Ok(piece) => assert!(!piece.ends_with(b"0\r\n\r\n"), "it looks complete"),
            Err(Fault::Broken(_)) => break,
            Err(other) => panic!("the stream does not look cut: {other:?}"),
        }
    }
    until_nothing_is_anchored(&events.cluster);
}

#[test]
fn a_client_that_leaves_a_silent_stream_of_events_leaves_nothing_behind() {
    let mut events = Events::begin(After::SendsNothing);
    events.move_to("a2");
    events.is_over.store(true, Ordering::Relaxed);
    until("it is shown", || events.cluster.node("a1").count("watari_agent_anchored_streams", "") == 1);
    let Events { cluster, http, .. } = events;
    reset(http.stream.tcp());
    drop(http);
    until_nothing_is_anchored(&cluster);
    cluster.wait_until_idle();
}
