//! Connections that move by themselves, because agents have uneven loads.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use crate::clients::h2::H2;
use crate::clients::http::{Fault, Http, get_bytes};
use crate::clients::tls::{Taste, Tls};
use crate::harness::ctl::{drain, undrain};
use crate::harness::pattern::{Random, seed};
use crate::harness::wait::{look_until, until};
use crate::harness::{Cluster, Content, Plan};
use crate::in_response::{LARGE_LEN, file, get, prepared};
use crate::soak::lasts_s;

/// Clients in all.
const CLIENTS: usize = 40;

/// Of these, clients with HTTP/2.
const HTTP2: usize = 16;

/// Downloads that move in the middle.
const DOWNLOADS: usize = 8;

/// An uneven load has to be even after this time.
const EVEN_WITHIN: Duration = Duration::from_secs(30);

/// The balancer compares the loads this many times more, after they are even.
const ROUNDS_AFTER: i64 = 10;

/// Clients of each agent under noise, and those of them that come and go: with 46 and 34 connections, the agents have
/// 15 % more and less than their share.
const MOST: usize = 46;
const COMING: usize = 12;

/// The bytes of a response under noise, and by how many they differ: 15 %.
const LEN: u64 = 20_000;
const SWING: u64 = 3_000;

/// The interval between two requests of a client under noise.
const INTERVAL: Duration = Duration::from_millis(100);

/// A cluster of two agents with so many connections, in which nothing moves yet. The clients are in the order of the
/// agents.
fn placed(at: [usize; 2]) -> (Cluster, Vec<Http<Tls>>) {
    placed_with(Content::Origins, at, download_first)
}

/// The same, with clients that begin with `first`.
fn placed_with(content: Content, at: [usize; 2], first: First) -> (Cluster, Vec<Http<Tls>>) {
    let dispatcher = "handshake = \"least_connections\"\nbulk = \"stay\"\nrebalance = \"off\"";
    let cluster = Cluster::start(&Plan { agents: Some(&["a1", "a2"]), dispatcher, content, ..Plan::default() });
    let admin = cluster.dispatcher().admin();
    assert!(drain(&admin, "a2").wait().unwrap().success());
    let mut clients = connect(&cluster, at[0], first);
    undrain(&admin, "a2");
    // The second agent has the fewest connections.
    clients.extend(connect(&cluster, at[1], first));
    until("the agents have these connections", || shares(&cluster) == at);
    (cluster, clients)
}

/// What a client does first, by its number.
type First = fn(&mut Http<Tls>, u64) -> Result<(), Fault>;

fn download_first(client: &mut Http<Tls>, number: u64) -> Result<(), Fault> {
    client.download(1_000, number)
}

fn connect(cluster: &Cluster, clients: usize, first: First) -> Vec<Http<Tls>> {
    let client = |number| {
        let tls = Tls::to_site(cluster.clients.any(), cluster.service, &Taste::default()).unwrap();
        let mut http = Http::new(tls);
        first(&mut http, number).unwrap();
        http
    };
    (0..clients as u64).map(client).collect()
}

fn rebalance_by(cluster: &Cluster, kind: &str) {
    let on = format!("rebalance = \"{kind}\"");
    cluster.dispatcher().reconfigure(|text| text.replace("rebalance = \"off\"", &on));
}

/// The number of connections of each agent.
fn shares(cluster: &Cluster) -> [usize; 2] {
    let mut shares = HashMap::new();
    for connection in cluster.connections() {
        *shares.entry(connection.node).or_default() += 1;
    }
    ["a1", "a2"].map(|agent| shares.get(agent).copied().unwrap_or_default())
}

/// Whether each agent has the mean within 10 %.
fn are_even(shares: [usize; 2]) -> bool {
    let mean = shares.iter().sum::<usize>() / shares.len();
    shares.iter().all(|share| share.abs_diff(mean) * 10 <= mean)
}

/// What `look` returns once the load is even, which it has to be in time.
fn even_in_time<T>(cluster: &Cluster, begun: Instant, look: impl FnMut() -> Option<T>) -> T {
    look_until(begun + EVEN_WITHIN, look).unwrap_or_else(|| panic!("{:?} after {EVEN_WITHIN:?}", shares(cluster)))
}

