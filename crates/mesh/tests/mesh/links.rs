//! Peers that follow the rules.

use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;
use watari_mesh::{Config, Join, Limits, LinkError, Mesh, Peer, SendError, StartError};
use watari_values::{AbortReason, ConnectionId, Epoch};
use watari_wire::frame::{FRAME_LEN_MAX, Frame};
use watari_wire::{AgentToAgent, AgentToDispatcher, Cancel, DispatcherToAgent, LinkMessage, Message, Rest};

use crate::support::*;

#[tokio::test]
async fn messages_go_both_ways() {
    let cluster = Cluster::new(&["a", "d"]);
    let mut dispatcher = cluster.node("d", &[("a", nowhere())]).await;
    let mut agent = cluster.node("a", &[("d", dispatcher.address)]).await;
    assert_ne!(agent.up("d").await, dispatcher.up("a").await);
    let cancel = Message::from(AgentToDispatcher::Cancel(Cancel {
        connection: connection(),
        epoch: Epoch(3),
        reason: AbortReason::RestTooLong,
    }));
    agent.mesh.send(&name("d"), &cancel).unwrap();
    dispatcher.mesh.send(&name("a"), &freeze(7)).unwrap();
    assert_eq!(dispatcher.message("a").await, cancel);
    assert_eq!(agent.message("d").await, freeze(7));
    assert_eq!(agent.metric("links_up"), 1);
    assert_eq!(agent.metric("messages_sent_total{kind=\"cancel\"}"), 1);
    assert_eq!(dispatcher.metric("messages_received_total{kind=\"cancel\"}"), 1);
    assert!(agent.metric("bytes_sent_total") > 0);
    until(|| agent.metric("bytes_sent_total") == dispatcher.metric("bytes_received_total")).await;
}

#[tokio::test]
async fn a_node_sends_messages_to_itself() {
    let cluster = Cluster::new(&["a", "x"]);
    let mut x = cluster.node("x", &[]).await;
    x.up("x").await;
    x.mesh.send(&name("x"), &freeze(3)).unwrap();
    assert_eq!(x.message("x").await, freeze(3));
    let mut a = cluster.node("a", &[]).await;
    assert!(a.mesh.is_up(&name("a")));
    a.mesh.send(&name("a"), &ship()).unwrap();
    assert_eq!(a.message("a").await, ship());
    assert_eq!(a.mesh.send(&name("a"), &freeze(3)), Err(SendError::NotAllowed("freeze")));
}

