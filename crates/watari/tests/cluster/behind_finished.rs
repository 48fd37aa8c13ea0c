//! Data in the same write as the client's Finished: the connection moves with them, unopened.

use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::ClientConnection;

use crate::clients::http::{Http, get_bytes, put};
use crate::clients::tls::{TLS13, Taste, Tls, dial};
use crate::harness::pattern::pattern;
use crate::harness::site::{KeyKind, SITE};
use crate::harness::{AGENTS, Cluster, Plan, SharedCluster};

static SHARED: SharedCluster = SharedCluster::new();

fn cluster() -> Arc<Cluster> {
    SHARED.get(&Plan::default())
}

/// Attempts at a move that happens as the test needs it: the dispatcher selects the agent of a handshake.
const ATTEMPTS_MAX: usize = 30;

/// Connects to the service from `source`, with `bytes` right behind the Finished. Only in TLS 1.3 does a full handshake
/// end with the client's Finished.
fn connect_saying(cluster: &Cluster, source: IpAddr, key: KeyKind, bytes: &[u8]) -> Http<Tls> {
    let taste = Taste { version: &TLS13, key, identity: None };
    let say = |session: &mut ClientConnection| session.writer().write_all(bytes).unwrap();
    Http::new(Tls::to_site_saying(source, cluster.service, &taste, say).unwrap())
}

#[test]
fn a_request_right_behind_finished_is_answered_by_the_target() {
    let cluster = cluster();
    for agent in AGENTS {
        for key in KeyKind::BOTH {
            let moved = (0..ATTEMPTS_MAX).any(|_| {
                let source = cluster.clients.served_by(agent);
                let mut client = connect_saying(&cluster, source, key, &get_bytes(100_000, 5));
                client.take_download(100_000, 5).unwrap();
                let connection = cluster.connection_of(source);
                assert_eq!(connection.node, agent);
                client.download(10, 6).unwrap();
                connection.has_moved()
            });
            assert!(moved);
        }
    }
}

/// A handshake that resumes a session ends with the client's Finished in TLS 1.2, too.
#[test]
fn a_request_right_behind_the_finished_of_a_resumed_session_moves() {
    let cluster = Cluster::start(&Plan::default());
    for taste in Taste::all() {
        let config = taste.resuming_config();
        // Handshakes go to the agents in turn.
        for agent in ["a1", "a2", "a3"] {
            let source = cluster.clients.served_by("a2");
            let tcp = dial(source, cluster.service).unwrap();
            let say = |session: &mut ClientConnection| session.writer().write_all(&get_bytes(50_000, 8)).unwrap();
            let mut client = Http::new(Tls::connect(tcp, config.clone(), SITE, say).unwrap());
            client.take_download(50_000, 8).unwrap();
            let connection = cluster.connection_of(source);
            assert_eq!(connection.resumed, Some(agent != "a1"));
            assert_eq!((connection.handshake_node.as_str(), connection.node.as_str()), (agent, "a2"));
        }
    }
}

#[test]
fn pipelined_requests_are_all_answered_in_order() {
    let cluster = cluster();
    let requests = 30;
    let pipeline: Vec<u8> = (0..requests).flat_map(|seed| get_bytes(seed * 1000, seed)).collect();
    let moved = (0..ATTEMPTS_MAX).any(|_| {
        let source = cluster.clients.any();
        let mut client = connect_saying(&cluster, source, KeyKind::P256, &pipeline);
        for seed in 0..requests {
            client.take_download(seed * 1000, seed).unwrap();
        }
        cluster.connection_of(source).has_moved()
    });
    assert!(moved);
}

/// The dispatcher has relayed more of the upload than the source has read when it proposes the move. So the dispatcher
/// gives the source the cut (Freeze), and the source ships the bytes up to it (Rest).
#[test]
fn an_upload_right_behind_finished_moves_with_its_rest() {
    let cluster = cluster();
    let rests = || cluster.count_on_agents("watari_mesh_messages_received_total", "rest");
    let freezes = || cluster.count_on_agents("watari_mesh_messages_received_total", "freeze");
    let before = (freezes(), rests());
    let body = pattern(11, 0..3_000_000);
    let frozen = (0..ATTEMPTS_MAX).any(|_| {
        let source = cluster.clients.any();
        let mut client = connect_saying(&cluster, source, KeyKind::Rsa2048, &put(&body));
        client.take_receipt(&body).unwrap();
        let moved = cluster.connection_of(source).has_moved();
        client.download(1000, 3).unwrap();
        moved && freezes() > before.0 && rests() > before.1
    });
    assert!(frozen, "no upload was cut by a freeze");
}
