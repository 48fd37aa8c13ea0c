//! More clients than a node's limits allow.

use std::io::{self, Read};

use crate::clients::curl::{Curl, Manner};
use crate::clients::http::{Http, get_bytes};
use crate::clients::tls::{Taste, Tls, dial};
use crate::harness::site::KeyKind;
use crate::harness::wait::until;
use crate::harness::{Cluster, Plan};

/// Connects as many clients as fit, checks that a further one is reset, and that the others are not disturbed.
fn check(cluster: &Cluster, connections_max: usize, refused: impl Fn() -> i64) {
    let connect = || Tls::to_site(cluster.clients.any(), cluster.service, &Taste::default());
    let mut clients: Vec<_> = (0..connections_max).map(|_| Http::new(connect().unwrap())).collect();
    for client in &mut clients {
        client.download(1000, 1).unwrap();
    }
    let error = connect().err().expect("no place is left");
    let expected = [io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof, io::ErrorKind::BrokenPipe];
    assert!(expected.contains(&error.kind()), "{error:?}");
    assert!(refused() > 0);
    for client in &mut clients {
        client.download(1000, 2).unwrap();
    }

    clients.pop();
    let mut latest = None;
    until("a place is free again", || {
        latest = connect().ok();
        latest.is_some()
    });
    Http::new(latest.unwrap()).download(1000, 3).unwrap();
}

#[test]
fn a_dispatcher_resets_clients_over_its_limit() {
    let cluster = Cluster::start(&Plan { dispatcher_limits: "connections_max = 6", ..Plan::default() });
    check(&cluster, 6, || cluster.dispatcher().count("watari_dispatcher_connections_refused_total", "full"));
}

/// A client is refused if its handshake would go to the full agent. A client with a handshake at another agent stays
/// there, because a move that is not possible costs nothing.
#[test]
fn an_agent_over_its_limit_takes_no_client_and_nothing_is_lost() {
    let cluster = Cluster::start(&Plan { agent_limits: "connections_max = 5", ..Plan::default() });
    let connect = || {
        let source = cluster.clients.served_by("a2");
        let mut client = Http::new(Tls::to_site(source, cluster.service, &Taste::default())?);
        client.download(1000, 1).unwrap();
        Ok::<_, io::Error>((cluster.connection_of(source), client))
    };
    let mut residents: Vec<_> = (0..5).map(|_| connect().unwrap()).collect();
    assert!(residents.iter().all(|(connection, _)| connection.node == "a2"));

    let newcomers = [connect(), connect(), connect()];
    let (stayed, refused): (Vec<_>, Vec<_>) = newcomers.into_iter().partition(Result::is_ok);
    assert_eq!((stayed.len(), refused.len()), (2, 1));
    for newcomer in stayed {
        let (connection, client) = newcomer.unwrap();
        assert_eq!(connection.moves, 0);
        residents.push((connection, client));
    }
    assert_eq!(cluster.node("a2").count("watari_agent_legs_refused_total", "full"), 1);
    assert_eq!(cluster.node("a2").count("watari_agent_holds_refused_total", "full"), 2);
    assert_eq!(cluster.count_on_agents("watari_agent_not_moved_total", "full"), 2);
    for (_, client) in &mut residents {
        client.download(1000, 2).unwrap();
    }
}

