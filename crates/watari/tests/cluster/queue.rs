//! More clients than agents have slots for: some wait, in order.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::clients::http::Http;
use crate::clients::tls::{Taste, Tls, dial};
use crate::harness::wait::until;
use crate::harness::{AGENTS, Cluster, Plan};

const LENGTH: &str = "watari_dispatcher_queue_length";
const REFUSED: &str = "watari_dispatcher_connections_refused_total";

/// A cluster with one slot at each agent, all of them taken.
fn full(limits: &'static str) -> (Arc<Cluster>, Vec<Http<Tls>>) {
    let plan = Plan {
        dispatcher: "bulk = \"stay\"",
        of_each_agent: ", connections_max = 1",
        dispatcher_limits: limits,
        ..Plan::default()
    };
    let cluster = Arc::new(Cluster::start(&plan));
    let mut residents: Vec<_> = AGENTS.iter().map(|_| Http::new(connect(&cluster).unwrap())).collect();
    for resident in &mut residents {
        resident.download(1000, 1).unwrap();
    }
    (cluster, residents)
}

fn connect(cluster: &Cluster) -> io::Result<Tls> {
    Tls::to_site(cluster.clients.any(), cluster.service, &Taste::default())
}

/// Connects a client that has to wait, and returns when it waits.
fn enqueue(cluster: &Arc<Cluster>) -> JoinHandle<SocketAddr> {
    let before = length(cluster);
    let shared = cluster.clone();
    let waiting = thread::spawn(move || {
        let tls = connect(&shared).unwrap();
        let address = tls.tcp().local_addr().unwrap();
        Http::new(tls).download(100_000, 2).unwrap();
        address
    });
    until("the client waits", || length(cluster) == before + 1);
    waiting
}

fn length(cluster: &Cluster) -> i64 {
    cluster.dispatcher().count(LENGTH, "")
}

#[test]
fn clients_wait_for_places_in_their_order() {
    let (cluster, mut residents) = full("queue_max = 3\nqueue_timeout = \"60s\"");
    let first = enqueue(&cluster);
    let leaver = dial(cluster.clients.any(), cluster.service).unwrap();
    until("both wait", || length(&cluster) == 2);
    let last = enqueue(&cluster);
    assert!(connect(&cluster).is_err(), "the queue is full");
    assert_eq!(cluster.dispatcher().count(REFUSED, "queue_full"), 1);

    drop(leaver);
    until("who has left waits no more", || length(&cluster) == 2);
    assert_eq!(cluster.dispatcher().count(REFUSED, "client_gone"), 1);
    let another = enqueue(&cluster);

    residents.pop();
    first.join().unwrap();
    last.join().unwrap();
    another.join().unwrap();
    assert_eq!(length(&cluster), 0);
    assert_eq!(cluster.dispatcher().count("watari_dispatcher_queue_wait_seconds_count", ""), 3);
    for resident in &mut residents {
        resident.download(1000, 3).unwrap();
    }
}

#[test]
fn waits_are_bounded_and_need_a_queue() {
    let (cluster, _residents) = full("queue_max = 1\nqueue_timeout = \"200ms\"");
    assert!(connect(&cluster).is_err());
    assert_eq!(cluster.dispatcher().count(REFUSED, "queue_timeout"), 1);

    let (cluster, _residents) = full("");
    assert!(connect(&cluster).is_err());
    assert_eq!(cluster.dispatcher().count(REFUSED, "agents_full"), 1);
}