fn asked(cluster: &Cluster) -> i64 {
    cluster.dispatcher().count("watari_dispatcher_rebalanced_total", "")
}

fn moved(cluster: &Cluster) -> i64 {
    cluster.dispatcher().count("watari_dispatcher_moves_committed_total", "")
}

/// How often the balancer has compared the loads of the agents.
fn rounds(cluster: &Cluster) -> i64 {
    cluster.dispatcher().count("watari_dispatcher_rebalance_rounds_total", "")
}

fn download_all(clients: &mut [Http<Tls>], len: u64) {
    for (seed, client) in (0..).zip(clients) {
        client.download(len, seed).unwrap();
    }
}

fn check_no_connection_was_lost(cluster: &Cluster) {
    assert_eq!(cluster.dispatcher().count("watari_dispatcher_connections_reset_total", ""), 0);
    assert_eq!(cluster.count_on_agents("watari_agent_lost_in_moves_total", ""), 0);
}

#[test]
fn seventy_to_thirty_is_even_after_thirty_seconds_and_stays_so() {
    let (cluster, mut clients) = placed([28, 12]);
    assert_eq!(rounds(&cluster), 0);
    let begun = Instant::now();
    rebalance_by(&cluster, "connections");
    let (even, asked_until_even) = even_in_time(&cluster, begun, || {
        let (shares, asked) = (shares(&cluster), asked(&cluster));
        (are_even(shares) && moved(&cluster) == asked).then_some((shares, asked))
    });
    assert!((6..=10).contains(&asked_until_even), "no connection moves back and forth: {asked_until_even} moves");
    download_all(&mut clients, 10_000);

    let last = rounds(&cluster) + ROUNDS_AFTER;
    until("the balancer has compared the loads some times more", || {
        assert_eq!((shares(&cluster), asked(&cluster)), (even, asked_until_even));
        rounds(&cluster) >= last
    });
    assert_eq!(moved(&cluster), asked_until_even);
    download_all(&mut clients, 10_000);
    check_no_connection_was_lost(&cluster);
    assert_eq!(shares(&cluster).iter().sum::<usize>(), CLIENTS);
}

#[test]
fn connections_that_load_an_agent_move() {
    let (cluster, mut clients) = placed([CLIENTS, 0]);
    rebalance_by(&cluster, "load");
    let mut first = 0;
    until("the other agent gets some of the load", || {
        // All at a time, so that each second has the same load, also on a busy machine.
        request_all(&mut clients, first, |_| 100_000);
        first += CLIENTS as u64;
        shares(&cluster)[1] >= CLIENTS / 4
    });
    check_no_connection_was_lost(&cluster);
}

#[test]
fn bytes_of_seventy_to_thirty_are_even_after_thirty_seconds() {
    let (cluster, mut clients) = placed([28, 12]);
    let begun = Instant::now();
    rebalance_by(&cluster, "load");
    let mut first = 0;
    even_in_time(&cluster, begun, || {
        // All at a time, so that each connection has the same share of the load, also on a busy machine.
        request_all(&mut clients, first, |_| 100_000);
        first += CLIENTS as u64;
        are_even(shares(&cluster)).then_some(())
    });
    check_no_connection_was_lost(&cluster);
}

/// They cannot move. The others are asked instead.
#[test]
fn connections_with_http2_leave_the_moves_to_others() {
    let (cluster, mut clients) = placed([CLIENTS - HTTP2, 0]);
    let admin = cluster.dispatcher().admin();
    assert!(drain(&admin, "a2").wait().unwrap().success());
    let http2: Vec<_> = (0..HTTP2).map(|_| H2::connect(cluster.clients.any(), cluster.service)).collect();
    until("a1 has all", || shares(&cluster) == [CLIENTS, 0]);
    undrain(&admin, "a2");
    let begun = Instant::now();
    rebalance_by(&cluster, "connections");
    even_in_time(&cluster, begun, || are_even(shares(&cluster)).then_some(()));
    download_all(&mut clients, 10_000);
    check_no_connection_was_lost(&cluster);
    drop(http2);
}

