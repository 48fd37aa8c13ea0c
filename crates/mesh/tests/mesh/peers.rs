//! Peers that are added and removed while nodes run.

use watari_mesh::{LinkError, Peer, SendError};

use crate::support::*;

fn peer(node: &str, address: std::net::SocketAddr) -> Peer {
    Peer { name: name(node), address }
}

#[tokio::test]
async fn a_peer_that_is_added_is_linked_and_one_that_is_removed_is_not() {
    let cluster = Cluster::new(&["a", "b", "d"]);
    let mut dispatcher = cluster.node("d", &[("a", nowhere()), ("b", nowhere())]).await;
    let mut b = cluster.node("b", &[("d", dispatcher.address)]).await;
    dispatcher.up("b").await;
    let mut a = cluster.node("a", &[]).await;
    for _ in 0..3 {
        // The node itself may be in its list.
        soon(a.mesh.set_peers(vec![peer("d", dispatcher.address), peer("a", nowhere())])).await;
        a.up("d").await;
        dispatcher.up("a").await;
        soon(a.mesh.set_peers(vec![])).await;
        assert!(matches!(a.down("d").await, LinkError::Removed));
        dispatcher.down("a").await;
        assert_eq!(a.mesh.send(&name("d"), &ship()), Err(SendError::NoLink));
        assert!(a.mesh.peers().is_empty());
    }
    b.up("d").await;
    dispatcher.mesh.send(&name("b"), &freeze(1)).unwrap();
    assert_eq!(b.message("d").await, freeze(1), "who was not meant is not disturbed");
    assert_eq!(b.metric("links_up"), 1);
}

/// The accepting side refuses a peer that was removed.
#[tokio::test]
async fn a_peer_that_is_removed_is_not_let_in_again() {
    let cluster = Cluster::new(&["a", "d"]);
    let mut dispatcher = cluster.node("d", &[("a", nowhere())]).await;
    let mut a = cluster.node("a", &[("d", dispatcher.address)]).await;
    dispatcher.up("a").await;
    a.up("d").await;
    soon(dispatcher.mesh.set_peers(vec![])).await;
    assert!(matches!(dispatcher.down("a").await, LinkError::Removed));
    a.down("d").await;
    until(|| dispatcher.metric("connections_refused_total{reason=\"unknown_peer\"}") > 0).await;
    soon(dispatcher.mesh.set_peers(vec![peer("a", nowhere())])).await;
    dispatcher.up("a").await;
    a.up("d").await;
}

#[tokio::test]
async fn another_address_counts_when_the_link_is_gone() {
    let cluster = Cluster::new(&["a", "d"]);
    let dispatcher = cluster.node("d", &[("a", nowhere())]).await;
    let mut a = cluster.node("a", &[("d", dispatcher.address)]).await;
    a.up("d").await;
    let moved = cluster.node("d", &[("a", nowhere())]).await;
    soon(a.mesh.set_peers(vec![peer("d", moved.address)])).await;
    assert!(a.mesh.is_up(&name("d")), "it still is where it was");
    assert_eq!(a.mesh.peers()[0].address, moved.address);
    dispatcher.stop().await;
    a.down("d").await;
    a.up("d").await;
    until(|| moved.metric("links_up") == 1).await;
}
