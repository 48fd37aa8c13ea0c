//! Nodes that join without a configuration for them, and nodes that are evicted.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustls::ClientConfig;
use watari_wire::{LinkMessage, Member, Members};

use crate::clients::guest::{Guest, name};
use crate::clients::tls::Taste;
use crate::harness::node::Node;
use crate::harness::wait::until;
use crate::harness::{AGENTS, Cluster, DISPATCHER, GUEST_AGENT, NEWCOMER, NODES, Plan, ctl};
use crate::sessions::{Visit, visit};

/// The reason why `other` is a member, from the list of `node`.
fn member(node: &Node, other: &str) -> Option<String> {
    ctl::nodes(&node.admin()).unwrap().into_iter().find(|line| line.name == other)?.member
}

fn links(node: &Node) -> i64 {
    node.count("watari_mesh_links_up", "")
}

fn seeds(node: &Node) -> u64 {
    ctl::sessions(&node.admin()).unwrap()["seeds"].as_u64().unwrap()
}

/// Checks that every visit is at one of these agents and resumes, and that each of them is visited. The dispatcher
/// selects them in turn, but a change of members disturbs the order.
fn is_known_at(cluster: &Cluster, client: &Arc<ClientConfig>, agents: &[&str]) {
    let mut visited = BTreeSet::new();
    for _ in 0..2 * agents.len() {
        let Visit { agent, resumed } = visit(cluster, client);
        assert!(resumed && agents.contains(&&*agent), "{agent}: {resumed}");
        visited.insert(agent);
    }
    assert_eq!(visited.len(), agents.len(), "{visited:?}");
}

/// A seed that dials all others, and one that dials none.
#[test]
fn nodes_that_know_one_seed_find_all_others() {
    for seed in ["a1", DISPATCHER] {
        let cluster =
            Cluster::start(&Plan { seeds: if seed == "a1" { &["a1"] } else { &[DISPATCHER] }, ..Plan::default() });
        for node in NODES {
            for other in NODES.into_iter().filter(|other| *other != node) {
                let expected = if other == seed { "configured" } else { "learned" };
                assert_eq!(member(cluster.node(node), other).as_deref(), Some(expected), "{other} at {node}");
            }
        }
        let client = Taste::all()[0].resuming_config();
        visit(&cluster, &client);
        // The seed restarts without its list of members. The others have it in theirs.
        cluster.begin_anew(&[seed], Node::kill);
        is_known_at(&cluster, &client, &AGENTS);
        let learned = |node: &str| cluster.node(node).count("watari_mesh_members", "learned");
        assert_eq!(NODES.map(learned), NODES.map(|node| if node == seed { 3 } else { 2 }));
    }
}

/// No configuration names it. The dispatcher gives it clients, and it resumes their sessions. Then it leaves again.
#[test]
fn an_agent_comes_and_goes_with_nothing_changed_anywhere() {
    let cluster = Cluster::start(&Plan { seeds: &["a2"], dispatcher: "discover = true", ..Plan::default() });
    let clients: Vec<_> = Taste::all().iter().map(Taste::resuming_config).collect();
    for client in &clients {
        visit(&cluster, client);
    }
    let newcomer = cluster.newcomer();
    let is_available = || {
        let nodes = ctl::nodes(&cluster.dispatcher().admin()).unwrap();
        nodes.iter().any(|node| node.name == NEWCOMER && node.available == Some(true))
    };
    newcomer.start();
    until("it has found the others, and the dispatcher gives it clients", || {
        newcomer.metrics().is_ok_and(|metrics| metrics.sum("watari_mesh_links_up", "") == 4) && is_available()
    });
    until("it knows the keys", || seeds(newcomer) == seeds(cluster.node("a1")));
    for client in &clients {
        is_known_at(&cluster, client, &["a1", "a2", "a3", NEWCOMER]);
    }
    assert_eq!(newcomer.count("watari_agent_sessions_missed_total", ""), 0);
    newcomer.kill();
    until("the others have lost it", || !is_available() && NODES.iter().all(|node| links(cluster.node(node)) == 3));
    for client in &clients {
        is_known_at(&cluster, client, &AGENTS);
    }
    assert_eq!(member(cluster.node("a1"), NEWCOMER).as_deref(), Some("learned"), "it may come back");
}

