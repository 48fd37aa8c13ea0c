//! The service over IPv6, beside IPv4.

use std::net::{IpAddr, Ipv6Addr};

use crate::clients::curl::{Curl, Manner};
use crate::clients::http::Http;
use crate::clients::tls::{Taste, Tls};
use crate::harness::addresses::bulk_agent;
use crate::harness::pattern::pattern;
use crate::harness::{AGENTS, Cluster, Plan};

const CLIENT: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

#[test]
fn both_listeners_serve_and_connections_of_both_families_move() {
    let cluster = Cluster::start(&Plan::default());
    // The single IPv6 address selects one agent for the data. The handshakes go to the agents in turn.
    for _ in AGENTS {
        let mut client = Http::new(Tls::to_site(CLIENT, cluster.service_v6, &Taste::default()).unwrap());
        client.download(100_000, 1).unwrap();
        let connection = cluster.connections().pop().unwrap();
        assert_eq!(connection.client, client.stream.tcp().local_addr().unwrap());
        assert_eq!(connection.node, bulk_agent(CLIENT));
        let fields = client.get_text("/headers", "").unwrap();
        assert!(fields.contains("for=\"[::1]"), "the origin is told the client's address: {fields}");
        drop(client);
        cluster.wait_until_idle();
    }
    assert_eq!(cluster.dispatcher().count("watari_dispatcher_moves_committed_total", ""), 2);

    let source = cluster.clients.any();
    let mut client = Http::new(Tls::to_site(source, cluster.service, &Taste::default()).unwrap());
    client.download(100_000, 2).unwrap();
    assert_eq!(cluster.connection_of(source).node, bulk_agent(source));
}

#[test]
fn curl_speaks_ipv6() {
    let cluster = Cluster::start(&Plan::default());
    let (ca, dir) = (cluster.site_ca(), cluster.dir());
    for manner in Manner::all() {
        let curl = Curl { manner, source: CLIENT, service: cluster.service_v6, ca: &ca, dir };
        let answer = curl.run("/bytes/1000000?3", &[]);
        assert_eq!(answer.status, 200);
        assert!(answer.body == pattern(3, 0..1_000_000), "{manner:?}");
    }
}
