//! Many clients of several kinds, while connections move, agents are drained, stall and die. Run with `make soak`.
//! `SOAK_S` is the duration in seconds. Seeded by `WATARI_SOAK_SEED`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use watari_test_origins::LoopbackAddresses;
use watari_test_origins::real::{Docroot, Running, Server};

use crate::clients::http::{Fault, Http, put};
use crate::clients::tls::{Taste, Tls};
use crate::harness::ctl::{drain, order_move, undrain};
use crate::harness::origin::Origin;
use crate::harness::pattern::{Random, pattern, seed};
use crate::harness::site::SITE;
use crate::harness::{AGENTS, Cluster, Content, Plan};
use crate::soak::lasts_s;

const THREADS: usize = 40;
const CLIENTS_PER_THREAD: usize = 50;

/// Files: the seed of their pattern is their length.
const LARGE_LEN: u64 = 4_000_000;
const SMALL_LEN: u64 = 5_000;
const UPLOAD_LEN: u64 = 20_000;
/// The bytes of a download that a client reads at a time.
const STEP: u64 = 64 << 10;

/// The clients come and go this many times.
const ROUNDS: u64 = 5;
/// The agent that dies, in every second round. In the others, no connection may be cut.
const MORTAL: &str = "a3";
/// Moves to it that are being decided when it dies, at most: its connections are counted just before that.
const UNDECIDED_MAX: u64 = 40;
/// The nodes whose memory is compared after each round.
const OBSERVED: [&str; 3] = ["d1", "a1", "a2"];
/// Connections that one order moves.
const MOVES: usize = 40;
/// The longest time that an agent is stopped, in milliseconds: shorter than the timeout of links.
const STANDSTILL_MS_MAX: u64 = 800;
/// The growth of a node's memory from the end of the second round to that of the last that is not a leak. The allocator
/// does not return all memory of a burst.
const GROWTH_KIB_MAX: u64 = 24 << 10;
/// The most memory of a node under this load. The dispatcher is allowed 256 MiB of undelivered bytes.
const MEMORY_KIB_MAX: u64 = 448 << 10;

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Idle,
    Downloading,
    Uploading,
    Pipelining,
}

/// Half of the clients are idle.
const KINDS: [Kind; 8] = [
    Kind::Idle,
    Kind::Downloading,
    Kind::Idle,
    Kind::Uploading,
    Kind::Idle,
    Kind::Downloading,
    Kind::Idle,
    Kind::Pipelining,
];

#[derive(Default)]
struct Watch {
    over: AtomicBool,
    requests: AtomicU64,
    /// Connections that were cut, visibly for the client.
    cut: AtomicU64,
    /// Errors that must never occur.
    wrong: Mutex<Vec<String>>,
}

/// One client, and its connection if it has one.
struct Client {
    kind: Kind,
    http: Option<Http<Tls>>,
    /// The bytes of the running download that have come.
    at: Option<u64>,
}

impl Client {
    /// Does one step. Connects first if it has no connection.
    fn step(&mut self, cluster: &Cluster, random: &mut Random) -> Result<u64, Fault> {
        if self.http.is_none() {
            let tastes = Taste::all();
            let taste = &tastes[random.below(tastes.len() as u64) as usize];
            let Ok(tls) = Tls::to_site(cluster.clients.any(), cluster.service, taste) else { return Ok(0) };
            (self.http, self.at) = (Some(Http::new(tls)), None);
        }
        let Some(http) = &mut self.http else { return Ok(0) };
        match self.kind {
            Kind::Idle if random.below(20) > 0 => Ok(0),
            Kind::Idle => {
                http.send(&get(SMALL_LEN))?;
                http.take_download(SMALL_LEN, SMALL_LEN).map(|()| 1)
            }
            Kind::Downloading => download_on(http, &mut self.at),
            Kind::Uploading => http.upload(&pattern(random.next(), 0..UPLOAD_LEN)).map(|()| 1),
            Kind::Pipelining => {
                let upload = pattern(random.next(), 0..1_000);
                http.send(&[get(SMALL_LEN), put(&upload), get(SMALL_LEN)].concat())?;
                http.take_download(SMALL_LEN, SMALL_LEN)?;
                http.take_receipt(&upload)?;
                http.take_download(SMALL_LEN, SMALL_LEN).map(|()| 3)
            }
        }
    }
}