/// The silent client connects after the other one. So the other's handshake has had its full time when the silent
/// client is closed.
#[test]
fn a_dispatcher_closes_only_clients_without_a_handshake() {
    let cluster = Cluster::start(&Plan { dispatcher_limits: "handshake_timeout = \"3s\"", ..Plan::default() });
    let stays = cluster.clients.served_by("a1");
    let mut client = Http::new(Tls::to_site(stays, cluster.service, &Taste::default()).unwrap());
    let mut silent = dial(cluster.clients.any(), cluster.service).unwrap();
    assert_eq!(silent.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(cluster.dispatcher().count("watari_dispatcher_connections_given_up_total", "handshake_timeout"), 1);
    client.download(1000, 1).unwrap();
}

#[test]
fn a_dispatcher_resets_clients_of_an_address_that_has_its_share() {
    let cluster = Cluster::start(&Plan { dispatcher_limits: "connections_per_client_max = 2", ..Plan::default() });
    let greedy = cluster.clients.served_by("a1");
    let connect = |source| Tls::to_site(source, cluster.service, &Taste::default()).map(Http::new);
    let mut clients = [connect(greedy).unwrap(), connect(greedy).unwrap()];
    assert!(connect(greedy).is_err());
    assert_eq!(cluster.dispatcher().count("watari_dispatcher_connections_refused_total", "client_full"), 1);
    let mut other = connect(cluster.clients.served_by("a2")).unwrap();
    for client in clients.iter_mut().chain([&mut other]) {
        client.download(1000, 1).unwrap();
    }
}

/// A response is in progress until its client has read it.
#[test]
fn an_agent_with_all_requests_in_progress_says_so() {
    let cluster = Cluster::start(&Plan { agent_limits: "requests_max = 1", ..Plan::default() });
    let source = cluster.clients.served_by("a1");
    let connect = || Http::new(Tls::to_site(source, cluster.service, &Taste::default()).unwrap());
    let (mut slow, mut other) = (connect(), connect());
    let len = 50_000_000;
    slow.send(&get_bytes(len, 1)).unwrap();
    slow.read_head().unwrap();

    other.send(&get_bytes(10, 2)).unwrap();
    let refused = other.read_head().unwrap();
    assert_eq!(refused.status, 503);
    take_body(&mut other, refused.len().unwrap());
    assert_eq!(cluster.node("a1").count("watari_agent_requests_refused_total", ""), 1);

    take_body(&mut slow, len);
    until("the place is free again", || {
        other.send(&get_bytes(10, 2)).unwrap();
        let head = other.read_head().unwrap();
        take_body(&mut other, head.len().unwrap());
        head.status == 200
    });
}

#[test]
fn heads_may_be_so_large_in_any_version_of_http() {
    let agent_limits = "head_bytes_max = 10000\nhead_fields_max = 50\ntarget_bytes_max = 1000";
    let cluster = Cluster::start(&Plan { agent_limits, agents: Some(&["a1"]), ..Plan::default() });
    let (ca, dir, service) = (cluster.site_ca(), cluster.dir(), cluster.service);
    let target = |len: usize| format!("/bytes/10?{:0>digits$}", 1, digits = len - "/bytes/10?".len());
    let field = |len| vec![format!("x: {}", "y".repeat(len))];
    for http in ["1.1", "2"] {
        let manner = Manner { http, tls: "1.3", key: KeyKind::P256 };
        for (target, fields, status) in [
            (target(1000), Vec::new(), 200),
            (target(1001), Vec::new(), 414),
            (target(20), vec!["x: y".to_owned(); 40], 200),
            (target(20), vec!["x: y".to_owned(); 51], 431),
            (target(20), field(9000), 200),
            (target(20), field(11_000), 431),
        ] {
            let arguments: Vec<&str> = fields.iter().flat_map(|field| ["--header", field]).collect();
            let answer = Curl { manner, source: cluster.clients.any(), service, ca: &ca, dir }.run(&target, &arguments);
            assert_eq!((answer.status, answer.http.as_str()), (status, http), "{} fields", fields.len());
        }
    }
}

/// After a 414, the client may send another request on the connection.
#[test]
fn a_target_that_is_too_long_costs_no_connection() {
    let cluster = Cluster::start(&Plan { agents: Some(&["a1"]), ..Plan::default() });
    let mut client = Http::new(Tls::to_site(cluster.clients.any(), cluster.service, &Taste::default()).unwrap());
    client.send(format!("GET /{} HTTP/1.1\r\nhost: site.test\r\n\r\n", "x".repeat(20_000)).as_bytes()).unwrap();
    let refused = client.read_head().unwrap();
    assert_eq!(refused.status, 414);
    take_body(&mut client, refused.len().unwrap());
    client.download(1000, 1).unwrap();
}

fn take_body(client: &mut Http<Tls>, len: u64) {
    let mut left = len;
    while left > 0 {
        left -= client.read_piece(1 << 20).unwrap().len() as u64;
    }
}
