//! Connections for HTTP between agents.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, split};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use watari_mesh::{HttpConnection, Join, Limits, LinkError};
use watari_pki::Identity;
use watari_values::Role;

use crate::support::*;

const WAITING_MAX: usize = 8;

fn refused(reason: &str) -> String {
    format!("connections_refused_total{{reason=\"{reason}\"}}")
}

fn open(direction: &str) -> String {
    format!("http_connections{{direction=\"{direction}\"}}")
}

/// The agents `a` and `b` with a link.
async fn agents(cluster: &Cluster, limits: Limits) -> (Node, Node) {
    let mut b = Node::start(cluster.identity("b"), listener().await, &[("a", nowhere())], limits.clone());
    let mut a = Node::start(cluster.identity("a"), listener().await, &[("b", b.address)], limits);
    a.up("b").await;
    b.up("a").await;
    (a, b)
}

/// A client that offers the protocol for HTTP, without the checks of a mesh.
async fn raw(identity: &Identity, to: &str, address: SocketAddr) -> TlsStream<TcpStream> {
    let mut config = ClientConfig::clone(identity.client_config());
    config.alpn_protocols = vec![b"watari-http/1".to_vec()];
    let tcp = soon(TcpStream::connect(address)).await.unwrap();
    let to = ServerName::try_from(to.to_owned()).unwrap();
    soon(TlsConnector::from(Arc::new(config)).connect(to, tcp)).await.unwrap()
}

async fn is_closed(mut stream: impl AsyncRead + Unpin) -> bool {
    matches!(soon(stream.read(&mut [0])).await, Ok(0) | Err(_))
}

async fn is_aborted(mut stream: impl AsyncRead + Unpin) -> bool {
    matches!(soon(stream.read(&mut [0])).await, Err(error) if error.kind() == io::ErrorKind::ConnectionAborted)
}

/// Waits until the number is greater than 0, and does not grow while other tasks run.
async fn is_stalled(number: &AtomicUsize) {
    let stalls = async {
        let mut before = 0;
        loop {
            for _ in 0..100 {
                yield_now().await;
            }
            match number.load(Ordering::Relaxed) {
                now if now == before && now > 0 => return,
                now => before = now,
            }
        }
    };
    soon(stalls).await;
}

async fn next(connections: &mut mpsc::Receiver<HttpConnection>) -> HttpConnection {
    soon(connections.recv()).await.unwrap()
}

#[tokio::test]
async fn bytes_go_both_ways_and_the_link_stays() {
    let cluster = Cluster::new(&["a", "b"]);
    let (a, mut b) = agents(&cluster, limits()).await;
    let mut to_b = b.mesh.http_connections(WAITING_MAX);
    let dialed = soon(a.mesh.dial_http(&name("b"))).await.unwrap();
    let HttpConnection { peer, stream: accepted } = next(&mut to_b).await;
    assert_eq!(peer, name("a"));
    assert_eq!((a.metric(&open("dialed")), b.metric(&open("accepted"))), (1, 1));

    // More than the kernels buffer, in both directions at the same time.
    let sent: Vec<u8> = (0..5_000_000u32).map(|number| (number % 251) as u8).collect();
    let carry = async |stream, sent: &[u8]| {
        let (mut read, mut write) = split(stream);
        let mut received = Vec::new();
        let write = async {
            write.write_all(sent).await.unwrap();
            write.shutdown().await.unwrap();
        };
        tokio::join!(write, async { read.read_to_end(&mut received).await.unwrap() });
        received
    };
    let (at_a, at_b) = soon(async { tokio::join!(carry(dialed, &sent), carry(accepted, &sent[..1_000_000])) }).await;
    assert!(at_b == sent && at_a == sent[..1_000_000]);
    assert_eq!((a.metric(&open("dialed")), b.metric(&open("accepted"))), (0, 0));

    a.mesh.send(&name("b"), &ship()).unwrap();
    assert_eq!(b.message("a").await, ship());
    assert_eq!((a.metric("links_up"), b.metric("links_up")), (1, 1));
}

