//! Nodes that are in no configuration, and nodes that are evicted.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use watari_mesh::{Event, Limits, LinkError, OrderError, SendError, Source};
use watari_wire::frame::Frame;
use watari_wire::{LinkMessage, Member, Members, Verdict};

use crate::support::*;

fn refused(reason: &str) -> String {
    format!("connections_refused_total{{reason=\"{reason}\"}}")
}

/// The peers to which the node has links.
fn linked(node: &Node) -> BTreeSet<String> {
    let peers = node.mesh.peers();
    peers.iter().filter(|peer| peer.up_for.is_some()).map(|peer| peer.name.to_string()).collect()
}

async fn is_linked_with(node: &Node, peers: &[&str]) {
    let expected: BTreeSet<_> = peers.iter().map(|peer| (*peer).to_owned()).collect();
    until(|| linked(node) == expected).await;
}

fn source(node: &Node, peer: &str) -> Option<Source> {
    node.mesh.peers().into_iter().find(|status| status.name == name(peer)).map(|status| status.source)
}

/// The seed has to dial the nodes that sort behind it, and is configured with none.
#[tokio::test]
async fn nodes_that_know_one_seed_find_all_others() {
    let names = ["a", "b", "c", "d", "e"];
    let cluster = Cluster::new(&names);
    for seed in ["a", "c", "e"] {
        let first = cluster.open_node(seed, &[], limits()).await;
        let mut nodes = Vec::new();
        for node in names.iter().filter(|node| **node != seed) {
            nodes.push(cluster.open_node(node, &[(seed, first.address)], limits()).await);
        }
        nodes.push(first);
        for node in &nodes {
            until(|| linked(node).len() == names.len() - 1).await;
        }
        let last = nodes.last().unwrap();
        assert!(names.iter().filter(|node| **node != seed).all(|node| source(last, node) == Some(Source::Learned)));
        assert_eq!(last.metric("members{source=\"learned\"}"), 4);
        assert_eq!(nodes[0].metric("members{source=\"configured\"}"), 1);
        assert_eq!(nodes[0].metric("members{source=\"learned\"}"), 3);
    }
}

/// The node returns at another address, and sends a new statement.
#[tokio::test]
async fn a_member_may_come_back_at_another_address() {
    let cluster = Cluster::new(&["a", "b", "z"]);
    let a = cluster.open_node("a", &[], limits()).await;
    let b = cluster.open_node("b", &[("a", a.address)], limits()).await;
    for _ in 0..3 {
        let z = cluster.open_node("z", &[("b", b.address)], limits()).await;
        is_linked_with(&a, &["b", "z"]).await;
        is_linked_with(&b, &["a", "z"]).await;
        is_linked_with(&z, &["a", "b"]).await;
        z.stop().await;
        is_linked_with(&a, &["b"]).await;
        is_linked_with(&b, &["a"]).await;
    }
}

#[tokio::test]
async fn a_learned_node_that_is_gone_is_forgotten_and_a_configured_one_is_not() {
    let cluster = Cluster::new(&["a", "b", "z"]);
    let limits = Limits {
        members_interval: Duration::from_millis(20),
        members_forgotten_after: Duration::from_millis(300),
        ..limits()
    };
    let a = cluster.open_node("a", &[], limits.clone()).await;
    let b = cluster.open_node("b", &[("a", a.address)], limits.clone()).await;
    let z = cluster.open_node("z", &[("a", a.address)], limits).await;
    is_linked_with(&b, &["a", "z"]).await;
    z.stop().await;
    for node in [&a, &b] {
        until(|| source(node, "z").is_none()).await;
    }
    assert_eq!(linked(&a).len(), 1, "who is linked is not forgotten");
    a.stop().await;
    until(|| b.metric("links_up") == 0).await;
    assert_eq!(source(&b, "a"), Some(Source::Configured));
}

