//! Long bodies, which the dispatcher relays by splice(2), on connections that move between requests again and again.
//!
//! Seeded: `WATARI_SPLICES_SEED` replays the requests and the targets of moves, as far as threads and processes can be
//! replayed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::net::sockopt::set_socket_recv_buffer_size;

use crate::clients::http::{Fault, Http, get_bytes, put};
use crate::clients::tls::{Taste, Tls};
use crate::harness::ctl::{Connection, order_move};
use crate::harness::pattern::{Random, pattern, seed};
use crate::harness::wait::until;
use crate::harness::{AGENTS, Cluster, Plan};

/// The least number of moves of each connection.
const MOVES_MIN: u32 = 30;

/// Many more bytes than the buffers on the way hold.
const LONG_LEN: u64 = 5_000_000;

#[test]
fn long_bodies_on_connections_that_move_lose_no_byte() {
    let seed = seed("WATARI_SPLICES_SEED");
    let cluster = Cluster::start(&Plan::default());
    let clients: Vec<_> = Taste::all().iter().map(|taste| connect(&cluster, taste)).collect();
    let over = AtomicBool::new(false);
    let clients: Vec<_> = thread::scope(|scope| {
        let _end = End(&over);
        let ask = |(number, mut http): (u64, Http<Tls>)| {
            let (over, mut random) = (&over, Random::new(seed ^ number << 32));
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    ask(&mut http, &mut random).unwrap();
                }
                http
            })
        };
        let clients: Vec<_> = (1..).zip(clients).map(ask).collect();
        let mut random = Random::new(seed);
        until("every connection has moved often", || {
            assert!(clients.iter().all(|client| !client.is_finished()), "a client has given up");
            let connections = cluster.connections();
            assert_eq!(connections.len(), clients.len());
            for connection in &connections {
                order(&cluster, connection, &mut random);
            }
            connections.iter().all(|connection| connection.moves >= MOVES_MIN)
        });
        over.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let count = |name: &str| cluster.dispatcher().count(&format!("watari_dispatcher_{name}_total"), "");
    let relayed = count("bytes_to_clients") + count("bytes_to_agents");
    assert!(count("bytes_spliced") > relayed / 4, "of {relayed} bytes {} went by splice", count("bytes_spliced"));
    assert_eq!(count("connections_reset"), 0);
    assert_eq!(cluster.count_on_agents("watari_agent_lost_in_moves_total", ""), 0);
    assert_eq!(cluster.count_on_agents("watari_agent_records_refused_total", ""), 0);
    drop(clients);
    cluster.wait_until_idle();
}

fn connect(cluster: &Cluster, taste: &Taste) -> Http<Tls> {
    let mut http = Http::new(Tls::to_site(cluster.clients.any(), cluster.service, taste).unwrap());
    http.download(1000, 1).unwrap();
    http
}

/// Orders the connection to another agent. It may have gone there by an earlier order.
fn order(cluster: &Cluster, connection: &Connection, random: &mut Random) {
    let others: Vec<_> = AGENTS.into_iter().filter(|agent| *agent != connection.node).collect();
    if let Err(refused) = order_move(&cluster.dispatcher().admin(), &connection.id, random.pick(&others)) {
        assert_eq!(refused, "the agent has the connection already");
    }
}

/// A long body in one direction or the other, or one right behind the other. Then the second request is in flight while
/// the connection moves.
fn ask(http: &mut Http<Tls>, random: &mut Random) -> Result<(), Fault> {
    let (seed, len) = (random.next(), random.below(LONG_LEN));
    let body = pattern(seed, 0..random.below(LONG_LEN));
    match random.below(4) {
        0 => http.download(len, seed),
        1 => http.upload(&body),
        2 => http.download(random.below(2_000), seed),
        _ => {
            http.send(&[get_bytes(20_000, seed), put(&body)].concat())?;
            http.take_download(20_000, seed)?;
            http.take_receipt(&body)
        }
    }
}

/// The client's receive buffer in a test that fills it, in bytes.
const RECEIVE_BUFFER_LEN: usize = 128 << 10;

