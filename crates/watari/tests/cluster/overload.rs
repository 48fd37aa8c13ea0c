//! More load than a node can serve, and deliberately slow clients. The node refuses new clients and closes slow ones,
//! without an effect on clients that it serves.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::clients::h2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, H2, HEADERS, PING, PRIORITY, PRIORITY_UPDATE, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, frame, get_block,
};
use crate::clients::http::{Fault, Http, get_bytes, put};
use crate::clients::tls::{Taste, Tls, dial, hello};
use crate::harness::node::Node;
use crate::harness::origin::PIECE_LEN;
use crate::harness::pattern::pattern;
use crate::harness::site::{KeyKind, SITE};
use crate::harness::wait::until;
use crate::harness::{Cluster, Plan, SharedCluster};

const HALF_A_HELLO: [u8; 11] = [22, 3, 1, 0, 100, 1, 0, 0, 96, 3, 3];
/// The most streams that an agent allows on one HTTP/2 connection.
const STREAMS_MAX: u32 = 64;
/// RFC 9113 section 7.
const REFUSED_STREAM: u32 = 7;
const STALLED: &str = "watari_agent_transfers_stalled_total";

fn connect(cluster: &Cluster) -> Http<Tls> {
    Http::new(Tls::to_site(cluster.clients.any(), cluster.service, &Taste::default()).unwrap())
}

/// A client that is served, and must not be disturbed.
fn bystander(cluster: &Cluster) -> Http<Tls> {
    let mut bystander = connect(cluster);
    bystander.download(1000, 1).unwrap();
    bystander
}

#[test]
fn halves_of_handshakes_are_refused_before_those_who_are_in_suffer() {
    let plan = Plan {
        dispatcher_limits: "connections_max = 100\nhandshake_timeout = \"5s\"",
        agent_limits: "handshake_timeout = \"3s\"",
        ..Plan::default()
    };
    let cluster = Cluster::start(&plan);
    let mut bystander = bystander(&cluster);
    let mut halves: Vec<TcpStream> = Vec::new();
    for _ in 0..400 {
        // A refused client may be reset already.
        if let Ok(mut half) = dial(cluster.clients.any(), cluster.service) {
            let _ = half.write_all(&HALF_A_HELLO);
            halves.push(half);
        }
    }
    bystander.download(1_000_000, 2).unwrap();
    until("there was no place for all", || {
        cluster.dispatcher().count("watari_dispatcher_connections_refused_total", "full") > 0
    });
    until("they are given up", || cluster.dispatcher().count("watari_dispatcher_connections", "") == 1);
    assert!(cluster.count_on_agents("watari_agent_handshakes_failed_total", "timed_out") > 0);
    assert!(cluster.dispatcher().log().contains("client refused"));
    connect(&cluster).download(1000, 3).unwrap();
    bystander.download(1000, 4).unwrap();
}

#[test]
fn a_flood_of_handshakes_cuts_no_connection() {
    let cluster = Cluster::start(&Plan::default());
    let mut bystander = bystander(&cluster);
    thread::scope(|scope| {
        let flood = || {
            for seed in 0..100 {
                connect(&cluster).download(100, seed).unwrap();
            }
        };
        let floods = [scope.spawn(flood), scope.spawn(flood), scope.spawn(flood)];
        while !floods.iter().all(thread::ScopedJoinHandle::is_finished) {
            bystander.download(50_000, 5).unwrap();
        }
    });
    assert!(cluster.count_on_agents("watari_agent_handshakes_total", "") > 300);
}

/// Bursts of clients at agents that cannot do all handshakes in the time that they get.
#[test]
fn handshakes_without_a_turn_fail_and_those_who_are_in_are_served() {
    let cluster = Cluster::start(&Plan::default());
    let mut bystander = bystander(&cluster);
    for agent in cluster.agents() {
        agent.reconfigure(|text| text.replace("[agent.limits]\n", "[agent.limits]\nhandshake_timeout = \"20ms\"\n"));
    }
    let hello = hello(SITE, &Taste { key: KeyKind::Rsa2048, ..Taste::default() });
    let failed = |cause| cluster.count_on_agents("watari_agent_handshakes_failed_total", cause);
    until("some get no turn in time", || {
        let say = |_| {
            let mut client = dial(cluster.clients.any(), cluster.service).unwrap();
            client.write_all(&hello).unwrap();
            client
        };
        let _burst: Vec<_> = (0..300).map(say).collect();
        bystander.download(100_000, 2).unwrap();
        failed("too_busy") > 0
    });
    assert!(cluster.agent_logs().contains("the agent is too busy"));
    until("none waits", || cluster.count_on_agents("watari_agent_handshakes_waiting", "") == 0);
    bystander.download(1000, 3).unwrap();
}