/// The order goes to an agent, and to a dispatcher, with the join rule `configured` and with `certified`.
#[test]
fn an_evicted_agent_is_refused_everywhere_and_gets_no_new_keys() {
    for (seeds_of_cluster, node) in [(&["a1"][..], "a3"), (&[], DISPATCHER)] {
        let cluster = Cluster::start(&Plan { seeds: seeds_of_cluster, ..Plan::default() });
        let clients: Vec<_> = Taste::all().iter().map(Taste::resuming_config).collect();
        for client in &clients {
            visit(&cluster, client);
        }
        let (evicted, left) = (cluster.node("a2"), ["a1", "a3"]);
        let (before, known) = (seeds(evicted), left.map(|agent| seeds(cluster.node(agent))));
        let refused = ctl::membership(&cluster.node(node).admin(), "evict", node).unwrap_err();
        assert!(refused.contains("a node cannot evict itself"), "{refused}");
        ctl::membership(&cluster.node(node).admin(), "evict", "a2").unwrap();
        until("its links have ended, and the others have new keys", || {
            links(evicted) == 0 && left.iter().zip(known).all(|(agent, known)| seeds(cluster.node(agent)) == known + 1)
        });
        for node in NODES.iter().filter(|node| **node != "a2") {
            assert_eq!(member(cluster.node(node), "a2").as_deref(), Some("evicted"), "at {node}");
            assert_eq!((links(cluster.node(node)), cluster.node(node).count("watari_mesh_evicted", "")), (2, 1));
        }
        assert_eq!(seeds(evicted), before);
        assert!(evicted.log().contains("this node is evicted from the cluster"));
        for client in &clients {
            is_known_at(&cluster, client, &left);
        }

        evicted.kill();
        evicted.start();
        let refusals = || {
            let others = NODES.iter().filter(|node| **node != "a2").map(|node| cluster.node(node));
            others.map(|node| node.count("watari_mesh_connections_refused_total", "evicted")).sum::<i64>()
        };
        let so_far = refusals();
        until("it is refused again", || refusals() > so_far + 1);
        until("it has keys of its own", || ctl::sessions(&evicted.admin()).is_some_and(|shown| shown["seeds"] == 1));
        let learned = || evicted.count("watari_agent_ticket_seeds_learned_total", "");
        assert_eq!((links(evicted), learned()), (0, 0));

        ctl::membership(&cluster.node("a1").admin(), "admit", "a2").unwrap();
        cluster.wait_until_whole();
        until("it has the keys of the others", || learned() > 0);
        for client in &clients {
            is_known_at(&cluster, client, &AGENTS);
        }
    }
}

/// The guest has a certificate, and may send lists of members.
#[test]
fn hostile_lists_of_members_do_no_harm() {
    let cluster = Cluster::start(&Plan { seeds: &["a1"], ..Plan::default() });
    let (client, agent) = (Taste::all()[0].resuming_config(), cluster.node("a2"));
    visit(&cluster, &client);
    let member = |node: &str, mesh: &str| Member {
        name: name(node),
        since: 1,
        mesh: mesh.parse().unwrap(),
        legs: None,
        unlinked_s: 0,
    };
    let tell = |guest: &mut Guest, members| {
        guest.send_link(&LinkMessage::Members(Members { verdicts: Vec::new(), members }));
    };
    let mut guest = Guest::link(&cluster, GUEST_AGENT, agent);
    let own = Member { since: 4_000_000_000, ..member("a2", "127.0.0.1:1") };
    tell(&mut guest, vec![member(GUEST_AGENT, "127.0.0.1:1"), member("b", "0.0.0.0:0"), own]);
    until("it is a peer", || links(agent) == 4);
    tell(&mut guest, (0..10_000).map(|number| member(&format!("n{number}"), "127.0.0.1:1")).collect());
    until("its link is ended", || agent.count("watari_mesh_links_ended_total", "bad_frame") == 1);
    let names: Vec<_> = ctl::nodes(&agent.admin()).unwrap().into_iter().map(|node| node.name).collect();
    assert_eq!(names, [GUEST_AGENT, "a1", "a2", "a3", DISPATCHER]);
    is_known_at(&cluster, &client, &AGENTS);
}
