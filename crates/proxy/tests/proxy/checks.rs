//! Health checks.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;
use watari_balance::HealthThresholds;
use watari_proxy::{Balance, Check, Config, HttpCheck, HttpVersion, OriginAddress, PoolConfig, Proxy, Transport};

use crate::common::pki::Pki;
use crate::common::{Fixture, pass, refusing_origin};

const WAIT_MAX: Duration = Duration::from_secs(20);

/// Responds to checks with the configured status, and to all other requests with its name.
struct Origin {
    address: OriginAddress,
    status: Arc<AtomicU16>,
    /// The last check that was read.
    check: Arc<Mutex<Vec<u8>>>,
}

impl Origin {
    async fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let (status, check) = (Arc::new(AtomicU16::new(200)), Arc::default());
        let (current, seen) = (Arc::clone(&status), Arc::clone(&check));
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(socket, name, Arc::clone(&current), Arc::clone(&seen)));
            }
        });
        Self { address, status, check }
    }

    fn set(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    fn check(&self) -> String {
        String::from_utf8_lossy(&self.check.lock().unwrap()).into_owned()
    }
}

async fn serve(mut socket: TcpStream, name: &str, status: Arc<AtomicU16>, check: Arc<Mutex<Vec<u8>>>) {
    let mut request = Vec::new();
    while socket.read_buf(&mut request).await.is_ok_and(|len| len > 0) {
        // A PROXY header before the request may arrive separately.
        if !request.ends_with(b"\r\n\r\n") {
            continue;
        }
        let is_check = String::from_utf8_lossy(&request).contains("/health");
        let status = if is_check { status.load(Ordering::Relaxed) } else { 200 };
        if is_check {
            check.lock().unwrap().clone_from(&request);
        }
        request.clear();
        let answer = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n\r\n{name}", name.len());
        if socket.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn often() -> Check {
    let thresholds = HealthThresholds { fall: 2, rise: 2 };
    Check { interval: Duration::from_millis(5), timeout: Duration::from_secs(5), thresholds, http: None }
}

fn by_http() -> Check {
    Check { http: Some(HttpCheck::of("/health".parse().unwrap())), ..often() }
}

fn fixture(origins: impl IntoIterator<Item = OriginAddress>, check: Check) -> Fixture {
    let fixture = Fixture::of(PoolConfig { check: Some(check), ..PoolConfig::plain("pool", origins) });
    fixture.proxy.start();
    fixture
}

fn available(fixture: &Fixture) -> Vec<bool> {
    fixture.proxy.status().remove(0).origins.iter().map(|origin| origin.available).collect()
}

async fn until(what: impl Fn() -> bool) {
    let deadline = Instant::now() + WAIT_MAX;
    while !what() {
        assert!(Instant::now() < deadline, "in vain");
        sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn an_origin_that_says_it_is_not_well_gets_no_requests() {
    let (a, b) = (Origin::start("a").await, Origin::start("b").await);
    let fixture = fixture([a.address.clone(), b.address.clone()], by_http());
    a.set(503);
    until(|| available(&fixture) == [false, true]).await;
    fixture.assert_metric(&format!("watari_proxy_origin_healthy{{pool=\"pool\",origin=\"{}\"}} 0", a.address));
    for _ in 0..6 {
        assert_eq!(fixture.get().await.1.unwrap(), "b");
    }
    a.set(201);
    until(|| available(&fixture) == [true, true]).await;
    let mut answers = [fixture.get().await.1.unwrap(), fixture.get().await.1.unwrap()];
    answers.sort();
    assert_eq!(answers, ["a", "b"]);
}

#[tokio::test]
async fn what_checks_have_shown_holds_after_a_reload() {
    let (a, b) = (Origin::start("a").await, Origin::start("b").await);
    let addresses = [a.address.clone(), b.address.clone()];
    let fixture = fixture(addresses.clone(), by_http());
    a.set(503);
    until(|| available(&fixture) == [false, true]).await;
    let changed = PoolConfig { check: Some(by_http()), ..PoolConfig::plain("pool", addresses) };
    let next = Proxy::succeed(Config::one_pool(changed), &fixture.proxy, |_| false).unwrap();
    // No check has ended yet.
    assert!(!next.status()[0].origins[0].available);
    fixture.assert_metric(&format!("watari_proxy_origin_healthy{{pool=\"pool\",origin=\"{}\"}} 0", a.address));
}

#[tokio::test]
async fn if_all_origins_are_unhealthy_all_are_tried() {
    let a = Origin::start("a").await;
    let fixture = fixture([a.address.clone()], by_http());
    a.set(500);
    until(|| available(&fixture) == [false]).await;
    assert_eq!(fixture.get().await.1.unwrap(), "a");
}

#[tokio::test]
async fn a_check_asks_what_it_is_told_to() {
    let a = Origin::start("a").await;
    a.set(418);
    let path = "/health?deep".parse().unwrap();
    let http = HttpCheck { host: Some("www.example.org".parse().unwrap()), statuses: 400..=418, path };
    let fixture = fixture([a.address.clone()], Check { http: Some(http), ..often() });
    until(|| !a.check().is_empty()).await;
    let check = a.check().to_ascii_lowercase();
    assert!(
        check.starts_with("get /health?deep http/1.1\r\n") && check.contains("host: www.example.org\r\n"),
        "{check}"
    );
    a.set(419);
    until(|| available(&fixture) == [false]).await;
    a.set(418);
    until(|| available(&fixture) == [true]).await;
}

#[tokio::test]
async fn an_origin_that_is_well_again_gets_its_share_by_and_by() {
    let (a, b) = (Origin::start("a").await, Origin::start("b").await);
    let balance = Balance { slow_start: Some(Duration::from_hours(1)), ..Balance::default() };
    let addresses = [a.address.clone(), b.address.clone()];
    let fixture = Fixture::of(PoolConfig { check: Some(by_http()), balance, ..PoolConfig::plain("pool", addresses) });
    fixture.proxy.start();
    assert_eq!(answers(&fixture, "a", 40).await, 20, "new origins begin without a slow start");
    a.set(503);
    until(|| available(&fixture) == [false, true]).await;
    a.set(200);
    until(|| available(&fixture) == [true, true]).await;
    let first = answers(&fixture, "a", 90).await;
    assert!(first <= 1, "as good as nothing at first, not {first} of 90");
    pass(Duration::from_mins(30)).await;
    let half = answers(&fixture, "a", 90).await;
    assert!((29..=31).contains(&half), "half as much as the other, not {half} of 90");
    pass(Duration::from_mins(30)).await;
    assert_eq!(answers(&fixture, "a", 90).await, 45);
}

/// The number of `requests` requests that this origin responds to.
async fn answers(fixture: &Fixture, name: &str, requests: usize) -> usize {
    let mut count = 0;
    for _ in 0..requests {
        count += usize::from(fixture.get().await.1.unwrap() == name);
    }
    count
}

/// An origin with TLS, and the requests it got: the server name, the HTTP version, and the request.
struct Secure {
    address: OriginAddress,
    status: Arc<AtomicU16>,
    asked: Arc<Mutex<BTreeSet<String>>>,
}

impl Secure {
    async fn start(config: ServerConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
        let secure = Self { address, status: Arc::new(AtomicU16::new(200)), asked: Arc::default() };
        let (acceptor, status) = (TlsAcceptor::from(Arc::new(config)), Arc::clone(&secure.status));
        let asked = Arc::clone(&secure.asked);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let Ok(stream) = acceptor.accept(socket).await else { continue };
                let name = stream.get_ref().1.server_name().unwrap_or_default().to_owned();
                let (status, asked) = (Arc::clone(&status), Arc::clone(&asked));
                let service = service_fn(move |request: Request<Incoming>| {
                    let text = format!("{name} {:?} {}", request.version(), request.uri());
                    asked.lock().unwrap().insert(text);
                    let status = status.load(Ordering::Relaxed);
                    async move { Response::builder().status(status).body(Empty::<Bytes>::new()) }
                });
                tokio::spawn(async move {
                    auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await.ok()
                });
            }
        });
        secure
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().cloned().collect()
    }
}

#[tokio::test]
async fn checks_are_made_as_requests_are() {
    let pki = Pki::new();
    for (version, expected) in [
        (HttpVersion::Http1, "localhost HTTP/1.1 /health"),
        (HttpVersion::Http2, "localhost HTTP/2.0 https://example.org/health"),
        (HttpVersion::Negotiated, "localhost HTTP/2.0 https://example.org/health"),
    ] {
        let origin = Secure::start(pki.server(None, &[b"h2", b"http/1.1"])).await;
        let mut transport = pki.transport(version, None);
        transport.tls.as_mut().unwrap().server_name = Some("localhost".try_into().unwrap());
        let mut http = HttpCheck::of("/health".parse().unwrap());
        http.host = Some("example.org".parse().unwrap());
        let check = Some(Check { http: Some(http), ..often() });
        let pool = PoolConfig { check, transport, ..PoolConfig::plain("pool", [origin.address.clone()]) };
        let fixture = Fixture::of(pool);
        fixture.proxy.start();
        until(|| !origin.asked().is_empty()).await;
        assert_eq!(origin.asked(), [expected]);
        for (status, well) in [(503, false), (204, true)] {
            origin.status.store(status, Ordering::Relaxed);
            until(|| available(&fixture) == [well]).await;
        }
    }
}

#[tokio::test]
async fn an_origin_that_does_not_prove_who_it_is_is_not_well() {
    let (pki, stranger) = (Pki::new(), Pki::new());
    for check in [often(), by_http()] {
        let origin = Secure::start(pki.server(None, &[])).await;
        let transport = stranger.transport(HttpVersion::Http1, None);
        let check = Some(check);
        let pool = PoolConfig { check, transport, ..PoolConfig::plain("pool", [origin.address.clone()]) };
        let fixture = Fixture::of(pool);
        fixture.proxy.start();
        until(|| available(&fixture) == [false]).await;
        assert!(origin.asked().is_empty());
    }
}

#[tokio::test]
async fn an_origin_that_cannot_be_connected_to_is_known_before_a_request() {
    let (away, _socket) = refusing_origin();
    let good = Origin::start("good").await;
    let fixture = fixture([away, good.address.clone()], often());
    until(|| available(&fixture) == [false, true]).await;
    for _ in 0..4 {
        assert_eq!(fixture.get().await.1.unwrap(), "good");
    }
    fixture.assert_metric(&format!("watari_proxy_requests_total{{origin=\"{}\",class=\"2xx\"}} 4", good.address));
}

#[tokio::test]
async fn checks_speak_for_themselves_where_clients_are_named() {
    let a = Origin::start("a").await;
    let transport = Transport { proxy_protocol: true, ..Transport::default() };
    let check = Some(by_http());
    let fixture = Fixture::of(PoolConfig { check, transport, ..PoolConfig::plain("pool", [a.address.clone()]) });
    fixture.proxy.start();
    until(|| !a.check().is_empty()).await;
    // Version 2 and the command LOCAL.
    assert!(a.check().starts_with("\r\n\r\n\0\r\nQUIT\n\x20"), "{:?}", a.check());
}

#[tokio::test]
async fn checks_end_with_the_proxy() {
    let a = Origin::start("a").await;
    let fixture = fixture([a.address.clone()], by_http());
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    until(|| !a.check().is_empty()).await;
    drop(fixture);
    // The accept loop of the origin is left.
    until(|| tasks() == 1).await;
}
