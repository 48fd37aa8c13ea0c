//! A dispatcher is replaced by a new process, and its clients notice nothing.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::clients::http::{Fault, Http};
use crate::clients::tls::{TLS12, TLS13, Taste, Tls, dial};
use crate::harness::ctl::{self, order_move};
use crate::harness::node::{Node, WATARI};
use crate::harness::site::SITE;
use crate::harness::wait::until;
use crate::harness::{AGENTS, Cluster, Content, Plan};

pub(crate) const LARGE_LEN: u64 = 40_000_000;
pub(crate) const SMALL_LEN: u64 = 20_000;
/// The upgrades of each test with several.
pub(crate) const UPGRADES: usize = 5;

/// Limits with which a client can wait within a handshake for all upgrades of a test, also on a busy machine.
pub(crate) const PATIENT: &str = "handshake_timeout = \"1m\"";

fn files() -> Plan {
    let content = Content::Files(&[LARGE_LEN, SMALL_LEN]);
    Plan { content, agent_limits: PATIENT, dispatcher_limits: PATIENT, ..Plan::default() }
}

pub(crate) fn get(len: u64) -> Vec<u8> {
    format!("GET /{len}.bin HTTP/1.1\r\nhost: {SITE}\r\n\r\n").into_bytes()
}

pub(crate) fn fetch(http: &mut Http<Tls>, len: u64) {
    http.send(&get(len)).unwrap();
    http.take_download(len, len).unwrap();
}

pub(crate) fn client(cluster: &Cluster, taste: &Taste) -> (IpAddr, Http<Tls>) {
    let ip = cluster.clients.any();
    (ip, Http::new(Tls::to_site(ip, cluster.service, taste).unwrap()))
}

/// A client that has sent a part of its first flight.
pub(crate) struct Beginner {
    tls: ClientConnection,
    tcp: TcpStream,
    flight: Vec<u8>,
}

impl Beginner {
    pub(crate) fn begin(cluster: &Cluster, taste: &Taste) -> Self {
        let mut tls = ClientConnection::new(taste.config(), ServerName::try_from(SITE).unwrap()).unwrap();
        let mut flight = Vec::new();
        tls.write_tls(&mut flight).unwrap();
        let mut tcp = dial(cluster.clients.any(), cluster.service).unwrap();
        let rest = flight.split_off(flight.len() / 2);
        tcp.write_all(&flight).unwrap();
        Self { tls, tcp, flight: rest }
    }

    /// Sends the rest, does the handshake and gets a file.
    pub(crate) fn finish(mut self) -> Http<StreamOwned<ClientConnection, TcpStream>> {
        self.tcp.write_all(&self.flight).unwrap();
        let mut http = Http::new(StreamOwned::new(self.tls, self.tcp));
        http.send(&get(SMALL_LEN)).unwrap();
        http.take_download(SMALL_LEN, SMALL_LEN).unwrap();
        http
    }
}

/// No process of the dispatcher has reset a connection. The log is that of all of them.
pub(crate) fn check_nothing_was_reset(cluster: &Cluster) {
    let log = cluster.dispatcher().log();
    let resets: Vec<_> = log.lines().filter(|line| line.contains(": connection reset ")).collect();
    assert!(resets.is_empty(), "{resets:#?}");
}

