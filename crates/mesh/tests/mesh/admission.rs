//! Nodes that get a link, and nodes that are refused.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use watari_mesh::{Limits, LinkError};
use watari_values::Role;
use watari_wire::{Hello, LinkMessage, VERSION_MAX};

use crate::support::*;

fn refused(reason: &str) -> String {
    format!("connections_refused_total{{reason=\"{reason}\"}}")
}

fn failed(reason: &str) -> String {
    format!("attempts_failed_total{{reason=\"{reason}\"}}")
}

#[tokio::test]
async fn a_server_of_another_authority_is_refused() {
    let (ours, theirs) = (Cluster::new(&["a", "b"]), Cluster::new(&["a", "b"]));
    let b = theirs.node("b", &[("a", nowhere())]).await;
    let a = ours.node("a", &[("b", b.address)]).await;
    until(|| a.metric(&failed("untrusted_certificate")) > 1).await;
    until(|| b.metric(&refused("tls")) > 1).await;
    let error = a.mesh.peers()[0].last_error.clone().unwrap();
    assert!(error.starts_with("the peer's certificate is refused"), "{error}");
    assert_eq!((a.metric("links_up"), b.metric("links_up")), (0, 0));
}

/// A connector that trusts `theirs`, and presents a certificate of `ours`, or none.
fn connector(ours: Option<&Cluster>, theirs: &Cluster) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(theirs.dir().join("ca.pem")).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let config = match ours {
        None => builder.with_no_client_auth(),
        Some(ours) => {
            let certificate = CertificateDer::from_pem_file(ours.dir().join("a.pem")).unwrap();
            let key = PrivateKeyDer::from_pem_file(ours.dir().join("a.key")).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    TlsConnector::from(Arc::new(config))
}

#[tokio::test]
async fn a_client_of_another_authority_or_of_none_is_refused() {
    let (ours, theirs) = (Cluster::new(&["a", "b"]), Cluster::new(&["a", "b"]));
    let b = theirs.node("b", &[("a", nowhere())]).await;
    for (count, ours) in [(1, Some(&ours)), (2, None)] {
        let tcp = TcpStream::connect(b.address).await.unwrap();
        // In TLS 1.3 the client finishes before the server has verified its certificate. It notices a refusal when it
        // reads.
        let name = ServerName::try_from("b").unwrap();
        let mut tls = soon(connector(ours, &theirs).connect(name, tcp)).await.unwrap();
        assert!(soon(tls.read_u8()).await.is_err());
        b.counts(&refused("untrusted_certificate"), count).await;
    }
}

#[tokio::test]
async fn another_node_at_the_address_is_refused() {
    let cluster = Cluster::new(&["a", "b", "c"]);
    let c = cluster.node("c", &[("a", nowhere())]).await;
    let a = cluster.node("a", &[("b", c.address)]).await;
    until(|| a.metric(&failed("untrusted_certificate")) > 0).await;
    assert!(!a.mesh.is_up(&name("b")));
    assert!(!c.mesh.is_up(&name("a")));
}

#[tokio::test]
async fn a_node_that_is_no_peer_is_refused() {
    let cluster = Cluster::new(&["a", "b", "c"]);
    let b = cluster.node("b", &[("c", nowhere())]).await;
    let mut raw = RawPeer::connect(&cluster.identity("a"), "b", b.address).await;
    assert_eq!(raw.next_frame().await, None);
    b.counts(&refused("unknown_peer"), 1).await;
}

/// A peer that this node dials may only introduce itself.
#[tokio::test]
async fn a_peer_that_should_not_dial_gets_no_link() {
    let cluster = Cluster::new(&["b", "c"]);
    let b = cluster.node("b", &[("c", nowhere())]).await;
    let mut raw = RawPeer::link(&cluster.identity("c"), "b", b.address, 1).await;
    raw.send_link(&LinkMessage::Ping).await;
    b.counts(&refused("no_introduction"), 1).await;
    assert!(!b.mesh.is_up(&name("c")));
}

#[tokio::test]
async fn a_false_hello_is_refused() {
    let cluster = Cluster::new(&["a", "b"]);
    let b = cluster.node("b", &[("a", nowhere())]).await;
    let hello = || Hello::new(name("a"), &roles("a"), 1);
    let newer = Hello { version_min: VERSION_MAX + 1, version_max: VERSION_MAX + 1, ..hello() };
    let cases = [
        (LinkMessage::Hello(Hello { node: name("c"), ..hello() }), "false_name"),
        (LinkMessage::Hello(Hello::new(name("a"), &BTreeSet::from([Role::Dispatcher]), 1)), "false_role"),
        (LinkMessage::Hello(newer), "no_common_version"),
        (LinkMessage::Ping, "no_hello"),
    ];
    for (message, reason) in cases {
        let mut raw = RawPeer::connect(&cluster.identity("a"), "b", b.address).await;
        raw.send_link(&message).await;
        while raw.next_frame().await.is_some() {}
        b.counts(&refused(reason), 1).await;
    }
    assert_eq!(b.metric("links_up"), 0);
}

#[tokio::test]
async fn garbage_on_the_port_disturbs_no_link() {
    let cluster = Cluster::new(&["a", "b"]);
    let mut b = cluster.node("b", &[("a", nowhere())]).await;
    let mut a = cluster.node("a", &[("b", b.address)]).await;
    b.up("a").await;
    a.up("b").await;
    let mut tcp = TcpStream::connect(b.address).await.unwrap();
    tcp.write_all(b"GET / HTTP/1.1\r\nHost: b\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = soon(tcp.read_to_end(&mut answer)).await;
    b.counts(&refused("tls"), 1).await;
    a.mesh.send(&name("b"), &ship()).unwrap();
    assert_eq!(b.message("a").await, ship());
}

#[tokio::test]
async fn connections_that_do_not_identify_themselves_are_few_and_have_to_hurry() {
    let cluster = Cluster::new(&["a", "b"]);
    let limits = Limits { unidentified_max: 1, handshake_max: Duration::from_secs(2), ..limits() };
    let mut b = Node::start(cluster.identity("b"), listener().await, &[("a", nowhere())], limits);
    let mut first = TcpStream::connect(b.address).await.unwrap();
    let _second = TcpStream::connect(b.address).await.unwrap();
    assert_eq!(soon(first.read(&mut [0])).await.unwrap(), 0);
    b.counts(&refused("crowded_out"), 1).await;
    b.counts(&refused("handshake_timeout"), 1).await;
    // A peer that has identified itself frees its place for the next.
    let _a = RawPeer::link(&cluster.identity("a"), "b", b.address, 1).await;
    b.up("a").await;
    let _again = RawPeer::link(&cluster.identity("a"), "b", b.address, 2).await;
    assert!(matches!(b.down("a").await, LinkError::Replaced));
}

#[tokio::test]
async fn a_peer_that_comes_anew_replaces_its_link() {
    let cluster = Cluster::new(&["a", "b"]);
    let mut b = cluster.node("b", &[("a", nowhere())]).await;
    let mut links = Vec::new();
    for incarnation in 1..=4 {
        links.push(RawPeer::link(&cluster.identity("a"), "b", b.address, incarnation).await);
        if incarnation > 1 {
            assert!(matches!(b.down("a").await, LinkError::Replaced));
        }
        assert_eq!(b.up("a").await, incarnation);
    }
    let last = links.last_mut().unwrap();
    last.send(&ship()).await;
    assert_eq!(b.message("a").await, ship());
    assert_eq!(links[0].next_frame().await, None);
    assert_eq!(b.metric("links_up"), 1);
}

#[tokio::test]
async fn a_peer_that_is_not_there_yet_is_dialed_until_it_is() {
    let cluster = Cluster::new(&["a", "b"]);
    // A socket that is bound and does not listen: its port is taken, and connections are refused.
    let reserved = TcpSocket::new_v4().unwrap();
    reserved.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = reserved.local_addr().unwrap();
    let mut a = cluster.node("a", &[("b", address)]).await;
    until(|| a.metric(&failed("connect")) > 1).await;
    let _b = Node::start(cluster.identity("b"), reserved.listen(16).unwrap(), &[("a", nowhere())], limits());
    a.up("b").await;
}
