//! `KeyUpdate` (RFC 8446, section 4.6.3) around a move, and its absence in TLS 1.2.
//!
//! `disturbed` tests a `KeyUpdate` that arrives while a move is undecided.

use std::io::Write;
use std::net::IpAddr;

use crate::clients::http::{Http, get_bytes};
use crate::clients::openssl::SClient;
use crate::clients::tls::{Taste, Tls};
use crate::harness::pattern::pattern;
use crate::harness::site::SITE;
use crate::harness::{Cluster, Plan};

/// Has clients `converse`, one after the other, and checks that many of their connections have moved.
fn check(converse: impl Fn(&Cluster, IpAddr)) {
    let cluster = Cluster::start(&Plan::default());
    cluster.clients.two_of_each_agent().into_iter().for_each(|source| converse(&cluster, source));
    let moves = cluster.dispatcher().count("watari_dispatcher_moves_committed_total", "");
    assert!(moves >= 3, "{moves} connections have moved");
}

/// The client changes its keys right behind its Finished. The source has not opened that record, so the target has to.
#[test]
fn a_key_update_moves_unopened() {
    check(|cluster, source| {
        let update = |session: &mut rustls::ClientConnection| {
            session.refresh_traffic_keys().unwrap();
            session.writer().write_all(&get_bytes(50_000, 1)).unwrap();
        };
        let stream = Tls::to_site_saying(source, cluster.service, &Taste::default(), update).unwrap();
        let mut client = Http::new(stream);
        client.take_download(50_000, 1).unwrap();
        client.download(50_000, 2).unwrap();
    });
}

#[test]
fn many_key_updates_after_the_move_are_followed() {
    check(|cluster, source| {
        let mut client = Http::new(Tls::to_site(source, cluster.service, &Taste::default()).unwrap());
        for seed in 0..20 {
            client.download(10_000, seed).unwrap();
            client.stream.session().refresh_traffic_keys().unwrap();
        }
    });
}

/// `K` requests a change of the server's keys as well, `k` does not.
#[test]
fn the_server_answers_a_requested_key_update_with_its_own() {
    check(|cluster, source| {
        let mut client = SClient::start(source, cluster.service, &cluster.site_ca(), &["-tls1_3", "-msg"]);
        for (seed, command) in [(1, b"k\n"), (2, b"K\n"), (3, b"K\n")] {
            get(&mut client, seed);
            client.send(command);
            client.wait_for_notice("KEYUPDATE");
        }
        get(&mut client, 4);
        client.send(b"Q\n");
        let printed = client.finish();
        let sent = printed.matches(">>> TLS 1.3, Handshake [length 0005], KeyUpdate").count();
        let received = printed.matches("<<< TLS 1.3, Handshake [length 0005], KeyUpdate").count();
        assert_eq!((sent, received), (3, 2), "{printed}");
    });
}

/// RFC 5246, section 7.2.2. OpenSSL treats the refusal as the end of the connection, as it may.
#[test]
fn renegotiation_is_refused() {
    check(|cluster, source| {
        let mut client = SClient::start(source, cluster.service, &cluster.site_ca(), &["-tls1_2", "-msg"]);
        get(&mut client, 1);
        client.send(b"R\n");
        client.wait_for_notice("no renegotiation");
        let printed = client.finish();
        assert!(printed.contains("<<< TLS 1.2, Alert [length 0002], warning no_renegotiation"), "{printed}");
    });
}

fn get(client: &mut SClient, seed: u64) {
    client.send(format!("GET /bytes/4000?{seed} HTTP/1.1\r\nhost: {SITE}\r\n\r\n").as_bytes());
    client.wait_for(&pattern(seed, 0..4000));
}