#[test]
fn connections_in_every_state_go_on_in_a_new_process() {
    let cluster = Cluster::start(&files());
    let tastes = [&TLS12, &TLS13].map(|version| Taste { version, ..Taste::default() });
    let mut idle: Vec<_> = tastes.iter().map(|taste| client(&cluster, taste)).collect();
    for (_, http) in &mut idle {
        fetch(http, SMALL_LEN);
    }
    let ids = |cluster: &Cluster| idle_ids(cluster, &idle.iter().map(|(ip, _)| *ip).collect::<Vec<_>>());
    let before = ids(&cluster);
    let (_, mut download) = client(&cluster, &tastes[1]);
    download.send(&get(LARGE_LEN)).unwrap();
    assert_eq!(download.read_head().unwrap().len().unwrap(), LARGE_LEN);
    let step = LARGE_LEN / (UPGRADES as u64 + 1);
    let mut beginners = Vec::new();
    for number in 0..UPGRADES as u64 {
        download.check_body(number * step..(number + 1) * step, LARGE_LEN, LARGE_LEN).unwrap();
        beginners.push(Beginner::begin(&cluster, &tastes[1]));
        cluster.dispatcher().upgrade(None).unwrap();
        cluster.wait_until_whole();
    }
    assert_eq!(ids(&cluster), before, "they are the same connections");
    download.check_body(UPGRADES as u64 * step..LARGE_LEN, LARGE_LEN, LARGE_LEN).unwrap();
    fetch(&mut download, SMALL_LEN);
    for beginner in beginners {
        beginner.finish();
    }
    for (_, http) in &mut idle {
        fetch(http, SMALL_LEN);
    }
    fetch(&mut client(&cluster, &tastes[0]).1, SMALL_LEN);

    // They move as before.
    for (ip, http) in &mut idle {
        let connection = cluster.connection_of(*ip);
        let target = AGENTS.into_iter().find(|agent| *agent != connection.node).unwrap();
        order_move(&cluster.dispatcher().admin(), &connection.id, target).unwrap();
        until("the connection has moved", || cluster.connection_of(*ip).node == target);
        fetch(http, SMALL_LEN);
    }
    check_nothing_was_reset(&cluster);
}

fn idle_ids(cluster: &Cluster, clients: &[IpAddr]) -> Vec<(String, String, u32)> {
    let known = clients.iter().map(|ip| cluster.connection_of(*ip));
    known.map(|connection| (connection.id, connection.node, connection.moves)).collect()
}

/// Clients of every kind, with these tastes in turn, keep a node busy while it is upgraded so many times: no request
/// fails, and no byte is wrong. `get` requests so many bytes.
pub(crate) fn upgrade_under_load(
    cluster: &Cluster,
    node: &Node,
    tastes: &[Taste],
    upgrades: usize,
    get: fn(u64) -> Vec<u8>,
) {
    let fetch = |http: &mut Http<Tls>, len: u64| {
        http.send(&get(len)).unwrap();
        http.take_download(len, len).unwrap();
    };
    let (is_over, requests) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for number in 0..6 {
            let (is_over, requests, taste) = (&is_over, &requests, &tastes[number % tastes.len()]);
            scope.spawn(move || {
                let mut http = client(cluster, taste).1;
                while !is_over.load(Relaxed) {
                    // Two clients connect for each request. Half of those that stay download much.
                    if number < 2 {
                        http = client(cluster, taste).1;
                    }
                    fetch(&mut http, if number < 4 { SMALL_LEN } else { LARGE_LEN });
                    requests.fetch_add(1, Relaxed);
                }
            });
        }
        // Also if an upgrade fails.
        let upgrades = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..upgrades {
                let begun = requests.load(Relaxed);
                until("clients are served", || requests.load(Relaxed) > begun + 20);
                node.upgrade(None).unwrap();
            }
        }));
        is_over.store(true, Relaxed);
        upgrades.unwrap();
    });
    check_nothing_was_reset(cluster);
}

#[test]
fn a_busy_dispatcher_is_upgraded_again_and_again() {
    let cluster = Cluster::start(&files());
    upgrade_under_load(&cluster, cluster.dispatcher(), &[Taste::default()], 2 * UPGRADES, get);
}