/// The order of the names decides about links only.
#[tokio::test]
async fn either_agent_dials() {
    let cluster = Cluster::new(&["a", "b"]);
    let mut b = cluster.open_node("b", &[], limits()).await;
    let a = cluster.open_node("a", &[("b", b.address)], limits()).await;
    b.up("a").await;
    let mut to_a = a.mesh.http_connections(WAITING_MAX);
    let mut dialed = soon(b.mesh.dial_http(&name("a"))).await.unwrap();
    let mut accepted = next(&mut to_a).await;
    assert_eq!(accepted.peer, name("b"));
    soon(accepted.stream.write_all(b"x")).await.unwrap();
    soon(accepted.stream.flush()).await.unwrap();
    assert_eq!(soon(dialed.read_u8()).await.unwrap(), b'x');
}

#[tokio::test]
async fn only_agents_that_are_members_are_accepted() {
    let cluster = Cluster::new(&["a", "b", "d", "x"]);
    let b = cluster.node("b", &[("d", nowhere()), ("x", nowhere())]).await;
    let mut to_b = b.mesh.http_connections(WAITING_MAX);
    assert!(is_closed(raw(&cluster.identity("a"), "b", b.address).await).await);
    b.counts(&refused("unknown_peer"), 1).await;
    assert!(is_closed(raw(&cluster.identity("d"), "b", b.address).await).await);
    b.counts(&refused("not_an_agent"), 1).await;
    let _x = raw(&cluster.identity("x"), "b", b.address).await;
    assert_eq!(next(&mut to_b).await.peer, name("x"), "it is an agent, too");

    // Neither does a dispatcher accept connections, nor an open node that has no entry of the peer.
    let d = cluster.node("d", &[("a", nowhere())]).await;
    let _to_d = d.mesh.http_connections(WAITING_MAX);
    assert!(is_closed(raw(&cluster.identity("a"), "d", d.address).await).await);
    d.counts(&refused("not_an_agent"), 1).await;
    let x = cluster.open_node("x", &[], limits()).await;
    let _to_x = x.mesh.http_connections(WAITING_MAX);
    assert!(is_closed(raw(&cluster.identity("a"), "x", x.address).await).await);
    x.counts(&refused("unknown_peer"), 1).await;
}

#[tokio::test]
async fn only_agents_that_are_members_are_dialed() {
    let cluster = Cluster::new(&["a", "b", "d"]);
    let d = cluster.node("d", &[("a", nowhere())]).await;
    let other = cluster.node("b", &[("a", nowhere())]).await;
    // The link to the dispatcher may be up or not: its certificate is enough.
    let a = cluster.node("a", &[("b", d.address), ("d", d.address)]).await;
    let dial = async |node: &Node, to| soon(node.mesh.dial_http(&name(to))).await.unwrap_err();
    assert!(matches!(dial(&a, "d").await, LinkError::NotAnAgent(node) if node == name("d")));
    until(|| a.mesh.is_up(&name("d"))).await;
    assert!(matches!(dial(&a, "d").await, LinkError::NotAnAgent(node) if node == name("d")));
    assert!(matches!(dial(&d, "a").await, LinkError::NotAnAgent(node) if node == name("d")));
    assert!(matches!(dial(&a, "b").await, LinkError::Untrusted(_)), "another node is at the address");
    assert!(matches!(dial(&a, "c").await, LinkError::UnknownPeer(_)));
    assert!(matches!(dial(&a, "a").await, LinkError::UnknownPeer(_)), "no node dials itself");
    assert!(matches!(dial(&other, "a").await, LinkError::Connect(_)));
    assert_eq!(a.metric("http_dials_failed_total{reason=\"not_an_agent\"}"), 2);
}

