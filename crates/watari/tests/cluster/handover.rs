//! Downloads that outlive their origin: servers behind agents, and clients that see no interruption.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use watari_test_origins::real::{Docroot, Running, Server};

use crate::clients::h2::{Frame, H2};
use crate::clients::http::Http;
use crate::clients::tls::{TLS12, TLS13, Taste, Tls};
use crate::harness::ctl::{drain_origin, order_move, origins};
use crate::harness::pattern::pattern;
use crate::harness::site::SITE;
use crate::harness::wait::{until, until_some};
use crate::harness::{Cluster, Content, Plan};

/// More bytes than all buffers between an origin and a client that does not read.
const LARGE_LEN: u64 = 40_000_000;
const SMALL_LEN: u64 = 1000;
const SEED: u64 = 7;
/// The number of bytes that a client has read at the disturbance.
const BEGUN: u64 = 1_000_000;
/// The bytes that it reads between two checks.
const STEP: u64 = 50_000;
/// The pause before each check.
const PACE: Duration = Duration::from_millis(5);

/// The agent of the clients' data, and the target of ordered moves.
const AGENT: &str = "a1";
const ANOTHER_AGENT: &str = "a2";

/// A cluster before two servers with the same files. The servers are dropped after it.
struct Site {
    cluster: Cluster,
    servers: Vec<Running>,
    _roots: [Docroot; 2],
}

impl Site {
    fn start(server: Server) -> Self {
        let roots = [(); 2].map(|()| root());
        let servers: Vec<_> =
            roots.iter().map(|root| server.start(root, "").unwrap_or_else(|error| panic!("{error}"))).collect();
        let content = Content::Behind(servers.iter().map(Running::url).collect());
        Self { cluster: Cluster::start(&Plan { content, ..Plan::default() }), servers, _roots: roots }
    }

    /// Kills the source of a download.
    fn kill_the_source(&mut self) {
        drop(self.servers.remove(self.source()));
    }

    /// The index of the server that is the source of a download.
    fn source(&self) -> usize {
        until_some("it is known where the download comes from", || {
            let sent = |server: &Running| self.count("watari_proxy_body_bytes_total", &server.url());
            self.servers.iter().position(|server| sent(server) > BEGUN.cast_signed() / 2)
        })
    }

    /// A counter of the agent that forwards.
    fn count(&self, name: &str, label: &str) -> i64 {
        self.cluster.node(AGENT).count(name, label)
    }

    fn handovers(&self, cause: &str) -> i64 {
        self.count("watari_proxy_handovers_total", cause)
    }
}

/// Files, and copies with the same modification time.
fn root() -> Docroot {
    let root = Docroot::new().unwrap();
    for len in [LARGE_LEN, SMALL_LEN] {
        let content = watari_test_origins::Content::given(pattern(SEED, 0..len));
        root.put(&len.to_string(), &content, SystemTime::UNIX_EPOCH + Duration::from_hours(498_198)).unwrap();
    }
    root
}

#[test]
fn a_download_over_http1_outlives_its_origin_and_its_connection_then_moves() {
    for (server, version) in [(Server::Nginx, &TLS13), (Server::Apache, &TLS12)] {
        let mut site = Site::start(server);
        let client = site.cluster.clients.served_by(AGENT);
        let taste = Taste { version, ..Taste::default() };
        let mut http = Http::new(Tls::to_site(client, site.cluster.service, &taste).unwrap());
        get_small(&mut http);
        http.send(&request(LARGE_LEN)).unwrap();
        assert_eq!(http.read_head().unwrap().len().unwrap(), LARGE_LEN);
        http.check_body(0..BEGUN, LARGE_LEN, SEED).unwrap();
        site.kill_the_source();
        http.check_body(BEGUN..LARGE_LEN, LARGE_LEN, SEED).unwrap();
        assert_eq!((site.handovers(""), site.handovers("failed")), (1, 1));
        move_away(&site.cluster, client);
        get_small(&mut http);
        assert_eq!(site.cluster.connection_of(client).node, ANOTHER_AGENT);
    }
}

