//! Connections that move between requests: by order, again and again, and off an agent that is drained.
//!
//! Seeded: `WATARI_MOVES_SEED` replays the requests and the targets of moves, as far as threads and processes can be
//! replayed.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::clients::h2::{Frame, H2};
use crate::clients::http::{Fault, Http, get_bytes, put};
use crate::clients::tls::{TLS12, TLS13, Taste, Tls};
use crate::harness::ctl::{Connection, drain, order_move};
use crate::harness::pattern::{Random, pattern, seed};
use crate::harness::wait::until;
use crate::harness::{AGENTS, Cluster, Plan};

/// Clients of each version.
const CLIENTS: usize = 4;

/// The least number of moves of each connection.
const MOVES_MIN: u32 = 60;

/// The agent that is drained.
const DRAINED: &str = "a2";

/// More bytes than all buffers between an agent and a client that does not read.
const LARGE_LEN: u64 = 40_000_000;

/// Before the drain: one request of each idle client (four), two of each busy one (three).
const REQUESTS: i64 = 4 + 2 * 3;

#[test]
fn connections_that_are_moved_again_and_again_lose_no_byte() {
    let seed = seed("WATARI_MOVES_SEED");
    let cluster = Cluster::start(&Plan::default());
    let versions = [&TLS12, &TLS13].into_iter().flat_map(|version| [version; CLIENTS]);
    let clients: Vec<_> = (1..)
        .zip(versions)
        .map(|(number, version)| {
            let (_, http) = connect(&cluster, "a1", &Taste { version, ..Taste::default() });
            Client { http, random: Random::new(seed ^ number << 32) }
        })
        .collect();
    let over = AtomicBool::new(false);
    let clients: Vec<_> = thread::scope(|scope| {
        let _end = End(&over);
        let clients: Vec<_> = clients.into_iter().map(|client| scope.spawn(|| client.ask_until(&over))).collect();
        let order = || assert!(clients.iter().all(|client| !client.is_finished()), "a client has given up");
        move_all(&cluster, Random::new(seed), order);
        over.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    check_nothing_was_lost(&cluster);
    assert!(cluster.dispatcher().count("watari_dispatcher_legs_reused_total", "") > 0);
    drop(clients);
    cluster.wait_until_idle();
}

/// Orders moves until every connection has moved often. Checks the clients between the orders.
fn move_all(cluster: &Cluster, mut random: Random, check_clients: impl Fn()) {
    until("every connection has moved often", || {
        check_clients();
        let connections = cluster.connections();
        assert_eq!(connections.len(), 2 * CLIENTS);
        for Connection { id, node, .. } in &connections {
            let others: Vec<_> = AGENTS.into_iter().filter(|agent| agent != node).collect();
            match order_move(&cluster.dispatcher().admin(), id, random.pick(&others)) {
                Ok(()) => {}
                // The connection has gone there by an earlier order.
                Err(refused) => assert_eq!(refused, "the agent has the connection already"),
            }
        }
        connections.iter().all(|connection| connection.moves >= MOVES_MIN)
    });
}

/// Call it while the clients are connected: a client that closes may reset its connection.
fn check_nothing_was_lost(cluster: &Cluster) {
    assert_eq!(cluster.dispatcher().count("watari_dispatcher_connections_reset_total", ""), 0);
    assert_eq!(cluster.count_on_agents("watari_agent_lost_in_moves_total", ""), 0);
    assert_eq!(cluster.count_on_agents("watari_agent_records_refused_total", ""), 0);
}

/// Connects a client whose data the policy gives to `agent`, and waits for its first response.
fn connect(cluster: &Cluster, agent: &str, taste: &Taste) -> (IpAddr, Http<Tls>) {
    let address = cluster.clients.served_by(agent);
    let mut http = Http::new(Tls::to_site(address, cluster.service, taste).unwrap());
    http.download(1000, 1).unwrap();
    (address, http)
}

/// Ends the clients when it is dropped, also if a test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A client that keeps its connection and checks every byte.
struct Client {
    http: Http<Tls>,
    random: Random,
}

impl Client {
    fn ask_until(mut self, over: &AtomicBool) -> Self {
        while !over.load(Ordering::Relaxed) {
            self.ask().unwrap();
            assert!(!self.http.is_closing, "the client was told `connection: close`");
        }
        self
    }

    fn ask(&mut self) -> Result<(), Fault> {
        let (http, random) = (&mut self.http, &mut self.random);
        let seed = random.next();
        match random.below(7) {
            0 => http.download(random.below(1_000_000), seed),
            1..=2 => http.download(random.below(20_000), seed),
            3 => http.upload(&pattern(seed, 0..random.below(500_000))),
            4 => http.upload(&pattern(seed, 0..random.below(5_000))),
            5 => pipeline(http, seed, 2 + random.below(6)),
            _ => torn_pipeline(http, seed, random),
        }
    }
}

/// Several requests in one write, uploads among them.
fn pipeline(http: &mut Http<Tls>, seed: u64, requests: u64) -> Result<(), Fault> {
    let upload = pattern(seed, 0..3_000);
    let is_upload = |number: u64| number % 3 == 2;
    let request = |number| if is_upload(number) { put(&upload) } else { get_bytes(number * 5_000, seed) };
    http.send(&(0..requests).flat_map(request).collect::<Vec<_>>())?;
    for number in 0..requests {
        if is_upload(number) { http.take_receipt(&upload) } else { http.take_download(number * 5_000, seed) }?;
    }
    Ok(())
}

/// Two requests, the second of which is cut in two. Its rest follows when the first is answered, wherever the
/// connection is then.
fn torn_pipeline(http: &mut Http<Tls>, seed: u64, random: &mut Random) -> Result<(), Fault> {
    let body = pattern(seed, 0..2_000);
    let second = put(&body);
    let (begin, rest) = second.split_at(1 + random.below(second.len() as u64 - 1) as usize);
    http.send(&[&get_bytes(700, seed), begin].concat())?;
    http.take_download(700, seed)?;
    http.send(rest)?;
    http.take_receipt(&body)
}

#[test]
fn a_drain_under_load_breaks_nothing() {
    let cluster = Cluster::start(&Plan::default());
    let tastes = Taste::all();
    let idle: Vec<_> = tastes.iter().map(|taste| connect(&cluster, DRAINED, taste)).collect();
    let (download, mut downloading) = connect(&cluster, DRAINED, &tastes[0]);
    downloading.send(&get_bytes(LARGE_LEN, 7)).unwrap();
    let (upload, mut uploading) = connect(&cluster, DRAINED, &tastes[3]);
    let body = pattern(8, 0..500_000);
    let request = put(&body);
    uploading.send(&request[..200_000]).unwrap();
    let multiplexing = cluster.clients.served_by(DRAINED);
    let mut h2 = H2::connect(multiplexing, cluster.service);
    let streams = [1, 3].map(|stream| (stream, LARGE_LEN / 4));
    for (stream, len) in streams {
        h2.get(stream, &format!("/bytes/{len}?{stream}"));
    }
    let busy = [download, upload, multiplexing];
    until("all are on the agent, and requests are in progress", || {
        let on = connections(&cluster);
        let agent = cluster.node(DRAINED);
        on.values().all(|connection| connection.node == DRAINED)
            && agent.count("watari_agent_requests_total", "") == REQUESTS
    });
    let moves = connections(&cluster).into_iter().map(|(client, connection)| (client, connection.moves));
    let moves: HashMap<_, _> = moves.collect();

    let mut drain = drain(&cluster.dispatcher().admin(), DRAINED);
    until("the idle connections have left, and the busy ones say why they have not", || {
        let reason = |client| connections(&cluster)[&client].stays.clone();
        idle.iter().all(|(client, _)| connections(&cluster)[client].node != DRAINED)
            && busy.map(reason) == ["in_request", "in_request", "http2"].map(|reason| Some(reason.to_owned()))
    });
    assert!(busy.iter().all(|client| connections(&cluster)[client].node == DRAINED));
    until("no leg to it is kept", || cluster.node(DRAINED).count("watari_agent_legs_idle", "") == 0);
    assert!(drain.try_wait().unwrap().is_none());

    finish_streams(&mut h2, &streams);
    drop(h2);
    uploading.send(&request[200_000..]).unwrap();
    uploading.take_receipt(&body).unwrap();
    downloading.take_download(LARGE_LEN, 7).unwrap();
    assert!(drain.wait().unwrap().success());

    let mut stayed: Vec<_> = idle.into_iter().chain([(download, downloading), (upload, uploading)]).collect();
    for (client, http) in &mut stayed {
        http.download(50_000, 3).unwrap();
        assert!(!http.is_closing);
        let connection = &connections(&cluster)[client];
        assert_ne!(connection.node, DRAINED);
        assert_eq!(connection.moves, moves[client] + 1);
    }
    check_nothing_was_lost(&cluster);
    drop(stayed);
    cluster.wait_until_idle();
}

/// Reads until every stream is complete and the connection has ended. A GOAWAY must come before, and no stream may be
/// reset.
fn finish_streams(h2: &mut H2, streams: &[(u32, u64)]) {
    let mut read: HashMap<u32, u64> = HashMap::new();
    let (mut is_leaving, mut ended) = (false, 0);
    while let Some(frame) = h2.next_frame() {
        match frame {
            Frame::Data { stream, bytes, is_end } => {
                let at = read.entry(stream).or_default();
                let end = *at + bytes.len() as u64;
                assert!(bytes == pattern(stream.into(), *at..end), "wrong bytes on stream {stream} from {at} on");
                *at = end;
                ended += usize::from(is_end);
            }
            Frame::GoAway { error } => {
                assert_eq!(error, 0);
                is_leaving = true;
            }
            Frame::Reset { stream, .. } => panic!("stream {stream} was reset"),
        }
    }
    assert!(is_leaving, "the connection ended without a GOAWAY");
    assert_eq!(ended, streams.len());
    assert_eq!(read, streams.iter().copied().collect());
}

/// The dispatcher's connections, by client.
fn connections(cluster: &Cluster) -> HashMap<IpAddr, Connection> {
    cluster.connections().into_iter().map(|connection| (connection.client.ip(), connection)).collect()
}
