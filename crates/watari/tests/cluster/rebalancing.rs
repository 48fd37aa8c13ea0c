//! Connections that move by themselves, because agents have uneven loads.

use std::collections::HashMap;

use crate::clients::http::{Http, get_bytes};
use crate::clients::tls::{Taste, Tls};
use crate::harness::ctl::{drain, undrain};
use crate::harness::wait::until;
use crate::harness::{Cluster, Plan};

const CLIENTS: usize = 40;

/// A cluster of two agents, and clients that are all at the first.
fn uneven(dispatcher: &'static str) -> (Cluster, Vec<Http<Tls>>) {
    let cluster = Cluster::start(&Plan { agents: Some(&["a1", "a2"]), dispatcher, ..Plan::default() });
    let admin = cluster.dispatcher().admin();
    assert!(drain(&admin, "a2").wait().unwrap().success());
    let clients = (0..CLIENTS as u64).map(|seed| {
        let tls = Tls::to_site(cluster.clients.any(), cluster.service, &Taste::default()).unwrap();
        let mut http = Http::new(tls);
        http.download(1_000, seed).unwrap();
        http
    });
    let clients = clients.collect();
    until("all connections are at one agent", || shares(&cluster) == HashMap::from([("a1".to_owned(), CLIENTS)]));
    undrain(&admin, "a2");
    (cluster, clients)
}

/// The number of connections of each agent.
fn shares(cluster: &Cluster) -> HashMap<String, usize> {
    let mut shares = HashMap::new();
    for connection in cluster.connections() {
        *shares.entry(connection.node).or_default() += 1;
    }
    shares
}

fn asked(cluster: &Cluster) -> i64 {
    cluster.dispatcher().count("watari_dispatcher_rebalanced_total", "")
}

#[test]
fn connections_move_until_agents_have_the_same_number() {
    let (cluster, mut clients) = uneven("bulk = \"stay\"\nrebalance = \"connections\"");
    until("the agents have the same within 10 %", || {
        shares(&cluster).get("a2").is_some_and(|count| count.abs_diff(CLIENTS / 2) <= CLIENTS / 20)
    });
    for (seed, client) in (0..).zip(&mut clients) {
        client.download(10_000, seed).unwrap();
    }
    let moves = cluster.dispatcher().count("watari_dispatcher_moves_committed_total", "");
    assert!((18..=22).contains(&moves), "{moves} moves");
    assert_eq!(cluster.dispatcher().count("watari_dispatcher_connections_reset_total", ""), 0);
    assert!(asked(&cluster) <= 22, "no connection moves back and forth");
}

#[test]
fn connections_that_load_an_agent_move() {
    let (cluster, mut clients) = uneven("bulk = \"stay\"\nrebalance = \"load\"");
    let mut first = 0;
    until("the other agent gets some of the load", || {
        // All at a time, so that each second has the same load, also on a busy machine.
        for (seed, client) in (first..).zip(&mut clients) {
            client.send(&get_bytes(100_000, seed)).unwrap();
        }
        for (seed, client) in (first..).zip(&mut clients) {
            client.take_download(100_000, seed).unwrap();
        }
        first += CLIENTS as u64;
        shares(&cluster).get("a2").is_some_and(|count| *count >= CLIENTS / 4)
    });
    assert_eq!(cluster.dispatcher().count("watari_dispatcher_connections_reset_total", ""), 0);
}

#[test]
fn without_the_setting_connections_stay() {
    let (cluster, mut clients) = uneven("bulk = \"stay\"");
    for (seed, client) in (0..).zip(&mut clients) {
        client.download(10_000, seed).unwrap();
    }
    assert_eq!((asked(&cluster), shares(&cluster).len()), (0, 1));
}