#[test]
fn a_download_leaves_an_origin_that_is_drained() {
    let site = Site::start(Server::Nginx);
    let client = site.cluster.clients.served_by(AGENT);
    let mut http = Http::new(Tls::to_site(client, site.cluster.service, &Taste::default()).unwrap());
    http.send(&request(LARGE_LEN)).unwrap();
    assert_eq!(http.read_head().unwrap().len().unwrap(), LARGE_LEN);
    http.check_body(0..BEGUN, LARGE_LEN, SEED).unwrap();
    let source = site.source();
    drain_origin(&site.cluster.node(AGENT).admin(), &site.servers[source].url());
    let mut at = BEGUN;
    while site.handovers("draining") == 0 {
        assert!(at < LARGE_LEN, "it ended where it was");
        let end = (at + STEP).min(LARGE_LEN);
        http.check_body(at..end, LARGE_LEN, SEED).unwrap();
        at = end;
        // A client slower than the servers: it takes some seconds.
        thread::sleep(PACE);
    }
    http.check_body(at..LARGE_LEN, LARGE_LEN, SEED).unwrap();
    assert_eq!(site.handovers(""), 1);
    let shown = origins(&site.cluster.node(AGENT).admin());
    let of_source = shown[0]["origins"].as_array().unwrap().iter().find(|o| o["url"] == site.servers[source].url());
    assert_eq!(of_source.unwrap()["draining"], true, "{shown}");
    assert_eq!(shown[0]["resources"][0]["movable"], true, "{shown}");
    move_away(&site.cluster, client);
    get_small(&mut http);
    assert_eq!(site.cluster.connection_of(client).node, ANOTHER_AGENT);
}

/// With the defaults: no key of `[agent.proxy.pool]` is set. The connections of a stopped process stay open.
#[test]
fn a_download_leaves_an_origin_that_is_stopped() {
    let site = Site::start(Server::Nginx);
    let mut http = begin(&site);
    let begun = Instant::now();
    site.servers[site.source()].stop();
    http.check_body(BEGUN..LARGE_LEN, LARGE_LEN, SEED).unwrap();
    assert_eq!((site.handovers(""), site.handovers("stalled")), (1, 1));
    let (stalled, body_timeout) = (Duration::from_secs(10), Duration::from_mins(1));
    assert!(begun.elapsed() >= stalled && begun.elapsed() < body_timeout, "{:?}", begun.elapsed());
}

/// Before the transfer counts as stalled.
#[test]
fn a_download_leaves_an_origin_that_is_stopped_and_drained() {
    let site = Site::start(Server::Nginx);
    let mut http = begin(&site);
    let source = site.source();
    site.servers[source].stop();
    drain_origin(&site.cluster.node(AGENT).admin(), &site.servers[source].url());
    http.check_body(BEGUN..LARGE_LEN, LARGE_LEN, SEED).unwrap();
    assert_eq!((site.handovers(""), site.handovers("draining")), (1, 1));
}

/// A client that has read a part.
fn begin(site: &Site) -> Http<Tls> {
    let client = site.cluster.clients.served_by(AGENT);
    let mut http = Http::new(Tls::to_site(client, site.cluster.service, &Taste::default()).unwrap());
    http.send(&request(LARGE_LEN)).unwrap();
    assert_eq!(http.read_head().unwrap().len().unwrap(), LARGE_LEN);
    http.check_body(0..BEGUN, LARGE_LEN, SEED).unwrap();
    http
}

fn get_small(http: &mut Http<Tls>) {
    http.send(&request(SMALL_LEN)).unwrap();
    http.take_download(SMALL_LEN, SEED).unwrap();
}

fn request(len: u64) -> Vec<u8> {
    format!("GET /{len} HTTP/1.1\r\nhost: {SITE}\r\n\r\n").into_bytes()
}

fn move_away(cluster: &Cluster, client: IpAddr) {
    let id = cluster.connection_of(client).id;
    order_move(&cluster.dispatcher().admin(), &id, ANOTHER_AGENT).unwrap();
    until("the connection has moved", || cluster.connection_of(client).node == ANOTHER_AGENT);
}

#[test]
fn a_download_over_http2_outlives_its_origin() {
    let mut site = Site::start(Server::Nginx);
    let client = site.cluster.clients.served_by(AGENT);
    let mut h2 = H2::connect(client, site.cluster.service);
    h2.get(1, &format!("/{LARGE_LEN}"));
    let begun = read_to(&mut h2, 1, 0, BEGUN);
    site.kill_the_source();
    assert_eq!(read_to(&mut h2, 1, begun, LARGE_LEN), LARGE_LEN);
    assert_eq!((site.handovers(""), site.handovers("failed")), (1, 1));
    h2.get(3, &format!("/{SMALL_LEN}"));
    assert_eq!(read_to(&mut h2, 3, 0, SMALL_LEN), SMALL_LEN);
}

/// Reads from one offset of a stream to another one, or to the end of the next frame after that.
fn read_to(h2: &mut H2, of: u32, mut at: u64, to: u64) -> u64 {
    while at < to {
        let Some(Frame::Data { stream, bytes, .. }) = h2.next_frame() else { panic!("it ended at {at}") };
        let end = at + bytes.len() as u64;
        assert_eq!(stream, of);
        assert!(bytes == pattern(SEED, at..end), "wrong bytes from {at} on");
        at = end;
    }
    at
}
