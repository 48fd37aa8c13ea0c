//! Memory over a long time, and of idle connections. Run with `make soak`. `SOAK_S` is the duration in seconds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::clients::http::{Http, get_bytes};
use crate::clients::tls::{TLS12, TLS13, Taste, Tls, dial};
use crate::harness::pattern::given;
use crate::harness::{Cluster, NODES, Plan};

/// The interval of samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);
/// The most growth of a node's memory from the third quarter to the last, in KiB: far less than the load allocates.
const GROWTH_KIB_MAX: u64 = 4 << 10;
/// Idle connections. This process has the clients' ends.
const IDLE: usize = 2_000;

/// The duration of a long run in seconds.
pub(crate) fn lasts_s() -> u64 {
    given("SOAK_S").unwrap_or(600)
}

fn connect(cluster: &Cluster, taste: &Taste) -> Http<Tls> {
    Http::new(Tls::to_site(cluster.clients.any(), cluster.service, taste).unwrap())
}

/// A sequence of new connections that move or not, keep-alive, uploads, cancelled downloads, and connections without a
/// handshake.
fn load(cluster: &Cluster, over: &AtomicBool) {
    let tastes = [&TLS12, &TLS13].map(|version| Taste { version, ..Taste::default() });
    let upload = vec![7; 20_000];
    for (round, taste) in (0..).zip(tastes.iter().cycle()) {
        if over.load(Ordering::Relaxed) {
            return;
        }
        let mut client = connect(cluster, taste);
        for seed in 0..5 {
            client.download(1000 + 10_000 * seed, seed).unwrap();
        }
        client.upload(&upload).unwrap();
        client.download(2_000_000, round).unwrap();
        client.send(&get_bytes(10_000_000, round)).unwrap();
        client.read_head().unwrap();
        drop(client);
        drop(dial(cluster.clients.any(), cluster.service));
    }
}

/// The median of each node's resident memory in each quarter of the time, in KiB.
fn quarters(cluster: &Cluster, lasts: Duration) -> Vec<[u64; 4]> {
    let end = Instant::now() + lasts;
    let mut samples: Vec<Vec<u64>> = vec![Vec::new(); NODES.len()];
    while Instant::now() < end {
        for (node, samples) in NODES.iter().zip(&mut samples) {
            samples.push(cluster.node(node).memory_kib());
        }
        thread::sleep(SAMPLE_INTERVAL);
    }
    let median = |samples: &[u64]| {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        sorted[sorted.len() / 2]
    };
    let quarter =
        |samples: &[u64], number: usize| median(&samples[number * samples.len() / 4..(number + 1) * samples.len() / 4]);
    samples.iter().map(|samples| [0, 1, 2, 3].map(|number| quarter(samples, number))).collect()
}

#[test]
#[ignore = "long: make soak"]
fn soak_memory_does_not_grow() {
    let cluster = Cluster::start(&Plan::default());
    let over = AtomicBool::new(false);
    let memory = thread::scope(|scope| {
        let loads = [(); 3].map(|()| scope.spawn(|| load(&cluster, &over)));
        let memory = quarters(&cluster, Duration::from_secs(lasts_s()));
        over.store(true, Ordering::Relaxed);
        for load in loads {
            load.join().unwrap();
        }
        memory
    });
    for (node, quarters) in NODES.iter().zip(&memory) {
        println!("{node}: {quarters:?} KiB, median of each quarter");
    }
    for (node, [.., third, last]) in NODES.iter().zip(memory) {
        assert!(last.saturating_sub(third) <= GROWTH_KIB_MAX, "{node} has grown from {third} to {last} KiB");
    }
}

#[test]
#[ignore = "long: make soak"]
fn soak_idle_connections_take_little() {
    let cluster = Cluster::start(&Plan { agent_limits: "keep_alive_timeout = \"10m\"", ..Plan::default() });
    let memory = || NODES.map(|node| cluster.node(node).memory_kib());
    let before = memory();
    let clients: Vec<_> = (0..IDLE as u64)
        .map(|seed| {
            let mut client = connect(&cluster, &Taste::default());
            client.download(1000, seed).unwrap();
            client
        })
        .collect();
    let [dispatcher, agents @ ..] = memory();
    let [dispatcher_before, agents_before @ ..] = before;
    let of_agents = agents.iter().sum::<u64>() - agents_before.iter().sum::<u64>();
    let bytes_each = |kib: u64| kib * 1024 / clients.len() as u64;
    let each = (bytes_each(dispatcher - dispatcher_before), bytes_each(of_agents));
    println!("an idle connection takes {} bytes of a dispatcher's memory and {} of an agent's", each.0, each.1);
    assert!(each.0 < 32 << 10 && each.1 < 64 << 10);
}
