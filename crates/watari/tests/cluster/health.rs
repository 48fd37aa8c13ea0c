//! An agent whose process is stopped: its kernel still accepts legs and keeps links, but no client is served.

use crate::clients::http::Http;
use crate::clients::tls::{Taste, Tls};
use crate::harness::ctl;
use crate::harness::wait::{until, until_some};
use crate::harness::{AGENTS, Cluster, Plan};

const STOPPED: &str = "a2";

/// The dispatcher's state of [`STOPPED`]: whether it is available, and whether it is healthy.
fn shown(cluster: &Cluster) -> Option<(bool, bool)> {
    let nodes = ctl::nodes(&cluster.dispatcher().admin())?;
    let node = nodes.into_iter().find(|node| node.name == STOPPED)?;
    node.available.zip(node.healthy)
}

fn connect(cluster: &Cluster, agent: &str) -> (String, Http<Tls>) {
    let address = cluster.clients.served_by(agent);
    let mut client = Http::new(Tls::to_site(address, cluster.service, &Taste::default()).unwrap());
    client.download(10_000, 1).unwrap();
    (cluster.connection_of(address).node, client)
}

#[test]
fn an_agent_that_stands_gets_nothing_new_and_keeps_what_it_has() {
    let checks = Some("interval = \"100ms\"\ntimeout = \"1s\"\nfall = 2\nrise = 1");
    let cluster = Cluster::start(&Plan { checks, ..Plan::default() });
    let dispatcher = cluster.dispatcher();
    until("all agents have answered checks", || {
        AGENTS.iter().all(|agent| dispatcher.count("watari_dispatcher_agent_healthy", agent) == 1)
    });
    assert_eq!(shown(&cluster), Some((true, true)));
    let (node, mut resident) = connect(&cluster, STOPPED);
    assert_eq!(node, STOPPED);

    cluster.node(STOPPED).stop();
    // Its links are still up, for some seconds.
    let unhealthy = || shown(&cluster).filter(|(_, healthy)| !healthy);
    assert_eq!(until_some("the agent is found unhealthy", unhealthy), (false, false));
    assert_eq!(dispatcher.count("watari_dispatcher_agent_healthy", STOPPED), 0);
    assert!(dispatcher.log().lines().any(|line| line.contains("unhealthy") && line.contains("agent=a2")));
    let mut newcomers: Vec<_> = AGENTS.into_iter().chain([STOPPED]).map(|agent| connect(&cluster, agent)).collect();
    assert!(newcomers.iter().all(|(node, _)| node != STOPPED));

    cluster.node(STOPPED).go_on();
    until("the agent is found healthy", || shown(&cluster) == Some((true, true)));
    resident.download(1_000_000, 2).unwrap();
    assert_eq!(connect(&cluster, STOPPED).0, STOPPED);
    for (_, newcomer) in &mut newcomers {
        newcomer.download(10_000, 3).unwrap();
    }
}

/// The dispatcher does not try an agent that reports that it is full.
#[test]
fn an_agent_without_a_place_is_found_unhealthy_until_it_has_one() {
    let plan = Plan {
        checks: Some("interval = \"100ms\"\ntimeout = \"10s\"\nfall = 1\nrise = 1"),
        agent_limits: "connections_max = 1",
        dispatcher: "bulk = \"off\"",
        ..Plan::default()
    };
    let cluster = Cluster::start(&plan);
    let (node, client) = connect(&cluster, STOPPED);
    assert_eq!(node, STOPPED);
    until("the agent is found unhealthy", || shown(&cluster) == Some((false, false)));
    assert_ne!(connect(&cluster, STOPPED).0, STOPPED);
    drop(client);
    until("the agent is found healthy", || shown(&cluster) == Some((true, true)));
    assert_eq!(connect(&cluster, STOPPED).0, STOPPED);
}
