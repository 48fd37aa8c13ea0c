//! Connections that move in the middle of a response, of a file or of an origin, and those whose response stays.

use std::fs;
use std::io::Read as _;
use std::net::IpAddr;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use flate2::read::GzDecoder;
use watari_test_origins::real::{Docroot, Running, Server};

use crate::cache::script::{Reply, Script};
use crate::clients::http::{Head, Http, get_bytes, put};
use crate::clients::tls::{TLS12, TLS13, Taste, Tls, reset};
use crate::harness::ctl::{Connection, drain, order_move};
use crate::harness::pattern::pattern;
use crate::harness::site::SITE;
use crate::harness::wait::until;
use crate::harness::{AGENTS, Cluster, Content, Plan, write_settled};

/// More bytes than all buffers between an agent and its client.
pub(crate) const LARGE_LEN: u64 = 40_000_000;
/// Fewer bytes than a response needs to continue at another agent.
pub(crate) const SMALL_LEN: u64 = 200_000;
/// The bytes that a client reads between two looks at its connection.
const STEP: u64 = 64 << 10;
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);
/// The looks after which a move is ordered again.
const LOOKS: u32 = 25;
/// The moves of each download.
pub(crate) const MOVES: u32 = 12;

/// A download in progress.
pub(crate) struct Download<'a> {
    cluster: &'a Cluster,
    pub(crate) client: IpAddr,
    http: Http<Tls>,
    /// The bytes that have come.
    pub(crate) at: u64,
}

impl<'a> Download<'a> {
    /// Begins the download of `path`, which has the pattern of seed [`LARGE_LEN`], at `agent`.
    pub(crate) fn begin(cluster: &'a Cluster, agent: &str, path: &str, taste: &Taste) -> Self {
        let client = cluster.clients.served_by(agent);
        let mut http = Http::new(Tls::to_site(client, cluster.service, taste).unwrap());
        http.send(&get(path)).unwrap();
        assert_eq!(http.read_head().unwrap().len().unwrap(), LARGE_LEN);
        let mut download = Self { cluster, client, http, at: 0 };
        download.read_until(|node, _| node == agent);
        download
    }

    pub(crate) fn read(&mut self) {
        let end = (self.at + STEP).min(LARGE_LEN);
        self.http.check_body(self.at..end, LARGE_LEN, LARGE_LEN).unwrap();
        self.at = end;
    }

    /// Reads until the connection is in this state: its agent, and the reason that it stays.
    pub(crate) fn read_until(&mut self, is_reached: impl Fn(&str, Option<&str>) -> bool) {
        self.read_until_so(|connection| is_reached(&connection.node, connection.stays.as_deref()));
    }

    fn read_until_so(&mut self, mut is_reached: impl FnMut(&Connection) -> bool) {
        loop {
            self.read();
            let connection = self.cluster.connection_of(self.client);
            if is_reached(&connection) {
                return;
            }
            assert!(self.at < LARGE_LEN, "the download has ended: {connection:?}");
            // A busy machine gets time to move before the content ends.
            sleep(PAUSE);
        }
    }

    pub(crate) fn order(&self, agent: &str) {
        let connection = self.cluster.connection_of(self.client);
        order_move(&self.cluster.dispatcher().admin(), &connection.id, agent).unwrap();
    }

    pub(crate) fn move_to(&mut self, agent: &str) {
        self.order(agent);
        let mut looks = 0;
        let dispatcher = self.cluster.dispatcher().admin();
        self.read_until_so(|connection| {
            looks += 1;
            let is_there = connection.node == agent;
            // On a busy machine, a move may exceed its time limit. The dispatcher refuses an order during a move.
            if !is_there && looks % LOOKS == 0 {
                let _ = order_move(&dispatcher, &connection.id, agent);
            }
            is_there
        });
    }

    /// Reads the rest, and shows that the connection goes on.
    pub(crate) fn finish(mut self, small: &str) -> Http<Tls> {
        while self.at < LARGE_LEN {
            self.read();
        }
        self.http.send(&get(small)).unwrap();
        self.http.take_download(SMALL_LEN, SMALL_LEN).unwrap();
        self.http
    }
}