/// A slow client is closed visibly, and no other client is affected.
fn check_slow_client(slow: impl FnOnce(&Cluster) -> Box<dyn FnOnce()>) {
    let cluster =
        Cluster::start(&Plan { agent_limits: "requests_max = 2\ntransfer_timeout = \"2s\"", ..Plan::default() });
    let mut bystander = bystander(&cluster);
    let stalled = |cluster: &Cluster| cluster.count_on_agents(STALLED, "");
    let is_cut = slow(&cluster);
    until("it is noticed", || stalled(&cluster) > 0);
    is_cut();
    until("it is logged", || cluster.agent_logs().contains("connection closed: the client stalls"));
    until("only the bystander is left", || cluster.count_on_agents("watari_agent_connections", "") == 1);
    bystander.download(1_000_000, 2).unwrap();
    assert_eq!(cluster.count_on_agents("watari_agent_connections_ended_total", "cut"), 1);
}

#[test]
fn a_client_that_does_not_read_its_response_is_given_up() {
    check_slow_client(|cluster| {
        let mut slow = connect(cluster);
        slow.send(&get_bytes(50_000_000, 1)).unwrap();
        slow.read_head().unwrap();
        Box::new(move || assert!(!slow.ends_cleanly()))
    });
}

#[test]
fn a_client_that_does_not_send_its_request_is_given_up() {
    check_slow_client(|cluster| {
        let mut slow = connect(cluster);
        let request = put(&vec![7; 100_000]);
        slow.send(&request[..50_000]).unwrap();
        Box::new(move || assert!(!slow.ends_cleanly()))
    });
}

#[test]
fn a_client_that_keeps_its_windows_shut_is_given_up() {
    check_slow_client(|cluster| {
        let mut slow = H2::connect_with_window(cluster.clients.any(), cluster.service, 0);
        slow.get(1, "/bytes/1000?1");
        slow.get(3, "/bytes/1000?2");
        Box::new(move || assert!(slow.is_cut()))
    });
}