/// Its certificate allows the role, and its hello does not have it.
#[tokio::test]
async fn a_process_without_the_role_is_not_dialed() {
    let cluster = Cluster::new(&["a", "x"]);
    let (roles, peers) = (BTreeSet::from([Role::Dispatcher]), [("a", nowhere())]);
    let x = Node::start_as(roles, cluster.identity("x"), listener().await, &peers, Join::Configured, limits());
    let a = cluster.node("a", &[("x", x.address)]).await;
    until(|| a.mesh.is_up(&name("x"))).await;
    assert!(matches!(soon(a.mesh.dial_http(&name("x"))).await, Err(LinkError::NotAnAgent(_))));
    assert_eq!(x.metric(&refused("not_an_agent")), 0);
}

#[tokio::test]
async fn an_agent_of_an_older_version_is_not_asked() {
    let cluster = Cluster::new(&["a", "b"]);
    let listener = listener().await;
    let a = cluster.node("a", &[("b", listener.local_addr().unwrap())]).await;
    let acceptor = TlsAcceptor::from(cluster.identity("b").server_config().clone());
    // The listener sees links, too. They end at once.
    let older = async {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let _ = acceptor.accept(tcp).await;
        }
    };
    let b = name("b");
    let error = tokio::select! {
        dialed = soon(a.mesh.dial_http(&b)) => dialed.unwrap_err(),
        () = older => unreachable!(),
    };
    assert!(matches!(error, LinkError::NoHttp), "{error:?}");
}

