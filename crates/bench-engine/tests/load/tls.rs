//! TLS: negotiated parameters, full and resumed handshakes, verification of certificates.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache};
use rustls::{HandshakeKind, ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;
use watari_bench_engine::ending::{EndingKind, Phase};
use watari_bench_engine::load::Finished;
use watari_bench_engine::plan::Plan;
use watari_bench_engine::sample;
use watari_bench_engine::tls::{Pem, Resume, Roots, TlsOptions};
use watari_handshake::Policy;
use watari_record::Version;

use crate::harness::{ANSWERED, OK, by_client, endings, one_each, plan, run};

/// A server that responds to one request on each connection, and counts full and resumed handshakes.
struct Server {
    address: SocketAddr,
    full: Arc<AtomicU64>,
    resumed: Arc<AtomicU64>,
    /// Contains the server's certificate, `ca.pem`.
    directory: TempDir,
}

impl Server {
    fn start(tickets: bool) -> Self {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.pem"), cert.pem()).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config = config.with_no_client_auth().with_single_cert(vec![cert.der().clone()], key).unwrap();
        if tickets {
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().unwrap();
        } else {
            config.session_storage = ServerSessionMemoryCache::new(1000);
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server =
            Self { address: listener.local_addr().unwrap(), full: Arc::default(), resumed: Arc::default(), directory };
        let (config, full, resumed) = (Arc::new(config), Arc::clone(&server.full), Arc::clone(&server.resumed));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                let mut stream = StreamOwned::new(connection, stream.unwrap());
                let (full, resumed) = (Arc::clone(&full), Arc::clone(&resumed));
                thread::spawn(move || {
                    let mut request = [0; 4096];
                    if std::io::Read::read(&mut stream, &mut request).is_ok() {
                        let again = stream.conn.handshake_kind() == Some(HandshakeKind::Resumed);
                        if again { &resumed } else { &full }.fetch_add(1, Ordering::SeqCst);
                        let _ = stream.write_all(OK);
                        stream.conn.send_close_notify();
                        let _ = stream.flush();
                    }
                });
            }
        });
        server
    }

    fn url(&self) -> String {
        format!("https://{}/", self.address)
    }

    fn root(&self) -> Pem {
        Pem::read(&self.directory.path().join("ca.pem")).unwrap()
    }

    /// Full and resumed handshakes, as counted by the server.
    fn seen(&self) -> (u64, u64) {
        (self.full.load(Ordering::SeqCst), self.resumed.load(Ordering::SeqCst))
    }
}

/// Full and resumed handshakes, as counted by the load.
fn reported(finished: &Finished) -> (u64, u64) {
    let connections = finished.tally.total().connections;
    (connections.handshakes(sample::HandshakeKind::Full), connections.handshakes(sample::HandshakeKind::Resumed))
}

fn options(version: Version, resume: Resume) -> TlsOptions {
    TlsOptions { policy: Policy { versions: vec![version], ..Policy::default() }, resume, ..TlsOptions::default() }
}

#[test]
fn full_and_resumed_handshakes_are_those_on_the_wire() {
    for version in [Version::Tls12, Version::Tls13] {
        for (resume, expected) in [
            (Resume::Full, (20, 0)),
            (Resume::Reuse, (1, 19)),
            (Resume::Mixed(25), (15, 5)),
            (Resume::Mixed(0), (20, 0)),
        ] {
            for (tickets, session_ids_only) in [(true, false), (false, false), (false, true)] {
                let server = Server::start(tickets);
                let tls = TlsOptions { session_ids_only, ..options(version, resume) };
                let finished = run(Plan { tls, ..one_each(plan(&server.url(), 20, 1)) });
                assert_eq!(endings(&finished), [(ANSWERED, 20)]);
                assert_eq!(
                    (reported(&finished), server.seen()),
                    (expected, expected),
                    "{version} {resume:?} {tickets}"
                );
            }
        }
    }
}

#[test]
fn session_ids_alone_resume_nothing_where_there_are_only_tickets() {
    let server = Server::start(true);
    let tls = TlsOptions { session_ids_only: true, ..options(Version::Tls12, Resume::Reuse) };
    let finished = run(Plan { tls, ..one_each(plan(&server.url(), 10, 1)) });
    assert_eq!((reported(&finished), server.seen()), ((10, 0), (10, 0)));
}

#[test]
fn what_was_agreed_on_is_told() {
    let server = Server::start(true);
    let finished = run(Plan { tls: options(Version::Tls13, Resume::Full), ..one_each(plan(&server.url(), 3, 1)) });
    let total = finished.tally.total();
    let (seen, count) = total.connections.tls.iter().next().unwrap();
    assert_eq!((total.connections.tls.len(), *count), (1, 3));
    assert_eq!((seen.version, seen.suite.as_str()), ("TLSv1.3", "TLS_AES_128_GCM_SHA256"));
    assert_eq!(seen.group.as_deref(), Some("X25519MLKEM768"));
    assert_eq!(seen.key.as_deref(), Some("ECDSA P-256"));
}

#[test]
fn certificates_are_checked_where_that_is_asked_for() {
    let server = Server::start(true);
    let with =
        |roots| Plan { tls: TlsOptions { roots, ..TlsOptions::default() }, ..one_each(plan(&server.url(), 4, 2)) };
    assert_eq!(endings(&run(with(Roots::File(server.root())))), [(ANSWERED, 4)]);
    assert_eq!(endings(&run(with(Roots::Unchecked))), [(ANSWERED, 4)]);
    let other = Server::start(true);
    let refused = by_client(EndingKind::Handshake, Phase::Handshake);
    let finished = run(with(Roots::File(other.root())));
    assert_eq!(endings(&finished), [(refused, 4)]);
    let cause = "TLS handshake: invalid peer certificate: ";
    assert!(finished.causes.iter().any(|(why, count)| why.starts_with(cause) && *count == 4), "{:?}", finished.causes);
}

#[test]
fn options_that_cannot_be_used_are_refused() {
    let server = Server::start(true);
    let with = |roots| Plan { tls: TlsOptions { roots, ..TlsOptions::default() }, ..plan(&server.url(), 1, 1) };
    let start = |roots| watari_bench_engine::load::Load::start(with(roots), None).unwrap_err().to_string();
    let missing = server.directory.path().join("missing.pem");
    let unreadable = Pem::read(&missing).unwrap_err().to_string();
    assert!(unreadable.starts_with(&format!("cannot read {}: ", missing.display())), "{unreadable}");
    let empty = server.directory.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let roots = Roots::File(Pem::read(&empty).unwrap());
    assert_eq!(start(roots), format!("there is no certificate in {}", empty.display()));
}
