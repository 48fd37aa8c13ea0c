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

const THREADS: usize = 40;
const CLIENTS_PER_THREAD: usize = 50;

/// Files: the seed of their pattern is their length.
const LARGE_LEN: u64 = 4_000_000;
const SMALL_LEN: u64 = 5_000;
const UPLOAD_LEN: u64 = 20_000;
/// The bytes of a download that a client reads at a time.
const STEP: u64 = 64 << 10;

/// The agent that dies. The memory of the others is compared over the time.
const MORTAL: &str = "a3";
/// Connections that one order moves.
const MOVES: usize = 40;
/// The longest time that an agent is stopped, in milliseconds: shorter than the timeout of links.
const STANDSTILL_MS_MAX: u64 = 800;
/// The growth of a node's memory from the third quarter to the last that is not a leak: a quarter, and 8 MiB.
const GROWTH_KIB_MAX: u64 = 8 << 10;

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

/// Moves, drains, stalls and kills, one after the other.
fn disturb(cluster: &Cluster, watch: &Watch, random: &mut Random) {
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
        2 => {
            cluster.node(MORTAL).kill();
            cluster.node(MORTAL).start();
            cluster.wait_until_whole();
        }
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
}

/// The median of each quarter.
fn quarters(samples: &[u64]) -> [u64; 4] {
    [0, 1, 2, 3].map(|number| {
        let mut quarter = samples[number * samples.len() / 4..(number + 1) * samples.len() / 4].to_vec();
        quarter.sort_unstable();
        quarter.get(quarter.len() / 2).copied().unwrap_or_default()
    })
}

#[test]
#[ignore = "long: make soak"]
fn soak_clients_of_all_kinds_through_all_disturbances() {
    let lasts_s = std::env::var("SOAK_S").map_or(600, |text| text.parse().expect("SOAK_S is a number of seconds"));
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
    let cluster = Cluster::start(&Plan { content: Content::Proxy(proxy), ..Plan::default() });
    let watch = Watch::default();
    let observed: Vec<_> = ["d1", "a1", "a2"].into_iter().map(|name| (name, Mutex::new(Vec::new()))).collect();
    thread::scope(|scope| {
        for number in 0..THREADS as u64 {
            let random = Random::new(seed ^ (number + 1) << 32);
            scope.spawn(|| live(&cluster, &watch, random));
        }
        let _end = End(&watch.over);
        let (mut random, end) = (Random::new(seed), Instant::now() + Duration::from_secs(lasts_s));
        while Instant::now() < end {
            disturb(&cluster, &watch, &mut random);
            for (name, samples) in &observed {
                samples.lock().unwrap().push(cluster.node(name).memory_kib());
            }
        }
    });
    let moves = cluster.dispatcher().count("watari_dispatcher_moves_committed_total", "");
    let (requests, cut) = (watch.requests.load(Ordering::Relaxed), watch.cut.load(Ordering::Relaxed));
    println!("{requests} requests, {moves} moves, {cut} connections cut by kills");
    cluster.wait_until_idle();
    for (name, _) in &observed {
        println!("{name}: {} KiB after the last connection", cluster.node(name).memory_kib());
    }
    for (name, samples) in &observed {
        let quarters @ [.., third, last] = quarters(&samples.lock().unwrap());
        println!("{name}: {quarters:?} KiB, median of each quarter");
        assert!(last <= third + third / 4 + GROWTH_KIB_MAX, "{name} has grown from {third} to {last} KiB");
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