/// The client does not read, so the end of a response waits in the dispatcher. The agent has finished the response, and
/// the connection moves to another agent.
#[test]
fn what_waits_for_the_client_outlasts_the_move() {
    let cluster = Cluster::start(&Plan::default());
    let mut http = connect(&cluster, &Taste::default());
    let client = http.stream.tcp().local_addr().unwrap().ip();
    // Otherwise the kernel enlarges the buffers of the client's connection during the test.
    set_socket_recv_buffer_size(http.stream.tcp(), RECEIVE_BUFFER_LEN).unwrap();
    let to_clients = || cluster.dispatcher().count("watari_dispatcher_bytes_to_clients_total", "");
    let requests = || cluster.count_on_agents("watari_agent_requests_total", "");
    let mut random = Random::new(1);
    // The capacity of the system's buffers is found by trying: in steps shorter than the dispatcher's buffer, and
    // repeatedly, because the buffers grow meanwhile.
    let lengths = (0..10).flat_map(|pass| (100_000 + pass * 4_801..3_000_000).step_by(48 << 10));
    let has_waited = { lengths }.any(|len| {
        let aborted = || cluster.dispatcher().count("watari_dispatcher_moves_aborted_total", "timeout");
        let (moves, asked, written, before) =
            (cluster.connection_of(client).moves, requests(), to_clients(), aborted());
        http.send(&get_bytes(len, len)).unwrap();
        until("an agent has the request", || requests() > asked);
        // It cannot move if the dispatcher has no room for the end of the response, which its agent still holds.
        let mut has_moved = false;
        until("the connection has moved, or a move was given up", || {
            let connection = cluster.connection_of(client);
            order(&cluster, &connection, &mut random);
            has_moved = connection.moves > moves;
            has_moved || aborted() > before
        });
        let waits = to_clients() - written < len.cast_signed();
        http.take_download(len, len).unwrap();
        has_moved && waits
    });
    assert!(has_waited, "nothing ever waited in the dispatcher at a move");
    http.download(LONG_LEN, 3).unwrap();
    assert!(cluster.dispatcher().count("watari_dispatcher_bytes_spliced_total", "") > 0);
}

/// More than the dispatcher reads while the client takes nothing, and less than that and the buffers of a leg.
const FILLS_LEG_LEN: u64 = 1_100_000;

/// The client does not read, and a part of the response is still in the buffers of the source's leg when the move
/// begins. The dispatcher reads it all, so the move commits.
#[test]
fn a_move_does_not_wait_for_a_client_that_does_not_read() {
    let cluster = Cluster::start(&Plan::default());
    let mut http = connect(&cluster, &Taste::default());
    let client = http.stream.tcp().local_addr().unwrap().ip();
    set_socket_recv_buffer_size(http.stream.tcp(), RECEIVE_BUFFER_LEN).unwrap();
    let requests = || cluster.count_on_agents("watari_agent_requests_total", "");
    let mut random = Random::new(1);
    for seed in 1..=3 {
        let (asked, moves) = (requests(), cluster.connection_of(client).moves);
        http.send(&get_bytes(FILLS_LEG_LEN, seed)).unwrap();
        until("an agent has the request", || requests() > asked);
        until("the connection has moved", || {
            let connection = cluster.connection_of(client);
            order(&cluster, &connection, &mut random);
            connection.moves > moves
        });
        http.take_download(FILLS_LEG_LEN, seed).unwrap();
    }
    assert_eq!(cluster.dispatcher().count("watari_dispatcher_moves_aborted_total", "timeout"), 0);
}

/// Clients whose responses wait in the dispatcher take more than the limit if all of them move.
#[test]
fn undelivered_bytes_of_all_connections_are_bounded() {
    let limits = "undelivered_mib_max = 1\nmove_timeout = \"500ms\"";
    let cluster = Cluster::start(&Plan { dispatcher_limits: limits, ..Plan::default() });
    let mut clients: Vec<_> = (0..12).map(|_| connect(&cluster, &Taste::default())).collect();
    let requests = || cluster.count_on_agents("watari_agent_requests_total", "");
    let undelivered = || cluster.dispatcher().count("watari_dispatcher_undelivered_bytes", "");
    let aborted = || cluster.dispatcher().count("watari_dispatcher_moves_aborted_total", "timeout");
    let mut random = Random::new(1);
    let before = requests();
    for (seed, http) in (1..).zip(&mut clients) {
        set_socket_recv_buffer_size(http.stream.tcp(), RECEIVE_BUFFER_LEN).unwrap();
        http.send(&get_bytes(FILLS_LEG_LEN, seed)).unwrap();
    }
    until("the agents have all requests", || (requests() - before).cast_unsigned() as usize == clients.len());
    until("some connections have moved, and others have found no room", || {
        let connections = cluster.connections();
        for connection in &connections {
            order(&cluster, connection, &mut random);
        }
        // Each thread may exceed the limit by one read.
        assert!(undelivered() <= (1 << 20) + 64 * (64 << 10), "{} bytes are undelivered", undelivered());
        aborted() > 0 && undelivered() > 0
    });
    for (seed, http) in (1..).zip(&mut clients) {
        http.take_download(FILLS_LEG_LEN, seed).unwrap();
    }
    until("the bytes are delivered", || undelivered() == 0);
    until("a connection moves", || {
        let connection = cluster.connections().swap_remove(0);
        order(&cluster, &connection, &mut random);
        cluster.connections().iter().any(|now| now.id == connection.id && now.moves > connection.moves)
    });
}

/// Ends the clients when it is dropped, also if the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