/// Reads a step of a download. Begins one if none is running.
fn download_on(http: &mut Http<Tls>, at: &mut Option<u64>) -> Result<u64, Fault> {
    let Some(from) = *at else {
        http.send(&get(LARGE_LEN))?;
        let head = http.read_head()?;
        if head.status != 200 || head.len()? != LARGE_LEN {
            return Err(Fault::Wrong(format!("{head:?}")));
        }
        *at = Some(0);
        return Ok(0);
    };
    let end = (from + STEP).min(LARGE_LEN);
    http.check_body(from..end, LARGE_LEN, LARGE_LEN)?;
    *at = (end < LARGE_LEN).then_some(end);
    Ok(u64::from(at.is_none()))
}

fn get(len: u64) -> Vec<u8> {
    format!("GET /{len} HTTP/1.1\r\nhost: {SITE}\r\n\r\n").into_bytes()
}

/// Does steps of the clients in turn.
fn live(cluster: &Cluster, watch: &Watch, mut random: Random) {
    let kinds = KINDS.iter().cycle().take(CLIENTS_PER_THREAD);
    let mut clients: Vec<_> = kinds.map(|kind| Client { kind: *kind, http: None, at: None }).collect();
    while !watch.over.load(Ordering::Relaxed) {
        for client in &mut clients {
            match client.step(cluster, &mut random) {
                Ok(requests) => _ = watch.requests.fetch_add(requests, Ordering::Relaxed),
                Err(Fault::Wrong(what)) => watch.wrong.lock().unwrap().push(format!("{:?}: {what}", client.kind)),
                Err(Fault::Broken(_) | Fault::Closed) => {
                    watch.cut.fetch_add(1, Ordering::Relaxed);
                    client.http = None;
                }
            }
        }
    }
}

/// Moves, drains or stalls, or kills if `kills` is set. Returns the most connections that this may cut.
fn disturb(cluster: &Cluster, watch: &Watch, random: &mut Random, kills: bool) -> u64 {
    let mut lost_max = 0;
    let admin = cluster.dispatcher().admin();
    let agent = random.pick(&AGENTS);
    match random.below(10) {
        0 => {
            let mut draining = drain(&admin, agent);
            // The command ends when all have left, or after its grace time.
            draining.wait().unwrap();
            undrain(&admin, agent);
        }
        1 => {
            cluster.node(agent).stop();
            // The duration is the disturbance itself.
            thread::sleep(Duration::from_millis(random.below(STANDSTILL_MS_MAX)));
            cluster.node(agent).go_on();
        }
        2 | 3 if kills => lost_max = kill(cluster),
        _ => {
            let connections = cluster.connections();
            for _ in 0..MOVES.min(connections.len()) {
                let connection = &connections[random.below(connections.len() as u64) as usize];
                // The order is refused if the connection is there already, or has ended.
                let _ = order_move(&admin, &connection.id, agent);
            }
        }
    }
    assert!(watch.wrong.lock().unwrap().is_empty(), "{:#?}", watch.wrong.lock().unwrap());
    lost_max
}

/// Kills the agent that dies, and starts it again. Returns the most connections that this may cut.
fn kill(cluster: &Cluster) -> u64 {
    let mortal = cluster.node(MORTAL);
    // While it is stopped, it completes no handshake and gets no connection by a move that begins now.
    mortal.stop();
    let connections = cluster.connections().iter().filter(|connection| connection.node == MORTAL).count();
    mortal.kill();
    mortal.start();
    cluster.wait_until_whole();
    connections as u64 + UNDECIDED_MAX
}

