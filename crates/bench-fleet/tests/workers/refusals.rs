//! The peers that workers and controllers refuse.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use watari_bench_engine::plan::{Plan, Stop};
use watari_bench_fleet::fleet::Fleet;
use watari_bench_fleet::worker::{ListenError, Listening};

use crate::server::Server;
use crate::support::{Worker, cluster, fleet, identity, plan, refused, requests, run, workers};

fn some(server: &Server) -> Plan {
    plan(server, "- /a 0\n", 4, requests(4))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_load_generators_of_the_cluster_are_obeyed() {
    let (dir, other, server) = (cluster(), cluster(), Server::start());
    let workers = workers(dir.path(), 1).await;
    let why = refused(&fleet(dir.path(), "a1", &workers), some(&server)).await;
    assert!(why.ends_with("the certificate of a1 does not allow the role bench"), "{why}");
    let why = refused(&fleet(other.path(), "lead", &workers), some(&server)).await;
    assert!(why.contains(": TLS: "), "{why}");
    assert_eq!(server.total(), 0);
}

#[tokio::test]
async fn what_is_no_load_generator_does_not_listen() {
    let dir = cluster();
    let refused = Listening::on("127.0.0.1:0".parse().unwrap(), identity(dir.path(), "a1"), None).await;
    assert!(matches!(refused, Err(ListenError::Role(node)) if node.as_str() == "a1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_load_generators_of_the_cluster_are_given_work() {
    let (dir, server) = (cluster(), Server::start());
    // An agent that sends the responses of a worker.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let acceptor = TlsAcceptor::from(Arc::clone(identity(dir.path(), "a1").server_config()));
    tokio::spawn(async move { acceptor.accept(listener.accept().await.unwrap().0).await });
    let identity = Box::new(identity(dir.path(), "lead"));
    let fleet = Fleet::Workers { addresses: vec![address], identity, stagger: Duration::ZERO };
    let why = refused(&fleet, some(&server)).await;
    assert!(why.ends_with("its certificate does not allow the role bench"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_survives_what_strangers_say() {
    let (dir, server) = (cluster(), Server::start());
    let workers = workers(dir.path(), 1).await;
    // Not even TLS.
    let mut tcp = TcpStream::connect(workers[0].address).await.unwrap();
    tcp.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let _ = tcp.read_to_end(&mut Vec::new()).await;
    assert_eq!(hear(&workers[0], anonymous(dir.path()), b"wbench\x00\x01").await, b"");
    for said in [
        &b"garbage!"[..],
        // Another version.
        b"wbench\xff\xff",
        // The right greeting, followed by a message that is too long, an invalid one, and one in the wrong state.
        b"wbench\x00\x01\xff\xff\xff\xff",
        b"wbench\x00\x01\x00\x00\x00\x03\xff\xff\xff",
        b"wbench\x00\x01\x00\x00\x00\x01\x01",
    ] {
        let controller = Arc::clone(identity(dir.path(), "lead").client_config_for_any());
        assert_eq!(hear(&workers[0], controller, said).await, b"wbench\x00\x01", "{said:?}");
    }
    let finished = run(&fleet(dir.path(), "lead", &workers), some(&server)).await;
    assert_eq!(finished.load.tally.total().requests, 4);
}

/// They are more than the limit, and come from the controller's address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_keep_no_controller_out() {
    let (dir, server) = (cluster(), Server::start());
    let workers = workers(dir.path(), 1).await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(workers[0].address).await.unwrap());
    }
    let finished = run(&fleet(dir.path(), "lead", &workers), some(&server)).await;
    assert_eq!(finished.load.tally.total().requests, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_version_is_refused_with_a_reason() {
    let (dir, server) = (cluster(), Server::start());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let acceptor = TlsAcceptor::from(Arc::clone(identity(dir.path(), "w1").server_config()));
    tokio::spawn(async move {
        let mut stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
        stream.write_all(b"wbench\x00\x02").await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let identity = Box::new(identity(dir.path(), "lead"));
    let fleet = Fleet::Workers { addresses: vec![address], identity, stagger: Duration::ZERO };
    let why = refused(&fleet, some(&server)).await;
    assert!(why.contains("it speaks version 2 of the protocol, and this program version 1"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_shared_out_is_refused() {
    let (dir, server) = (cluster(), Server::start());
    let workers = workers(dir.path(), 2).await;
    let together = fleet(dir.path(), "lead", &workers);
    let why = refused(&together, plan(&server, "- /a 0\n", 1, requests(4))).await;
    assert_eq!(why, "1 connections cannot be shared out among 2 workers or processes");
    let Fleet::Workers { addresses, identity, .. } = together else { unreachable!() };
    let stop = Stop { requests: None, after: Some(Duration::from_secs(5)) };
    let late = Fleet::Workers { addresses, identity, stagger: Duration::from_secs(5) };
    let why = refused(&late, plan(&server, "- /a 0\n", 2, stop)).await;
    assert_eq!(why, "the last of 2 workers would begin 5 s after the first, when the run is over");
}

/// Sends these bytes to a worker, and returns its response up to the end of the connection.
async fn hear(worker: &Worker, config: Arc<ClientConfig>, said: &[u8]) -> Vec<u8> {
    let tcp = TcpStream::connect(worker.address).await.unwrap();
    let name = ServerName::try_from("w1").unwrap();
    let mut stream = TlsConnector::from(config).connect(name, tcp).await.unwrap();
    let mut received = Vec::new();
    if stream.write_all(said).await.is_ok() {
        // However the connection ends.
        let _ = stream.read_to_end(&mut received).await;
    }
    received
}

/// A client that trusts the cluster, and sends no certificate.
fn anonymous(dir: &Path) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(dir.join("ca.pem")).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}
