//! More clients than a node is made for.

use std::io;

use crate::clients::http::Http;
use crate::clients::tls::{Taste, Tls};
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

/// A client is refused where its handshake would go to the agent that is full; one whose handshake another agent did
/// stays there, for a move that cannot be costs nothing.
#[test]
fn an_agent_over_its_limit_takes_nobody_and_nothing_is_lost() {
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