/// The clients come, live through disturbances, and leave. Returns the most memory of each observed node meanwhile, and
/// its memory afterwards, in KiB. Checks that no connection was cut, except by kills.
fn round(
    cluster: &Cluster,
    watch: &Watch,
    random: &mut Random,
    lasts: Duration,
    kills: bool,
) -> [(u64, u64); OBSERVED.len()] {
    let (mut most, mut lost_max, before) = ([0; OBSERVED.len()], 0, watch.cut.load(Ordering::Relaxed));
    let memory = || OBSERVED.map(|node| cluster.node(node).memory_kib());
    thread::scope(|scope| {
        let _end = End(&watch.over);
        for _ in 0..THREADS {
            let random = Random::new(random.next());
            scope.spawn(|| live(cluster, watch, random));
        }
        let end = Instant::now() + lasts;
        while Instant::now() < end {
            lost_max += disturb(cluster, watch, random, kills);
            for (most, now) in most.iter_mut().zip(memory()) {
                *most = now.max(*most);
            }
        }
    });
    watch.over.store(false, Ordering::Relaxed);
    let cut = watch.cut.load(Ordering::Relaxed) - before;
    println!("{cut} connections cut; kills may cut {lost_max}");
    assert!(cut <= lost_max, "{cut} connections were cut, and kills may cut {lost_max}");
    cluster.wait_until_idle();
    let after = memory();
    std::array::from_fn(|node| (most[node], after[node]))
}

#[test]
#[ignore = "long: make soak"]
fn soak_clients_of_all_kinds_through_all_disturbances() {
    let seed = seed("WATARI_SOAK_SEED");
    let root = Docroot::new().unwrap();
    for len in [LARGE_LEN, SMALL_LEN] {
        let content = watari_test_origins::Content::given(pattern(len, 0..len));
        root.put(&len.to_string(), &content, SystemTime::UNIX_EPOCH + Duration::from_hours(498_198)).unwrap();
    }
    let servers = [(); 2].map(|()| Server::Nginx.start(&root, "").unwrap_or_else(|error| panic!("{error}")));
    let uploads = Origin::start(LoopbackAddresses::draw().take());
    let [one, other] = servers.each_ref().map(Running::url);
    let proxy = format!(
        "[[agent.proxy.pool]]\nname = \"files\"\norigins = [\"{one}\", \"{other}\"]\n\
         [[agent.proxy.pool]]\nname = \"uploads\"\norigins = [\"http://{}\"]\n\
         [[agent.proxy.route]]\npath = \"/upload\"\npool = \"uploads\"\n\
         [[agent.proxy.route]]\npool = \"files\"",
        uploads.address
    );
    let dispatcher_limits = "undelivered_mib_max = 256";
    // Idle clients come back seldom on a slow machine. Only kills may end their connections.
    let agent_limits = "keep_alive_timeout = \"10m\"";
    let content = Content::Proxy(proxy);
    let cluster = Cluster::start(&Plan { content, dispatcher_limits, agent_limits, ..Plan::default() });
    let watch = Watch::default();
    let (mut random, lasts) = (Random::new(seed), Duration::from_secs(lasts_s() / ROUNDS));
    let memory: Vec<_> =
        (0..ROUNDS).map(|number| round(&cluster, &watch, &mut random, lasts, number % 2 == 1)).collect();
    let moves = cluster.dispatcher().count("watari_dispatcher_moves_committed_total", "");
    let requests = watch.requests.load(Ordering::Relaxed);
    println!("{requests} requests, {moves} moves");
    for (number, node) in OBSERVED.into_iter().enumerate() {
        let of_node: Vec<_> = memory.iter().map(|round| round[number]).collect();
        println!("{node}: {of_node:?} KiB, the most and afterwards, of each round");
        let (most, after): (Vec<_>, Vec<_>) = of_node.into_iter().unzip();
        let (second, last) = (after[1], after[after.len() - 1]);
        assert!(last <= second + GROWTH_KIB_MAX, "{node} has grown from {second} to {last} KiB");
        assert!(most.iter().all(|most| *most <= MEMORY_KIB_MAX), "{node} needed {most:?} KiB");
    }
    assert!(requests > 0 && moves > 0);
    assert!(watch.wrong.lock().unwrap().is_empty(), "{:#?}", watch.wrong.lock().unwrap());
}

/// Ends the clients when it is dropped, also if the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