pub(crate) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: {SITE}\r\n\r\n").into_bytes()
}

/// Orders a connection from a1 to a2, which stays because of its request.
fn order_in_request(cluster: &Cluster, client: IpAddr) {
    until("a1 has the connection", || cluster.connection_of(client).node == "a1");
    order_move(&cluster.dispatcher().admin(), &cluster.connection_of(client).id, "a2").unwrap();
    until("the agent says why it stays", || cluster.connection_of(client).stays.as_deref() == Some("in_request"));
}

/// A response that cannot continue at another agent. Its connection was ordered from a1 to a2 in its middle.
struct Waiting<'a> {
    cluster: &'a Cluster,
    client: IpAddr,
    http: Http<Tls>,
    head: Head,
}

impl<'a> Waiting<'a> {
    fn begin(cluster: &'a Cluster, request: &[u8]) -> Self {
        let client = cluster.clients.served_by("a1");
        let mut http = Http::new(Tls::to_site(client, cluster.service, &Taste::default()).unwrap());
        http.send(request).unwrap();
        let head = http.read_head().unwrap();
        order_in_request(cluster, client);
        Self { cluster, client, http, head }
    }

    /// Reads the content. The connection is at a1 in the middle, and moves at the end.
    fn until_it_has_moved(&mut self) -> Vec<u8> {
        let mut body = Vec::with_capacity(LARGE_LEN as usize);
        while body.len() < (LARGE_LEN / 2) as usize {
            body.extend(self.read_content(body.len()));
        }
        assert_eq!(self.cluster.connection_of(self.client).node, "a1");
        loop {
            let bytes = self.read_content(body.len());
            if bytes.is_empty() {
                break;
            }
            body.extend(bytes);
        }
        until("it has moved", || self.cluster.connection_of(self.client).node == "a2");
        body
    }

    /// The next bytes of the content, of which `read` were read. Empty at its end.
    fn read_content(&mut self, read: usize) -> Vec<u8> {
        match self.head.len() {
            Ok(len) if len as usize == read => Vec::new(),
            Ok(len) => self.http.read_piece(len as usize - read).unwrap(),
            Err(_) => self.http.read_chunk().unwrap(),
        }
    }
}

fn files() -> Plan {
    Plan { content: Content::Files(&[LARGE_LEN, SMALL_LEN]), ..Plan::default() }
}

pub(crate) fn file(len: u64) -> String {
    format!("/{len}.bin")
}

/// Call it while the clients are connected.
pub(crate) fn check_nothing_was_lost(cluster: &Cluster) {
    assert_eq!(cluster.dispatcher().count("watari_dispatcher_connections_reset_total", ""), 0);
    assert_eq!(cluster.count_on_agents("watari_agent_lost_in_moves_total", ""), 0);
    assert_eq!(cluster.count_on_agents("watari_agent_records_refused_total", ""), 0);
    assert_eq!(cluster.count_on_agents("watari_files_bodies_cut_total", ""), 0);
}

pub(crate) fn prepared(cluster: &Cluster, result: &str) -> i64 {
    cluster.count_on_agents("watari_agent_responses_prepared_total", result)
}

/// Each of these moves was prepared once. On a busy machine a move can take too long: it is aborted, and the next one
/// prepares the response again. Returns the number of aborted moves.
fn check_prepared(cluster: &Cluster, moves: i64) -> i64 {
    let aborted = cluster.dispatcher().count("watari_dispatcher_moves_aborted_total", "");
    assert!((moves..=moves + aborted).contains(&prepared(cluster, "prepared")), "{aborted} moves were aborted");
    aborted
}