/// Members that were removed from the configured peers are still members.
#[tokio::test]
async fn a_reload_keeps_nodes_that_introduced_themselves() {
    let cluster = Cluster::new(&["a", "b"]);
    let a = cluster.open_node("a", &[], limits()).await;
    let b = cluster.open_node("b", &[("a", a.address)], limits()).await;
    is_linked_with(&b, &["a"]).await;
    until(|| source(&b, "a") == Some(Source::Configured)).await;
    soon(b.mesh.set_peers(vec![])).await;
    assert_eq!((source(&b, "a"), linked(&b).len()), (Some(Source::Learned), 1));
}

/// At the node that receives the order and at all others, with any configuration.
#[tokio::test]
async fn an_evicted_node_is_refused_everywhere_until_it_is_admitted() {
    let cluster = Cluster::new(&["a", "b", "c", "d"]);
    let mut d = cluster.node("d", &[("a", nowhere()), ("b", nowhere()), ("c", nowhere())]).await;
    let mut c = cluster.node("c", &[("a", nowhere()), ("b", nowhere()), ("d", d.address)]).await;
    let peers = [("c", c.address), ("d", d.address)];
    let mut b = cluster.node("b", &[&peers[..], &[("a", nowhere())]].concat()).await;
    let peers = [&peers[..], &[("b", b.address)]].concat();
    let a = cluster.node("a", &peers).await;
    for (node, ups) in [(&mut b, 3), (&mut c, 3), (&mut d, 3)] {
        for _ in 0..ups {
            assert!(matches!(node.event().await, Event::Up { .. }));
        }
    }
    soon(d.mesh.evict(&name("a"))).await.unwrap();
    assert_eq!(d.mesh.send(&name("a"), &freeze(1)), Err(SendError::NoLink));
    // The order names the first remaining agent by name as the one that makes new keys, because a dispatcher gave it.
    for node in [&mut b, &mut c, &mut d] {
        assert!(matches!(node.down("a").await, LinkError::Evicted(_)));
        match node.event().await {
            Event::Evicted { peer, keys_by, .. } => assert_eq!((peer, keys_by), (name("a"), Some(name("b")))),
            other => panic!("{other:?}"),
        }
        assert_eq!(node.mesh.evicted(), [name("a")]);
        assert_eq!(node.metric("evicted"), 1);
    }
    is_linked_with(&a, &[]).await;
    until(|| b.metric(&refused("evicted")) > 0 && c.metric(&refused("evicted")) > 0).await;
    a.stop().await;
    let a = cluster.node("a", &peers).await;
    let before = c.metric(&refused("evicted"));
    until(|| c.metric(&refused("evicted")) > before).await;
    assert!(linked(&a).is_empty());
    c.mesh.admit(&name("a")).unwrap();
    is_linked_with(&a, &["b", "c", "d"]).await;
    assert!([&b, &c, &d].iter().all(|node| node.mesh.evicted().is_empty()));
    assert_eq!(b.mesh.evict(&name("b")).await, Err(OrderError::Own));
}

/// A node that was away gets the verdict from the first node that it links to, before all other messages.
#[tokio::test]
async fn a_node_that_was_away_gets_the_members_first() {
    let cluster = Cluster::new(&["a", "b"]);
    let b = cluster.node("b", &[("a", nowhere())]).await;
    b.mesh.evict(&name("c")).await.unwrap();
    let mut raw = RawPeer::link(&cluster.identity("a"), "b", b.address, 1).await;
    match raw.next_frame().await {
        Some(Frame::Link(LinkMessage::Members(told))) => assert_eq!(told.verdicts[0].name, name("c")),
        other => panic!("{other:?}"),
    }
    // The messages of an evicted node are ignored while its link ends.
    let evicted = name("a");
    let order = b.mesh.evict(&evicted);
    let admits = async {
        let soon = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 60;
        let verdict = Verdict { name: name("a"), at: soon, evicted: false, keys_by: None };
        while !matches!(raw.next_frame().await, Some(Frame::Link(LinkMessage::Members(_)))) {}
        raw.send_link(&LinkMessage::Members(Members { verdicts: vec![verdict], members: vec![] })).await;
        while raw.next_frame().await.is_some() {}
    };
    let (outcome, ()) = tokio::join!(order, admits);
    outcome.unwrap();
    assert_eq!(b.mesh.evicted(), [evicted, name("c")]);
}