/// A program for an upgrade: a shell script.
pub(crate) fn script(cluster: &Cluster, name: &str, text: &str) -> PathBuf {
    let path = cluster.dir().join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_successor_that_fails_changes_nothing() {
    let cluster = Cluster::start(&files());
    let dispatcher = cluster.dispatcher();
    let (ip, mut http) = client(&cluster, &Taste::default());
    fetch(&mut http, SMALL_LEN);
    let before = cluster.connection_of(ip);
    let broken = |program: PathBuf, reason: &str| {
        let refused = dispatcher.upgrade(Some(&program)).unwrap_err();
        assert!(refused.contains(reason), "{refused}");
    };
    broken("/nonexistent/watari".into(), "cannot start /nonexistent/watari: No such file");
    broken("/bin/false".into(), "has ended before it was ready");
    // It gets listeners, and cannot take a connection: it has too few descriptors for one.
    let few = format!("ulimit -n 48\nexec {WATARI} \"$@\"");
    assert!(dispatcher.upgrade(Some(&script(&cluster, "few", &few))).is_err());
    let config = fs::read_to_string(dispatcher.config()).unwrap();
    dispatcher.configure(|text| text + "\nnonsense = 1\n");
    broken(WATARI.into(), "has ended before it was ready");
    assert!(dispatcher.log().contains("nonsense"), "the reason is in the log");
    dispatcher.configure(|_| config);

    fetch(&mut http, SMALL_LEN);
    assert_eq!(cluster.connection_of(ip), before);
    fetch(&mut client(&cluster, &Taste::default()).1, SMALL_LEN);
    dispatcher.upgrade(None).unwrap();
    fetch(&mut http, SMALL_LEN);
    fetch(&mut client(&cluster, &Taste::default()).1, SMALL_LEN);
}

/// The number of lost connections in the sentence of a failed upgrade.
pub(crate) fn lost(refused: &str) -> usize {
    let lost = refused.split("after it took ").nth(1).and_then(|text| text.split(' ').next());
    lost.map_or(0, |lost| lost.parse().unwrap())
}

/// Gets a file on each connection. Returns how many of them were reset.
pub(crate) fn count_resets(clients: &mut [Http<Tls>]) -> usize {
    let mut are_reset = 0;
    for http in clients {
        let sent = http.send(&get(SMALL_LEN));
        match sent.and_then(|()| http.take_download(SMALL_LEN, SMALL_LEN)) {
            Ok(()) => {}
            Err(Fault::Broken(_)) => are_reset += 1,
            Err(fault) => panic!("{fault:?}"),
        }
    }
    are_reset
}

/// A successor that runs out of descriptors in the middle ends with the connections that it has. They end by a reset,
/// and all others go on.
#[test]
fn a_successor_that_fails_halfway_loses_only_what_it_has() {
    const CLIENTS: usize = 300;
    let cluster = Cluster::start(&files());
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| client(&cluster, &Taste::default()).1).collect();
    for http in &mut clients {
        fetch(http, SMALL_LEN);
    }
    let few = format!("ulimit -n {CLIENTS}\nexec {WATARI} \"$@\"");
    let refused = cluster.dispatcher().upgrade(Some(&script(&cluster, "few", &few))).unwrap_err();
    let lost = lost(&refused);
    assert!((1..CLIENTS).contains(&lost), "{refused}");
    assert_eq!(count_resets(&mut clients), lost);
    fetch(&mut client(&cluster, &Taste::default()).1, SMALL_LEN);
    cluster.dispatcher().upgrade(None).unwrap();
    fetch(&mut client(&cluster, &Taste::default()).1, SMALL_LEN);
}

/// The administration socket may move to another path, and clients to more threads.
#[test]
fn a_successor_has_another_configuration() {
    let cluster = Cluster::start(&files());
    let dispatcher = cluster.dispatcher();
    let (_, mut http) = client(&cluster, &Taste::default());
    fetch(&mut http, SMALL_LEN);
    let config = fs::read_to_string(dispatcher.config()).unwrap();
    let other = config.replace("d1.sock", "other.sock").replace("[dispatcher]\n", "[dispatcher]\nthreads = 5\n");
    assert_ne!(config, other);
    dispatcher.configure(|_| other);
    let old = dispatcher.admin();
    ctl::upgrade(&old, None).unwrap();
    let new = cluster.dir().join("other.sock");
    until("the new process answers", || ctl::pid(&new).is_some());
    until("the previous process ends", || !dispatcher.is_running());
    assert!(!old.exists());
    fetch(&mut http, SMALL_LEN);
    for _ in 0..10 {
        fetch(&mut client(&cluster, &Taste::default()).1, SMALL_LEN);
    }
    let pid = ctl::pid(&new).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    until("its socket is gone", || !new.exists());
}