#[test]
fn the_download_of_a_file_moves_again_and_again() {
    let cluster = Cluster::start(&files());
    let mut done = Vec::new();
    for version in [&TLS12, &TLS13] {
        let taste = Taste { version, ..Taste::default() };
        let mut download = Download::begin(&cluster, "a1", &file(LARGE_LEN), &taste);
        let before = cluster.connection_of(download.client).moves;
        for turn in 1..=MOVES {
            download.move_to(AGENTS[turn as usize % AGENTS.len()]);
        }
        assert_eq!(cluster.connection_of(download.client).moves, before + MOVES);
        done.push(download.finish(&file(SMALL_LEN)));
    }
    check_prepared(&cluster, 2 * i64::from(MOVES));
    check_nothing_was_lost(&cluster);
    drop(done);
    cluster.wait_until_idle();
}

#[test]
fn the_download_from_an_origin_moves_again_and_again() {
    let root = Docroot::new().unwrap();
    for len in [LARGE_LEN, SMALL_LEN] {
        let content = watari_test_origins::Content::given(pattern(len, 0..len));
        root.put(&len.to_string(), &content, SystemTime::UNIX_EPOCH + Duration::from_hours(498_198)).unwrap();
    }
    let servers = [(); 2].map(|()| Server::Nginx.start(&root, "").unwrap_or_else(|error| panic!("{error}")));
    let [one, other] = servers.each_ref().map(Running::url);
    let log = "access_log = { file = \"access.log\", format = \"json\" }";
    let content = Content::Proxy(format!("[agent.proxy]\norigins = [\"{one}\", \"{other}\"]\n{log}"));
    let cluster = Cluster::start(&Plan { content, ..Plan::default() });
    let mut download = Download::begin(&cluster, "a1", &format!("/{LARGE_LEN}"), &Taste::default());
    for turn in 1..=MOVES {
        download.move_to(AGENTS[turn as usize % AGENTS.len()]);
    }
    let http = download.finish(&format!("/{SMALL_LEN}"));
    let aborted = check_prepared(&cluster, MOVES.into());
    check_nothing_was_lost(&cluster);
    until("each part of the download is in the log", || {
        let log = fs::read_to_string(cluster.dir().join("access.log")).unwrap_or_default();
        let parts = |ending: &str| log.matches(&format!("\"ending\":\"{ending}\"")).count();
        assert!(parts("client_left") + parts("cut") <= usize::try_from(aborted).unwrap(), "{log}");
        // The last part, and the small file.
        parts("moved") == MOVES as usize && parts("complete") == 2
    });
    drop(http);
    cluster.wait_until_idle();
}

#[test]
fn a_range_moves_within_itself() {
    let cluster = Cluster::start(&files());
    let client = cluster.clients.served_by("a1");
    let mut http = Http::new(Tls::to_site(client, cluster.service, &Taste::default()).unwrap());
    let (first, last) = (1_234_567, LARGE_LEN - 7_654);
    let range = format!("GET {} HTTP/1.1\r\nhost: {SITE}\r\nrange: bytes={first}-{last}\r\n\r\n", file(LARGE_LEN));
    http.send(range.as_bytes()).unwrap();
    assert_eq!(http.read_head().unwrap().len().unwrap(), last + 1 - first);
    let mut download = Download { cluster: &cluster, client, http, at: first };
    download.read_until(|node, _| node == "a1");
    download.move_to("a2");
    download.move_to("a3");
    download.http.check_body(download.at..last + 1, LARGE_LEN, LARGE_LEN).unwrap();
    download.http.send(&get(&file(SMALL_LEN))).unwrap();
    download.http.take_download(SMALL_LEN, SMALL_LEN).unwrap();
    check_nothing_was_lost(&cluster);
}

/// No other agent can continue it, because it has no validator.
#[test]
fn a_response_without_a_validator_moves_at_its_end() {
    let cluster = Cluster::start(&Plan::default());
    let mut response = Waiting::begin(&cluster, &get_bytes(LARGE_LEN, LARGE_LEN));
    assert_eq!(response.head.len().unwrap(), LARGE_LEN);
    assert!(response.until_it_has_moved() == pattern(LARGE_LEN, 0..LARGE_LEN));
    response.http.download(SMALL_LEN, 1).unwrap();
    check_nothing_was_lost(&cluster);
}