#[tokio::test]
async fn an_eviction_ends_the_connections_of_the_peer() {
    let cluster = Cluster::new(&["a", "b", "c"]);
    let (a, mut b) = agents(&cluster, limits()).await;
    let mut to_b = b.mesh.http_connections(WAITING_MAX);
    let dialed = soon(a.mesh.dial_http(&name("b"))).await.unwrap();
    let accepted = next(&mut to_b).await.stream;
    let idle = soon(a.mesh.dial_http(&name("b"))).await.unwrap();
    let idle_at_b = next(&mut to_b).await.stream;
    // Two tasks wait for the stream: the peer neither writes nor reads.
    let (mut read, mut write) = split(accepted);
    let reads = tokio::spawn(async move { read.read_u8().await.unwrap_err().kind() });
    let written = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&written);
    let writes = tokio::spawn(async move {
        loop {
            if let Err(error) = write.write_all(&[0; 1 << 12]).await {
                return error.kind();
            }
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    is_stalled(&written).await;
    soon(b.mesh.evict(&name("a"))).await.unwrap();
    assert_eq!(soon(reads).await.unwrap(), io::ErrorKind::ConnectionAborted);
    assert_eq!(soon(writes).await.unwrap(), io::ErrorKind::ConnectionAborted);
    // No byte goes to the peer any more.
    let mut idle_at_b = idle_at_b;
    assert_eq!(idle_at_b.write(b"x").await.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
    drop(idle_at_b);
    assert!(is_closed(idle).await);
    drop(dialed);
    b.counts(&open("accepted"), 0).await;

    assert!(matches!(soon(b.mesh.dial_http(&name("a"))).await, Err(LinkError::Evicted(_))));
    assert!(is_closed(raw(&cluster.identity("a"), "b", b.address).await).await);
    until(|| b.metric(&refused("evicted")) > 0).await;
    assert!(to_b.try_recv().is_err());

    b.down("a").await;
    b.mesh.admit(&name("a")).unwrap();
    until(|| b.mesh.is_up(&name("a"))).await;
    let _again = soon(a.mesh.dial_http(&name("b"))).await.unwrap();
    assert_eq!(next(&mut to_b).await.peer, name("a"));
}

#[tokio::test]
async fn a_peer_that_is_removed_loses_its_connections() {
    let cluster = Cluster::new(&["a", "b"]);
    let (a, b) = agents(&cluster, limits()).await;
    let mut to_b = b.mesh.http_connections(WAITING_MAX);
    let dialed = soon(a.mesh.dial_http(&name("b"))).await.unwrap();
    let accepted = next(&mut to_b).await.stream;
    soon(a.mesh.set_peers(vec![])).await;
    assert!(is_aborted(dialed).await);
    assert!(is_closed(accepted).await);
}

#[tokio::test]
async fn connections_need_a_handler_with_room() {
    let cluster = Cluster::new(&["a", "b"]);
    let (a, b) = agents(&cluster, limits()).await;
    assert!(is_closed(soon(a.mesh.dial_http(&name("b"))).await.unwrap()).await);
    b.counts(&refused("no_http_handler"), 1).await;

    let mut to_b = b.mesh.http_connections(1);
    let first = soon(a.mesh.dial_http(&name("b"))).await.unwrap();
    until(|| b.metric(&open("accepted")) == 1).await;
    assert!(is_closed(soon(a.mesh.dial_http(&name("b"))).await.unwrap()).await);
    b.counts(&refused("http_full"), 1).await;
    let accepted = next(&mut to_b).await;
    let _second = soon(a.mesh.dial_http(&name("b"))).await.unwrap();
    drop((first, accepted, next(&mut to_b).await));

    // A new receiver replaces the previous one.
    let mut again = b.mesh.http_connections(1);
    assert!(soon(to_b.recv()).await.is_none());
    let _third = soon(a.mesh.dial_http(&name("b"))).await.unwrap();
    next(&mut again).await;
    drop(again);
    assert!(is_closed(soon(a.mesh.dial_http(&name("b"))).await.unwrap()).await);
    b.counts(&refused("no_http_handler"), 2).await;
}

#[tokio::test]
async fn a_peer_has_so_many_connections() {
    let cluster = Cluster::new(&["a", "b", "c"]);
    let limits = Limits { http_per_peer_max: 2, ..limits() };
    let b = Node::start(cluster.identity("b"), listener().await, &[("a", nowhere()), ("c", nowhere())], limits);
    let mut to_b = b.mesh.http_connections(WAITING_MAX);
    let (of_a, of_c) = (cluster.identity("a"), cluster.identity("c"));
    let _dialed = [raw(&of_a, "b", b.address).await, raw(&of_a, "b", b.address).await];
    let accepted = [next(&mut to_b).await, next(&mut to_b).await];
    assert!(is_closed(raw(&of_a, "b", b.address).await).await);
    b.counts(&refused("http_full"), 1).await;
    let _of_another = raw(&of_c, "b", b.address).await;
    assert_eq!(next(&mut to_b).await.peer, name("c"));
    drop(accepted);
    let _again = raw(&of_a, "b", b.address).await;
    assert_eq!(next(&mut to_b).await.peer, name("a"));
}

/// An open connection takes no place of unidentified ones.
#[tokio::test]
async fn an_identified_connection_frees_its_place() {
    let cluster = Cluster::new(&["a", "b"]);
    let limits = Limits { unidentified_max: 1, unidentified_per_address_max: 1, ..limits() };
    let b = Node::start(cluster.identity("b"), listener().await, &[("a", nowhere())], limits);
    let mut to_b = b.mesh.http_connections(WAITING_MAX);
    let mut dialed = Vec::new();
    for _ in 0..3 {
        dialed.push(raw(&cluster.identity("a"), "b", b.address).await);
        let mut accepted = next(&mut to_b).await.stream;
        soon(accepted.write_all(b"x")).await.unwrap();
        soon(accepted.flush()).await.unwrap();
    }
    for stream in &mut dialed {
        assert_eq!(soon(stream.read_u8()).await.unwrap(), b'x');
    }
    assert_eq!(b.metric(&refused("crowded_out")), 0);
}

#[tokio::test]
async fn a_shutdown_ends_connections() {
    let cluster = Cluster::new(&["a", "b"]);
    let (a, b) = agents(&cluster, limits()).await;
    let mut to_b = b.mesh.http_connections(WAITING_MAX);
    let dialed = soon(a.mesh.dial_http(&name("b"))).await.unwrap();
    let accepted = next(&mut to_b).await.stream;
    b.shutdown.cancel();
    assert!(is_aborted(accepted).await);
    assert!(is_closed(dialed).await);
    soon(b.mesh.stopped()).await;
    assert!(matches!(soon(b.mesh.dial_http(&name("a"))).await, Err(LinkError::Shutdown)));
}