/// A response that the client does not read is cut only when the other one, which it reads, is over.
#[test]
fn a_stalled_response_does_not_cut_others_of_its_connection() {
    let cluster = Cluster::start(&Plan { agent_limits: "transfer_timeout = \"1s\"", ..Plan::default() });
    let mut h2 = H2::connect_with_window(cluster.clients.any(), cluster.service, 0);
    h2.get(1, "/bytes/1000?1");
    h2.get(3, "/bytes/1000000000?2");
    let piece = 10_000;
    let mut granted = 0;
    // The other response is read piece by piece until the connection gets a GOAWAY, and further.
    let mut pieces_after = None;
    while pieces_after != Some(0) {
        if granted == 0 {
            h2.grant(3, piece);
            granted = piece;
            pieces_after = pieces_after.map(|left: u32| left - 1);
        }
        match h2.next_frame() {
            Some(Frame::Data { stream: 3, bytes, .. }) => granted -= u32::try_from(bytes.len()).unwrap(),
            Some(Frame::GoAway { error: 0 }) if pieces_after.is_none() => pieces_after = Some(100),
            Some(Frame::GoAway { error: 0 }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(cluster.count_on_agents(STALLED, ""), 1);
    h2.reset(3);
    assert!(h2.is_cut());
}

#[test]
fn a_head_that_never_ends_is_not_waited_for() {
    let cluster = Cluster::start(&Plan { agent_limits: "keep_alive_timeout = \"2s\"", ..Plan::default() });
    let mut slow = connect(&cluster);
    slow.send(b"GET / HTTP/1.1\r\nhost: ").unwrap();
    assert!(slow.ends_cleanly());
}

/// Each byte comes soon after the one before: the timeout is for the whole head.
#[test]
fn a_head_that_is_trickled_is_given_up() {
    let cluster = Cluster::start(&Plan { agent_limits: "keep_alive_timeout = \"5s\"", ..Plan::default() });
    let mut bystander = bystander(&cluster);
    let mut slow = connect(&cluster);
    slow.send(b"GET / HTTP/1.1\r\nhost: ").unwrap();
    until("it is given up", || {
        // The counter shows when the agent does not read any more.
        let _ = slow.send(b"x");
        bystander.download(1000, 2).unwrap();
        cluster.count_on_agents("watari_agent_connections_ended_total", "complete") == 1
    });
    assert!(slow.ends_cleanly());
    bystander.download(1000, 3).unwrap();
}

/// One upload comes byte by byte at a steady pace, and is read to its end. Another becomes slower and slower.
#[test]
fn an_upload_that_is_trickled_too_slowly_is_given_up() {
    let cluster = Cluster::start(&Plan { agent_limits: "transfer_timeout = \"2s\"", ..Plan::default() });
    let (mut steady, mut slower) = (connect(&cluster), connect(&cluster));
    let body = vec![7; 100_000];
    let request = put(&body);
    let mut left = request.chunks(1).skip(request.len() - body.len());
    for client in [&mut steady, &mut slower] {
        client.send(&request[..request.len() - body.len()]).unwrap();
    }
    let (mut pause, mut last) = (Duration::from_millis(10), Instant::now());
    until("it is noticed", || {
        steady.send(left.next().unwrap()).unwrap();
        if last.elapsed() > pause {
            // A connection that was given up may be closed already.
            let _ = slower.send(&[7]);
            (pause, last) = (2 * pause, Instant::now());
        }
        cluster.count_on_agents(STALLED, "") > 0
    });
    assert!(!slower.ends_cleanly());
    steady.send(&left.flatten().copied().collect::<Vec<_>>()).unwrap();
    steady.take_receipt(&body).unwrap();
    assert_eq!(cluster.count_on_agents(STALLED, ""), 1);
    assert_eq!(cluster.count_on_agents("watari_agent_connections_ended_total", "cut"), 1);
}

/// The client would read more at once. The origin is slow, and has a longer timeout.
#[test]
fn a_response_that_its_origin_pauses_is_waited_for() {
    let cluster = Cluster::start(&Plan { agent_limits: "transfer_timeout = \"1s\"", ..Plan::default() });
    let mut bystander = bystander(&cluster);
    let mut client = connect(&cluster);
    let len = 3 * PIECE_LEN;
    client.send(format!("GET /slow/3000/{len}?5 HTTP/1.1\r\nhost: {SITE}\r\n\r\n").as_bytes()).unwrap();
    client.take_download(len, 5).unwrap();
    bystander.download(1000, 2).unwrap();
    assert_eq!(cluster.count_on_agents(STALLED, ""), 0);
}

#[test]
fn a_response_that_its_origin_cuts_does_not_look_complete() {
    let cluster = Cluster::start(&Plan { agent_limits: "requests_max = 2", ..Plan::default() });
    let mut bystander = bystander(&cluster);
    for round in 1..=5 {
        let mut client = connect(&cluster);
        client.send(format!("GET /cut/1000000?1 HTTP/1.1\r\nhost: {SITE}\r\n\r\n").as_bytes()).unwrap();
        let fault = client.take_download(1_000_000, 1).unwrap_err();
        assert!(matches!(fault, Fault::Broken(_)), "{fault:?}");
        assert_eq!(cluster.count_on_agents("watari_proxy_bodies_cut_total", ""), round);
        bystander.download(100_000, 2).unwrap();
    }
}

/// A client opens as many streams as may wait for a window. The agent refuses each further one.
#[test]
fn a_client_gets_no_more_streams_than_it_may_have() {
    let cluster = Cluster::start(&Plan::default());
    let mut bystander = bystander(&cluster);
    let mut greedy = H2::connect_with_window(cluster.clients.any(), cluster.service, 0);
    let streams = (0..STREAMS_MAX + 36).map(|number| 1 + 2 * number);
    for stream in streams.clone() {
        greedy.get(stream, &format!("/bytes/1000?{stream}"));
    }
    for refused in streams.skip(STREAMS_MAX as usize) {
        match greedy.next_frame() {
            Some(Frame::Reset { stream, error: REFUSED_STREAM }) => assert_eq!(stream, refused),
            other => panic!("{other:?}"),
        }
    }
    bystander.download(100_000, 2).unwrap();
    // The other streams are served as soon as possible, and make room for another.
    let latest = 1 + 2 * (STREAMS_MAX + 36);
    let serve = |greedy: &mut H2, wanted: u32| {
        greedy.grant(wanted, 1000);
        let mut body = Vec::new();
        while body.len() < 1000 {
            match greedy.next_frame() {
                Some(Frame::Data { stream, bytes, .. }) if stream == wanted => body.extend(bytes),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(body, pattern(wanted.into(), 0..1000));
    };
    serve(&mut greedy, 1);
    greedy.get(latest, &format!("/bytes/1000?{latest}"));
    serve(&mut greedy, latest);
    assert_eq!(cluster.count_on_agents("watari_agent_requests_total", ""), i64::from(STREAMS_MAX) + 3);
}

static SHARED: SharedCluster = SharedCluster::new();

#[test]
fn heads_that_are_too_large_are_refused() {
    let cluster = SHARED.get(&Plan::default());
    let mut bystander = bystander(&cluster);
    let long = format!("x: {}\r\n", "y".repeat(70_000));
    let many = "x: y\r\n".repeat(200);
    for fields in [long, many] {
        let mut client = connect(&cluster);
        let _ = client.send(format!("GET / HTTP/1.1\r\nhost: {SITE}\r\n{fields}\r\n").as_bytes());
        assert_eq!(client.read_head().unwrap().status, 431);
        until("it is logged", || cluster.agent_logs().contains("request refused"));
        bystander.download(1000, 2).unwrap();
    }
}

/// RFC 7541 section 6.1: an indexed field, the first of the dynamic table.
const INDEX_62: u8 = 0xbe;

/// RFC 9113 section 7.
const ENHANCE_YOUR_CALM: u32 = 11;

/// A flood ends in GOAWAY or a closed connection, or the agent reads it at a bounded cost. No other client is affected.
fn check_flood(times: u32, frames: impl Fn(u32) -> Vec<u8>) -> Option<u32> {
    check_flood_of(H2::connect, times, frames)
}

fn check_flood_of(
    connect: impl Fn(IpAddr, SocketAddr) -> H2,
    times: u32,
    frames: impl Fn(u32) -> Vec<u8>,
) -> Option<u32> {
    let cluster = SHARED.get(&Plan::default());
    let mut bystander = bystander(&cluster);
    let memory_kib = || cluster.agents().map(Node::memory_kib).sum::<u64>();
    let before = memory_kib();
    let error = connect(cluster.clients.any(), cluster.service).flood(times, frames);
    let grown = memory_kib().saturating_sub(before);
    assert!(grown < 64 << 10, "the flood cost {grown} KiB");
    bystander.download(100_000, 2).unwrap();
    error
}

#[test]
fn streams_that_are_reset_at_once_are_counted() {
    let error = check_flood(2_000, |number| {
        let stream = 1 + 2 * number;
        let request = frame(HEADERS, END_HEADERS | END_STREAM, stream, &get_block("/bytes/1000?1"));
        [request, frame(RST_STREAM, 0, stream, &8u32.to_be_bytes())].concat()
    });
    assert!(error.is_none() || error == Some(ENHANCE_YOUR_CALM), "{error:?}");
}

#[test]
fn continuations_without_end_are_cut() {
    let error = check_flood(100_000, |number| match number {
        0 => frame(HEADERS, END_STREAM, 1, &get_block("/")),
        _ => frame(CONTINUATION, 0, 1, &[&[0x40, 1, b'x', 100][..], &[b'y'; 100]].concat()),
    });
    assert!(error.is_some_and(|error| error != 0), "{error:?}");
}

/// Each field refers to one of 4 KiB in the table: 16,000 of them in one head would be 64 MiB.
#[test]
fn small_heads_that_unfold_are_not_unfolded() {
    let error = check_flood(2, |number| {
        let stream = 1 + 2 * number;
        let mut block = get_block("/");
        block.extend([0x40, 1, b'x', 0x7f, 0x80 | 0x11, 0x1e]);
        block.extend([b'y'; 0x7f + 0x11 + (0x1e << 7)]);
        block.extend([INDEX_62; 12_000]);
        frame(HEADERS, END_HEADERS | END_STREAM, stream, &block)
    });
    assert!(error.is_none_or(|error| error != 0), "{error:?}");
}

/// RFC 9113, section 10.5: frames without content, which cost a CPU core if the agent reads them without end.
#[test]
fn floods_of_frames_without_content_end() {
    let cluster = SHARED.get(&Plan::default());
    let ended = || cluster.count_on_agents("watari_agent_http2_floods_total", "");
    let begin = |number, next| match number {
        0 => frame(HEADERS, END_HEADERS, 1, &get_block("/bytes/1000?1")),
        _ => next,
    };
    for (name, kind, stream, payload) in [
        ("WINDOW_UPDATE", WINDOW_UPDATE, 0, &[0, 0, 0, 1][..]),
        ("WINDOW_UPDATE of a stream", WINDOW_UPDATE, 1, &[0, 0, 0, 1]),
        ("PRIORITY", PRIORITY, 3, &[0, 0, 0, 0, 16]),
        ("PRIORITY_UPDATE", PRIORITY_UPDATE, 0, &[0, 0, 0, 1]),
        ("unknown", 0xbe, 0, &[]),
        ("PING", PING, 0, &[7; 8]),
        ("SETTINGS", SETTINGS, 0, &[]),
    ] {
        let before = ended();
        let connect = |source, service| H2::connect_with_window(source, service, 65_535);
        let error = check_flood_of(connect, 50_000, |number| begin(number, frame(kind, 0, stream, payload)));
        assert_eq!(error, Some(ENHANCE_YOUR_CALM), "{name}");
        assert_eq!(ended(), before + 1, "{name}");
    }
    // The HTTP/2 library counts these.
    let error = check_flood(50_000, |number| begin(number, frame(DATA, 0, 1, &[])));
    assert_eq!(error, Some(ENHANCE_YOUR_CALM));
}

/// The agent reads data that the client has in flight when the connection ends, so that no reset overtakes the GOAWAY.
/// It does not read later data.
#[test]
fn a_client_that_goes_on_behind_a_goaway_is_cut() {
    let cluster = SHARED.get(&Plan::default());
    let mut client = H2::connect(cluster.clients.any(), cluster.service);
    // A DATA frame on stream 0 is an error of the connection.
    client.data(0, b"x", false);
    let goaway = std::iter::from_fn(|| client.next_frame()).find(|frame| matches!(frame, Frame::GoAway { .. }));
    assert!(matches!(goaway, Some(Frame::GoAway { error: 1 })), "{goaway:?}");
    let piece = [0; 16 << 10];
    // The amount in flight when the dispatcher learns of the end depends on the load of the machine.
    let is_cut = (0..65_536).any(|_| client.stream().write_all(&piece).is_err());
    assert!(is_cut, "1 GiB was taken");
}

/// Two `WINDOW_UPDATE`s for each 500 bytes: many more than any real client sends.
#[test]
fn a_client_that_opens_its_windows_bit_by_bit_is_served() {
    let cluster = SHARED.get(&Plan::default());
    let len = 8_000_000;
    let mut client = H2::connect_with_window(cluster.clients.any(), cluster.service, 65_535);
    client.get(1, &format!("/bytes/{len}?1"));
    let mut taken = 0;
    while taken < len {
        match client.next_frame() {
            Some(Frame::Data { bytes, .. }) => {
                assert_eq!(bytes, pattern(1, taken..taken + bytes.len() as u64));
                taken += bytes.len() as u64;
                bytes.chunks(500).for_each(|chunk| client.grant(1, chunk.len() as u32));
            }
            other => panic!("{other:?} after {taken} bytes"),
        }
    }
}

/// A machine with a low limit on open files. The node logs that, and accepts as many clients as it has files for.
/// Accepted clients are served without a disturbance.
#[test]
fn a_node_takes_only_as_many_clients_as_there_are_files_for() {
    let cluster = Cluster::start(&Plan { files_max: Some(400), ..Plan::default() });
    let mut bystander = bystander(&cluster);
    let refused = || cluster.dispatcher().count("watari_dispatcher_connections_refused_total", "full");
    let mut clients = Vec::new();
    for _ in 0..600 {
        // A refused client may be reset already.
        clients.extend(dial(cluster.clients.any(), cluster.service).ok());
    }
    until("there is no place for all", || refused() > 0);
    bystander.download(1_000_000, 2).unwrap();
    for node in cluster.agents().chain([cluster.dispatcher()]) {
        let log = node.log();
        assert!(log.contains("limit on open files is too low"), "{log}");
        assert!(!log.contains("cannot accept"), "{log}");
    }
    drop(clients);
    until("a place is free again", || Tls::to_site(cluster.clients.any(), cluster.service, &Taste::default()).is_ok());
    bystander.download(1000, 3).unwrap();
}

/// The same for limits that become too high only by a reload.
#[test]
fn a_reload_allows_only_as_many_clients_as_there_are_files_for() {
    let few = Plan { files_max: Some(400), dispatcher_limits: "connections_max = 10", ..Plan::default() };
    let cluster = Cluster::start(&few);
    let dispatcher = cluster.dispatcher();
    let warned = || dispatcher.log().contains("limit on open files is too low");
    assert!(!warned());
    let mut bystander = bystander(&cluster);
    let reloaded = dispatcher.reconfigure(|text| text.replace("connections_max = 10", "connections_max = 9000"));
    let change = &reloaded["changes"][0];
    assert_eq!((&change["old"], &change["new"]), (&"10".into(), &"9000".into()));
    assert!(warned());
    let clients: Vec<_> = (0..600).filter_map(|_| dial(cluster.clients.any(), cluster.service).ok()).collect();
    let refused = || dispatcher.count("watari_dispatcher_connections_refused_total", "full");
    until("there is no place for all", || refused() > 0);
    bystander.download(1_000_000, 2).unwrap();
    assert!(!dispatcher.log().contains("cannot accept"));
    assert!(clients.len() > 10);
}