#[test]
fn a_multipart_response_moves_at_its_end() {
    let cluster = Cluster::start(&files());
    let ranges = [0..LARGE_LEN / 2, LARGE_LEN / 2 + 1000..LARGE_LEN];
    let [first, second] = ranges.each_ref().map(|range| format!("{}-{}", range.start, range.end - 1));
    let request = format!("GET {} HTTP/1.1\r\nhost: {SITE}\r\nrange: bytes={first},{second}\r\n\r\n", file(LARGE_LEN));
    let mut response = Waiting::begin(&cluster, request.as_bytes());
    assert!(response.head.field("content-type").unwrap().starts_with("multipart/byteranges"), "{:?}", response.head);
    let body = response.until_it_has_moved();
    let mut rest = &body[..];
    for range in ranges {
        let head = rest.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
        let (part, next) = rest[head..].split_at((range.end - range.start) as usize);
        assert!(part == pattern(LARGE_LEN, range), "a part has wrong bytes");
        rest = next;
    }
    response.http.send(&get(&file(SMALL_LEN))).unwrap();
    response.http.take_download(SMALL_LEN, SMALL_LEN).unwrap();
    check_nothing_was_lost(&cluster);
}

#[test]
fn a_chunked_response_moves_at_its_end() {
    let origin = Script::start(|_| {
        let mut response = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        for chunk in pattern(LARGE_LEN, 0..LARGE_LEN).chunks(100_000) {
            response.extend([format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
        }
        response.extend(b"0\r\n\r\n");
        Reply::raw(response)
    });
    let cluster = Cluster::start(&behind(&origin, ""));
    let mut response = Waiting::begin(&cluster, &get("/"));
    assert_eq!(response.head.field("transfer-encoding"), Some("chunked"));
    assert!(response.until_it_has_moved() == pattern(LARGE_LEN, 0..LARGE_LEN));
    check_nothing_was_lost(&cluster);
}

/// The agent compresses it. No other agent would produce the same bytes for sure.
#[test]
fn a_response_that_the_agent_compresses_moves_at_its_end() {
    for coding in ["gzip", "zstd"] {
        let origin = Script::start(|_| Reply::ok("content-type: text/plain\r\n", pattern(LARGE_LEN, 0..LARGE_LEN)));
        let cluster = Cluster::start(&behind(&origin, "compress = {}\n"));
        let request = format!("GET / HTTP/1.1\r\nhost: {SITE}\r\naccept-encoding: {coding}\r\n\r\n");
        let mut response = Waiting::begin(&cluster, request.as_bytes());
        assert_eq!(response.head.field("content-encoding"), Some(coding));
        let coded = response.until_it_has_moved();
        let mut content = Vec::with_capacity(LARGE_LEN as usize);
        if coding == "gzip" {
            GzDecoder::new(&coded[..]).read_to_end(&mut content).unwrap();
        } else {
            content = zstd::decode_all(&coded[..]).unwrap();
        }
        assert!(content == pattern(LARGE_LEN, 0..LARGE_LEN), "{coding}: other bytes");
        check_nothing_was_lost(&cluster);
    }
}

/// A request whose content is still coming stays, and its connection moves after the response.
#[test]
fn an_upload_moves_after_its_response() {
    let cluster = Cluster::start(&Plan::default());
    let client = cluster.clients.served_by("a1");
    let mut http = Http::new(Tls::to_site(client, cluster.service, &Taste::default()).unwrap());
    let body = pattern(7, 0..SMALL_LEN);
    let request = put(&body);
    let (first, rest) = request.split_at(request.len() / 2);
    http.send(first).unwrap();
    order_in_request(&cluster, client);
    http.send(rest).unwrap();
    http.take_receipt(&body).unwrap();
    until("it has moved", || cluster.connection_of(client).node == "a2");
    http.upload(&body).unwrap();
    check_nothing_was_lost(&cluster);
}

fn behind(origin: &Script, keys: &str) -> Plan {
    let content = format!("[agent.proxy]\norigins = [\"http://{}\"]\n{keys}", origin.address);
    Plan { content: Content::Proxy(content), ..Plan::default() }
}

/// The target has a file of the same name and length, and another validator.
#[test]
fn a_download_stays_if_the_target_has_another_version() {
    let cluster = Cluster::start(&files());
    let other = cluster.dir().join("other");
    fs::create_dir(&other).unwrap();
    for len in [LARGE_LEN, SMALL_LEN] {
        let modified = Duration::from_hours(498_199);
        write_settled(&other.join(format!("{len}.bin")), &pattern(len + 1, 0..len), modified);
    }
    let a2 = cluster.node("a2");
    a2.reconfigure(|text| text.replace("root = \"www\"", "root = \"other\""));
    let mut download = Download::begin(&cluster, "a1", &file(LARGE_LEN), &Taste::default());
    download.order("a2");
    until("the target has refused", || prepared(&cluster, "validator") == 1);
    for _ in 0..20 {
        download.read();
    }
    assert_eq!(cluster.connection_of(download.client).node, "a1");
    download.move_to("a3");
    while download.at < LARGE_LEN {
        download.read();
    }
    check_nothing_was_lost(&cluster);
}

/// The buffers on the way are full when the move begins. The dispatcher reads what the source has sent.
#[test]
fn a_download_moves_although_its_client_reads_nothing() {
    let cluster = Cluster::start(&files());
    let mut download = Download::begin(&cluster, "a1", &file(LARGE_LEN), &Taste::default());
    for agent in ["a2", "a3", "a1"] {
        let moves = cluster.connection_of(download.client).moves;
        download.order(agent);
        until("it has moved", || cluster.connection_of(download.client).moves > moves);
        assert_eq!(cluster.connection_of(download.client).node, agent);
        // The next agent fills the buffers again.
        for _ in 0..100 {
            download.read();
        }
    }
    let http = download.finish(&file(SMALL_LEN));
    check_nothing_was_lost(&cluster);
    drop(http);
    cluster.wait_until_idle();
}

/// A connection that is idle ends in a drain only if no agent can get it for seconds.
#[test]
fn a_drain_waits_for_an_agent_with_room() {
    let plan = Plan {
        agents: Some(&["a1", "a2"]),
        dispatcher: "handshake = \"least_connections\"\nbulk = \"stay\"",
        of_each_agent: ", connections_max = 1",
        ..Plan::default()
    };
    let cluster = Cluster::start(&plan);
    let clients = [1, 2].map(|seed| {
        let ip = cluster.clients.any();
        let mut http = Http::new(Tls::to_site(ip, cluster.service, &Taste::default()).unwrap());
        http.download(SMALL_LEN, seed).unwrap();
        (ip, http)
    });
    let [first, second] = clients.each_ref().map(|(ip, _)| cluster.connection_of(*ip).node);
    assert_ne!(first, second);
    let mut drain = drain(&cluster.dispatcher().admin(), &second);
    until("the drain has begun", || cluster.dispatcher().log().contains("drain begun"));
    let [(_, leaves), (ip, mut http)] = clients;
    http.download(SMALL_LEN, 3).unwrap();
    assert_eq!(cluster.connection_of(ip).node, second);
    reset(leaves.stream.tcp());
    drop(leaves);
    until("it has moved", || cluster.connection_of(ip).node == first);
    http.download(SMALL_LEN, 4).unwrap();
    assert!(drain.wait().unwrap().success());
}

#[test]
fn a_drain_moves_downloads_in_progress() {
    let cluster = Cluster::start(&files());
    let mut downloads: Vec<_> =
        (0..4).map(|_| Download::begin(&cluster, "a2", &file(LARGE_LEN), &Taste::default())).collect();
    let mut drain = drain(&cluster.dispatcher().admin(), "a2");
    for download in &mut downloads {
        download.read_until(|node, _| node != "a2");
    }
    let mut done = Vec::new();
    for download in downloads {
        done.push(download.finish(&file(SMALL_LEN)));
    }
    assert!(drain.wait().unwrap().success());
    check_nothing_was_lost(&cluster);
}
