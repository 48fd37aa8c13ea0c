//! Each of the nine cipher suites, with `openssl s_client`, on connections that move.

use std::net::IpAddr;

use crate::clients::openssl::SClient;
use crate::harness::addresses::bulk_agent;
use crate::harness::ctl::Connection;
use crate::harness::pattern::pattern;
use crate::harness::site::SITE;
use crate::harness::{Cluster, Plan};

/// The name in OpenSSL, and in IANA's registry.
struct Suite(&'static str, &'static str);

const TLS12: [Suite; 6] = [
    Suite("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    Suite("ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    Suite("ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    Suite("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    Suite("ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    Suite("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
];

const TLS13: [&str; 3] = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

const LEN: u64 = 200_000;

#[test]
fn each_tls12_suite_moves() {
    let cluster = Cluster::start(&Plan::default());
    for Suite(openssl, iana) in TLS12 {
        check(&cluster, &["-tls1_2", "-cipher", openssl], ("TLS 1.2", iana));
    }
}

#[test]
fn each_tls13_suite_moves_with_both_kinds_of_key() {
    let cluster = Cluster::start(&Plan::default());
    for suite in TLS13 {
        for algorithm in ["rsa_pss_rsae_sha256", "ecdsa_secp256r1_sha256"] {
            check(&cluster, &["-tls1_3", "-ciphersuites", suite, "-sigalgs", algorithm], ("TLS 1.3", suite));
        }
    }
}

fn check(cluster: &Cluster, arguments: &[&str], agreed: (&str, &str)) {
    let mut moves = 0;
    for source in cluster.clients.two_of_each_agent() {
        let connection = converse(cluster, source, arguments);
        assert_eq!(connection.node, bulk_agent(source));
        assert_eq!(connection.moves, u32::from(connection.has_moved()));
        assert_eq!((connection.version.as_deref().unwrap(), connection.suite.as_deref().unwrap()), agreed);
        moves += connection.moves;
    }
    assert!(moves >= 3, "{moves} connections have moved");
}

/// Two requests on one connection.
fn converse(cluster: &Cluster, source: IpAddr, arguments: &[&str]) -> Connection {
    let arguments = [&["-quiet"], arguments].concat();
    let mut client = SClient::start(source, cluster.service, &cluster.site_ca(), &arguments);
    for seed in [1, 2] {
        client.send(format!("GET /bytes/{LEN}?{seed} HTTP/1.1\r\nhost: {SITE}\r\n\r\n").as_bytes());
        client.wait_for(&pattern(seed, 0..LEN));
    }
    cluster.connection_of(source)
}