#[tokio::test]
async fn three_nodes_have_three_links() {
    let cluster = Cluster::new(&["a", "b", "x"]);
    let mut x = cluster.node("x", &[("a", nowhere()), ("b", nowhere())]).await;
    x.up("x").await;
    // A node may be in its own list.
    let mut b = cluster.node("b", &[("a", nowhere()), ("b", nowhere()), ("x", x.address)]).await;
    x.up("b").await;
    b.up("x").await;
    let mut a = cluster.node("a", &[("b", b.address), ("x", x.address)]).await;
    b.up("a").await;
    x.up("a").await;
    for node in [&a, &b, &x] {
        until(|| node.mesh.peers().iter().all(|peer| peer.up_for.is_some())).await;
        let peers = node.mesh.peers();
        assert_eq!(peers.len(), 2);
        assert!(peers.iter().all(|peer| peer.roles == roles(peer.name.as_str())));
    }
    a.mesh.send(&name("b"), &ship()).unwrap();
    assert_eq!(b.message("a").await, ship());
    // A dispatcher that is also an agent may receive it.
    a.mesh.send(&name("x"), &ship()).unwrap();
    assert_eq!(x.message("a").await, ship());
    x.mesh.send(&name("a"), &freeze(1)).unwrap();
    let (first, second) = (a.event().await, a.event().await);
    assert!(matches!((first, second), (watari_mesh::Event::Up { .. }, watari_mesh::Event::Up { .. })));
    assert_eq!(a.message("x").await, freeze(1));
    let status = a.mesh.peers().into_iter().find(|peer| peer.name == name("x")).unwrap();
    assert_eq!((status.messages_sent, status.messages_received), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_is_kept_through_batches() {
    const COUNT: u64 = 20_000;
    let cluster = Cluster::new(&["a", "d"]);
    let mut dispatcher = cluster.node("d", &[("a", nowhere())]).await;
    let mut agent = cluster.node("a", &[("d", dispatcher.address)]).await;
    dispatcher.up("a").await;
    agent.up("d").await;
    let sender = tokio::spawn(async move {
        for number in 0..COUNT {
            let gone = Message::from(DispatcherToAgent::Gone(ConnectionId { boot: 0, number }));
            while dispatcher.mesh.send(&name("a"), &gone) == Err(SendError::QueueFull) {
                yield_now().await;
            }
        }
        dispatcher
    });
    for number in 0..COUNT {
        assert_eq!(agent.message("d").await, Message::from(DispatcherToAgent::Gone(ConnectionId { boot: 0, number })));
    }
    let dispatcher = sender.await.unwrap();
    assert_eq!(dispatcher.metric("messages_sent_total{kind=\"gone\"}"), COUNT);
}

#[tokio::test]
async fn a_peer_that_restarts_comes_back_as_another_incarnation() {
    let cluster = Cluster::new(&["a", "b"]);
    let mut b = cluster.node("b", &[("a", nowhere())]).await;
    let mut a = cluster.node("a", &[("b", b.address)]).await;
    let (b_first, a_first) = (a.up("b").await, b.up("a").await);

    // The node that is dialed restarts.
    let address = b.stop().await;
    assert!(matches!(a.down("b").await, LinkError::Closed));
    assert!(!a.mesh.is_up(&name("b")));
    assert_eq!(a.mesh.send(&name("b"), &ship()), Err(SendError::NoLink));
    b = Node::start(cluster.identity("b"), address.listen_again().await, &[("a", nowhere())], limits());
    assert_ne!(a.up("b").await, b_first);
    b.up("a").await;

    // The node that dials restarts.
    a.stop().await;
    assert!(matches!(b.down("a").await, LinkError::Closed));
    a = cluster.node("a", &[("b", b.address)]).await;
    assert_ne!(b.up("a").await, a_first);
    a.up("b").await;
    a.mesh.send(&name("b"), &ship()).unwrap();
    assert_eq!(b.message("a").await, ship());
    assert_eq!((b.metric("links_up"), b.metric("links_ended_total{reason=\"closed\"}")), (1, 1));
}

#[tokio::test]
async fn what_was_queued_before_a_shutdown_arrives() {
    let cluster = Cluster::new(&["a", "d"]);
    let mut dispatcher = cluster.node("d", &[("a", nowhere())]).await;
    let mut agent = cluster.node("a", &[("d", dispatcher.address)]).await;
    dispatcher.up("a").await;
    agent.up("d").await;
    for offset in 0..100 {
        dispatcher.mesh.send(&name("a"), &freeze(offset)).unwrap();
    }
    dispatcher.stop().await;
    for offset in 0..100 {
        assert_eq!(agent.message("d").await, freeze(offset));
    }
    assert!(matches!(agent.down("d").await, LinkError::Closed));
}

#[tokio::test]
async fn a_silent_link_is_pinged_and_then_given_up() {
    let cluster = Cluster::new(&["a", "b"]);
    let limits = Limits { ping_after: Duration::from_millis(20), dead_after: Duration::from_millis(60), ..limits() };
    let mut b = Node::start(cluster.identity("b"), listener().await, &[("a", nowhere())], limits);
    let mut a = RawPeer::link(&cluster.identity("a"), "b", b.address, 1).await;
    b.up("a").await;
    assert_eq!(a.next_frame().await, Some(Frame::Link(LinkMessage::Ping)));
    assert!(matches!(b.down("a").await, LinkError::Silent));
    assert_eq!(b.metric("links_ended_total{reason=\"silent\"}"), 1);
}

#[tokio::test]
async fn an_answered_ping_keeps_the_link() {
    let cluster = Cluster::new(&["a", "b"]);
    let limits = Limits { ping_after: Duration::from_millis(50), dead_after: Duration::from_secs(1), ..limits() };
    let mut b = Node::start(cluster.identity("b"), listener().await, &[("a", nowhere())], limits);
    let mut a = RawPeer::link(&cluster.identity("a"), "b", b.address, 1).await;
    b.up("a").await;
    // Longer than a silent link lives.
    for _ in 0..25 {
        assert_eq!(a.next_frame().await, Some(Frame::Link(LinkMessage::Ping)));
        a.send_link(&LinkMessage::Pong).await;
    }
    a.send_link(&LinkMessage::Ping).await;
    while let Some(frame) = a.next_frame().await {
        if frame == Frame::Link(LinkMessage::Pong) {
            break;
        }
    }
    a.send(&ship()).await;
    assert_eq!(b.message("a").await, ship());
}

#[tokio::test]
async fn a_peer_that_takes_nothing_fills_its_queue() {
    let cluster = Cluster::new(&["a", "b"]);
    let limits = Limits { queue_bytes_max: FRAME_LEN_MAX, ..limits() };
    let mut b = Node::start(cluster.identity("b"), listener().await, &[("a", nowhere())], limits);
    let _a = RawPeer::link(&cluster.identity("a"), "b", b.address, 1).await;
    b.up("a").await;
    let (connection, epoch) = (connection(), Epoch(1));
    let rest = Message::from(AgentToAgent::Rest(Rest { connection, epoch, from_offset: 0, bytes: vec![0; 1 << 20] }));
    // The kernels' buffers are bounded too.
    let mut outcome = Ok(());
    for _ in 0..1000 {
        outcome = b.mesh.send(&name("a"), &rest);
        if outcome.is_err() {
            break;
        }
        yield_now().await;
    }
    assert_eq!(outcome, Err(SendError::QueueFull));
    assert_eq!(b.metric("messages_dropped_total{reason=\"queue_full\"}"), 1);
}

#[tokio::test]
async fn a_message_that_cannot_be_sent_has_a_reason() {
    let cluster = Cluster::new(&["a", "d"]);
    let mut dispatcher = cluster.node("d", &[("a", nowhere())]).await;
    let agent = cluster.node("a", &[("d", dispatcher.address)]).await;
    dispatcher.up("a").await;
    assert_eq!(dispatcher.mesh.send(&name("a"), &ship()), Err(SendError::NotAllowed("ship")));
    assert_eq!(dispatcher.mesh.send(&name("zz"), &freeze(1)), Err(SendError::NoLink));
    assert_eq!(dispatcher.metric("messages_dropped_total{reason=\"not_allowed\"}"), 1);
    drop(agent);
}

#[tokio::test]
async fn impossible_configurations_do_not_start() {
    let cluster = Cluster::new(&["a"]);
    let start = async |change: fn(&mut Config)| {
        let mut config = Config {
            identity: cluster.identity("a"),
            roles: roles("a"),
            listener: listener().await,
            peers: vec![Peer { name: name("b"), address: nowhere() }],
            join: Join::Configured,
            limits: limits(),
        };
        change(&mut config);
        Mesh::start(config, &mut Registry::default(), CancellationToken::new()).err()
    };
    let role = start(|config| config.roles = roles("d")).await;
    assert!(matches!(role, Some(StartError::Role { .. })), "{role:?}");
    let twice = start(|config| config.peers.push(config.peers[0].clone())).await;
    assert_eq!(twice, Some(StartError::PeerTwice(name("b"))));
    let limit = start(|config| config.limits.queue_bytes_max = 1000).await;
    assert_eq!(limit, Some(StartError::Limit("queue_bytes_max")));
}