/// The rest of each response comes from the other agent.
#[test]
fn downloads_in_progress_move() {
    let begin: First = |client, _| client.send(&get(&file(LARGE_LEN)));
    let (cluster, mut clients) = placed_with(Content::Files(&[LARGE_LEN]), [DOWNLOADS, 0], begin);
    rebalance_by(&cluster, "connections");
    // Clients read nothing meanwhile, so that no response ends.
    until("the agents share the downloads", || shares(&cluster)[1] >= DOWNLOADS / 4);
    let moved = moved(&cluster);
    assert!(prepared(&cluster, "prepared") >= moved && moved > 0);
    for client in &mut clients {
        client.take_download(LARGE_LEN, LARGE_LEN).unwrap();
    }
    check_no_connection_was_lost(&cluster);
}

#[test]
fn without_the_setting_connections_stay() {
    let (cluster, mut clients) = placed([CLIENTS, 0]);
    download_all(&mut clients, 10_000);
    assert_eq!((asked(&cluster), rounds(&cluster), shares(&cluster)), (0, 0, [CLIENTS, 0]));
}

/// Downloads at all clients at a time. `len` is the number of bytes of each, by its number.
fn request_all(clients: &mut [Http<Tls>], first: u64, len: impl Fn(usize) -> u64) {
    let each = || (first..).zip(0..);
    for ((seed, number), client) in each().zip(&mut *clients) {
        client.send(&get_bytes(len(number), seed)).unwrap();
    }
    for ((seed, number), client) in each().zip(clients) {
        client.take_download(len(number), seed).unwrap();
    }
}

/// Calls `swing` until the balancer has compared the loads `SOAK_S` times, once a second. Nothing may move meanwhile.
fn check_that_nothing_moves(cluster: &Cluster, kind: &str, mut swing: impl FnMut()) {
    rebalance_by(cluster, kind);
    let last = i64::try_from(lasts_s()).unwrap();
    let mut swings = 0;
    while rounds(cluster) < last {
        swing();
        swings += 1;
        assert_eq!(asked(cluster), 0, "connections were asked to move");
    }
    println!("rebalance = {kind:?}: {last} comparisons, {swings} swings of 15 %, no connection has moved");
    assert_eq!(moved(cluster), 0);
}

/// Each agent has 15 % more bytes than its share in turn, for seconds or for a minute.
#[test]
#[ignore = "long: make soak"]
fn soak_bytes_that_swing_by_15_percent_move_nothing() {
    let mut random = Random::new(seed("WATARI_NOISE_SEED"));
    let (cluster, mut clients) = placed([CLIENTS / 2; 2]);
    let (mut first, mut is_at_first) = (0, false);
    check_that_nothing_moves(&cluster, "load", || {
        is_at_first = !is_at_first;
        for _ in 0..=random.below(600) {
            let has_more = |client| (client < CLIENTS / 2) == is_at_first;
            request_all(&mut clients, first, |client| if has_more(client) { LEN + SWING } else { LEN - SWING });
            first += CLIENTS as u64;
            // The interval is the load itself.
            thread::sleep(INTERVAL);
        }
    });
}

/// Each agent has 15 % more connections than its share in turn, for some seconds.
#[test]
#[ignore = "long: make soak"]
fn soak_connections_that_come_and_go_move_nothing() {
    let mut random = Random::new(seed("WATARI_NOISE_SEED"));
    let (cluster, clients) = placed([MOST; 2]);
    let mut clients = clients.into_iter();
    let mut at: [Vec<_>; 2] = [clients.by_ref().take(MOST).collect(), clients.collect()];
    let mut agent = 0;
    check_that_nothing_moves(&cluster, "connections", || {
        agent = 1 - agent;
        at[agent].truncate(MOST - COMING);
        let few = [0, 1].map(|number| at[number].len());
        until("the clients have gone", || shares(&cluster) == few);
        let last = rounds(&cluster) + 4 + i64::try_from(random.below(6)).unwrap();
        until("the balancer has seen that", || {
            for clients in &mut at {
                download_all(clients, 1_000);
            }
            rounds(&cluster) >= last
        });
        // They come to the agent with fewer connections.
        at[agent].extend(connect(&cluster, COMING, download_first));
        assert_eq!(shares(&cluster), [MOST; 2]);
    });
}