/// A message that is sent after an order never precedes it at a node, and never reaches the evicted node.
#[tokio::test]
async fn an_eviction_goes_ahead_of_whatever_is_said_later() {
    let cluster = Cluster::new(&["a", "b", "c"]);
    let mut c = cluster.node("c", &[("a", nowhere()), ("b", nowhere())]).await;
    let mut a = RawPeer::link(&cluster.identity("a"), "c", c.address, 1).await;
    c.up("a").await;
    let mut b = RawPeer::link(&cluster.identity("b"), "c", c.address, 1).await;
    c.up("b").await;
    let evicted = name("a");
    let sends = async {
        c.mesh.send(&name("b"), &ship()).unwrap();
        assert_eq!(c.mesh.send(&name("a"), &ship()), Err(SendError::NoLink));
    };
    let hears = async {
        for raw in [&mut a, &mut b] {
            let told = raw.next_frame().await;
            assert!(
                matches!(&told, Some(Frame::Link(LinkMessage::Members(told))) if told.verdicts[0].name == name("a"))
            );
        }
        assert_eq!(a.next_frame().await, None);
        assert_eq!(b.next_frame().await, Some(Frame::Message(ship())));
    };
    let (outcome, (), ()) = tokio::join!(biased; c.mesh.evict(&evicted), sends, hears);
    outcome.unwrap();
}

fn member(node: &str, mesh: SocketAddr) -> Member {
    Member { name: name(node), since: 1, mesh, legs: None, unlinked_s: 0 }
}

/// A certified node that sends arbitrary lists of members.
#[tokio::test]
async fn hostile_lists_do_no_harm() {
    let cluster = Cluster::new(&["a", "b", "c", "z"]);
    let b = cluster.open_node("b", &[], limits()).await;
    let introduced = async |node: &str| {
        let mut raw = RawPeer::link(&cluster.identity(node), "b", b.address, 1).await;
        raw.send_link(&LinkMessage::Members(Members { verdicts: vec![], members: vec![member(node, nowhere())] }))
            .await;
        raw
    };
    let mut raw = introduced("a").await;
    is_linked_with(&b, &["a"]).await;
    let addresses = ["0.0.0.0:7001", "127.0.0.1:0", "224.0.0.1:7001", "[::]:7001", "255.255.255.255:7001"];
    let mut members: Vec<_> = addresses.iter().map(|address| member("c", address.parse().unwrap())).collect();
    members.push(Member { since: u64::MAX, ..member("c", nowhere()) });
    members.push(Member { unlinked_s: u32::MAX, ..member("c", nowhere()) });
    members.push(Member { since: 4_000_000_000, ..member("b", nowhere()) });
    members.push(member("d", nowhere()));
    raw.send_link(&LinkMessage::Members(Members { verdicts: vec![], members })).await;
    until(|| source(&b, "d").is_some()).await;
    assert_eq!((source(&b, "b"), source(&b, "c")), (None, None));

    let many = (0..10_000).map(|number| member(&format!("n{number}"), nowhere())).collect();
    raw.send_link(&LinkMessage::Members(Members { verdicts: vec![], members: many })).await;
    b.counts("links_ended_total{reason=\"bad_frame\"}", 1).await;
    assert!(b.mesh.peers().len() == 2);

    // A node that has to be dialed has to send its address. A node without the role of a member is refused.
    let mut silent = RawPeer::link(&cluster.identity("z"), "b", b.address, 1).await;
    silent.send_link(&LinkMessage::Ping).await;
    while silent.next_frame().await.is_some() {}
    b.counts(&refused("no_introduction"), 1).await;
    let mut c = introduced("c").await;
    assert!(matches!(c.next_frame().await, Some(Frame::Link(LinkMessage::Members(told))) if told.members.len() == 4));
    assert_eq!(c.next_frame().await, None);
}
