//! Nodes die and stop at random, while clients count every byte.
//!
//! *Visitors* connect, send some requests, and leave. Their connections are the ones that move. *Residents* stay. A
//! disturbance may cost the connections of the node that it strikes, and no others.
//!
//! Seeded: `WATARI_CHAOS_SEED` replays the disturbances of a run, as far as threads and processes can be replayed.
//! `WATARI_CHAOS_ROUNDS` is the number of rounds.

use std::collections::HashMap;
use std::net::{IpAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::clients::http::{Fault, Http, fault, get_bytes};
use crate::clients::tls::{Taste, Tls, dial};
use crate::harness::pattern::{Random, given, pattern, seed};
use crate::harness::site::SITE;
use crate::harness::wait::until_some;
use crate::harness::{AGENTS, Cluster, DISPATCHER, NODES, Plan};

const VISITORS: usize = 8;
const RESIDENTS: usize = 9;

/// The longest time that a node is stopped, in milliseconds: longer than a move may take, shorter than the timeout of
/// links.
const STANDSTILL_MS_MAX: u64 = 1_200;

/// The delay before a visitor tries again.
const PAUSE: Duration = Duration::from_millis(20);

/// The most memory of a node at the end, in KiB. A node that has just started has about 20,000.
const MEMORY_KIB_MAX: u64 = 150_000;

#[test]
fn whatever_happens_no_client_is_deceived() {
    run(50);
}

#[test]
#[ignore = "takes half an hour: `make chaos`"]
fn whatever_happens_for_long_no_client_is_deceived() {
    run(1_200);
}

fn run(rounds: u64) {
    let rounds = given("WATARI_CHAOS_ROUNDS").unwrap_or(rounds);
    let seed = seed("WATARI_CHAOS_SEED");
    let dispatcher_limits = "move_timeout = \"400ms\"\nfinal_timeout = \"1s\"";
    let cluster = Cluster::start(&Plan { dispatcher_limits, ..Plan::default() });
    let watch = Watch::default();
    thread::scope(|scope| {
        for number in 0..VISITORS as u64 {
            let visitor = Visitor { cluster: &cluster, watch: &watch, random: Random::new(seed ^ (number + 1) << 32) };
            scope.spawn(|| visitor.visit_until_the_end());
        }
        let _end = End(&watch.over);
        Town::settle(&cluster, &watch, Random::new(seed)).endure(rounds);
    });
    let log = cluster.dispatcher().log();
    let [committed, aborted] = ["move committed", "move aborted"].map(|what| log.matches(what).count());
    eprintln!("chaos: {committed} moves, {aborted} aborted, {watch:?}");
    assert!(committed > 0 && aborted > 0);
    watch.check();
    check_healed(&cluster);
}

fn check_healed(cluster: &Cluster) {
    cluster.wait_until_idle();
    for address in cluster.clients.two_of_each_agent() {
        let mut client = Http::new(Tls::to_site(address, cluster.service, &Taste::default()).unwrap());
        client.download(1_000_000, 1).unwrap();
    }
    cluster.wait_until_idle();
    for node in NODES.map(|name| cluster.node(name)) {
        let memory_kib = node.memory_kib();
        assert!(memory_kib < MEMORY_KIB_MAX, "{} holds {memory_kib} KiB", node.name);
    }
}

/// The observations of all clients.
#[derive(Debug, Default)]
struct Watch {
    over: AtomicBool,
    visits: AtomicU64,
    /// Visits that a disturbance cut short, visibly for the visitor.
    cut_short: AtomicU64,
    requests: AtomicU64,
    /// Errors that must never occur.
    wrong: Mutex<Vec<String>>,
}

impl Watch {
    /// Counts or notes a client's fault.
    fn note(&self, who: &str, fault: Fault) {
        match fault {
            Fault::Broken(_) | Fault::Closed => {
                self.cut_short.fetch_add(1, Ordering::Relaxed);
            }
            Fault::Wrong(what) => self.wrong.lock().unwrap().push(format!("{who}: {what}")),
        }
    }

    fn check(&self) {
        let wrong = self.wrong.lock().unwrap();
        assert!(wrong.is_empty(), "{wrong:#?}");
        let (visits, cut_short) = (self.visits.load(Ordering::Relaxed), self.cut_short.load(Ordering::Relaxed));
        assert!(visits > 2 * cut_short, "{cut_short} of {visits} visits were cut short");
    }
}

/// Ends the visits when it is dropped, also if a test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A client that connects again and again.
struct Visitor<'a> {
    cluster: &'a Cluster,
    watch: &'a Watch,
    random: Random,
}

impl Visitor<'_> {
    fn visit_until_the_end(mut self) {
        let tastes = Taste::all();
        while !self.watch.over.load(Ordering::Relaxed) {
            let taste = &tastes[self.random.below(tastes.len() as u64) as usize];
            let address = self.cluster.clients.any();
            let Ok(tcp) = dial(address, self.cluster.service) else {
                // The dispatcher is down at the moment.
                thread::sleep(PAUSE);
                continue;
            };
            self.watch.visits.fetch_add(1, Ordering::Relaxed);
            if let Err(fault) = self.visit(tcp, taste) {
                self.watch.note(&format!("visitor {address}"), fault);
            }
        }
    }

    fn visit(&mut self, tcp: TcpStream, taste: &Taste) -> Result<(), Fault> {
        let mut client = Http::new(Tls::connect(tcp, taste.config(), SITE, |_| {}).map_err(fault)?);
        for _ in 0..=self.random.below(4) {
            self.request(&mut client)?;
            self.watch.requests.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn request(&mut self, client: &mut Http<Tls>) -> Result<(), Fault> {
        let seed = self.random.next();
        match self.random.below(8) {
            0 => client.download(self.random.below(3_000_000), seed),
            1..=3 => client.download(self.random.below(50_000), seed),
            4 => client.upload(&pattern(seed, 0..self.random.below(1_000_000))),
            5 => client.upload(&pattern(seed, 0..self.random.below(10_000))),
            6 => {
                let len = self.random.below(400_000);
                client.send(format!("GET /slow/{len}?{seed} HTTP/1.1\r\nhost: site.test\r\n\r\n").as_bytes())?;
                client.take_download(len, seed)
            }
            _ => {
                client.send(&[get_bytes(1000, seed), get_bytes(70_000, seed)].concat())?;
                client.take_download(1000, seed)?;
                client.take_download(70_000, seed)
            }
        }
    }
}

/// A client that keeps its connection.
struct Resident {
    address: IpAddr,
    client: Http<Tls>,
}

impl Resident {
    /// Connects, and makes a first request.
    fn move_in(cluster: &Cluster) -> Self {
        let address = cluster.clients.any();
        let client = until_some("a resident is served", || {
            let mut client = Http::new(Tls::to_site(address, cluster.service, &Taste::default()).ok()?);
            client.download(1000, 1).ok()?;
            Some(client)
        });
        Self { address, client }
    }
}

/// A disturbance of the cluster.
#[derive(Debug, Clone, Copy)]
enum Disturbance {
    /// SIGKILL.
    Death(&'static str),
    /// SIGSTOP, and SIGCONT so many milliseconds later.
    Standstill(&'static str, u64),
    /// An agent is stopped, so that moves to it wait. Another agent dies meanwhile, so that some moves lose their
    /// source.
    DeathInStandstill { dies: &'static str, stands: &'static str, for_ms: u64 },
}

impl Disturbance {
    /// Ten disturbances in random order, at least one of every kind.
    fn draw_ten(random: &mut Random) -> Vec<Self> {
        let mut drawn: Vec<_> = (0..10).map(|kind| Self::draw(kind, random)).collect();
        for last in (1..drawn.len()).rev() {
            drawn.swap(last, random.below(last as u64 + 1) as usize);
        }
        drawn
    }

    fn draw(kind: u32, random: &mut Random) -> Self {
        let (agent, for_ms) = (random.pick(&AGENTS), random.below(STANDSTILL_MS_MAX));
        match kind {
            0 => Self::Death(DISPATCHER),
            1 => Self::Standstill(DISPATCHER, for_ms),
            2..=3 => Self::Death(agent),
            4..=6 => Self::Standstill(agent, for_ms),
            _ => {
                let others: Vec<_> = AGENTS.into_iter().filter(|other| *other != agent).collect();
                Self::DeathInStandstill { dies: random.pick(&others), stands: agent, for_ms }
            }
        }
    }

    fn dies(self) -> Option<&'static str> {
        match self {
            Self::Death(node) | Self::DeathInStandstill { dies: node, .. } => Some(node),
            Self::Standstill(..) => None,
        }
    }

    fn stands(self) -> Option<(&'static str, u64)> {
        match self {
            Self::Standstill(node, for_ms) | Self::DeathInStandstill { stands: node, for_ms, .. } => {
                Some((node, for_ms))
            }
            Self::Death(_) => None,
        }
    }
}

/// The residents, and the disturbances they go through.
struct Town<'a> {
    cluster: &'a Cluster,
    watch: &'a Watch,
    random: Random,
    residents: Vec<Resident>,
}

impl<'a> Town<'a> {
    fn settle(cluster: &'a Cluster, watch: &'a Watch, random: Random) -> Self {
        let residents = (0..RESIDENTS).map(|_| Resident::move_in(cluster)).collect();
        Self { cluster, watch, random, residents }
    }

    fn endure(mut self, rounds: u64) {
        let mut coming = Vec::new();
        for round in 0..rounds {
            if coming.is_empty() {
                coming = Disturbance::draw_ten(&mut self.random);
            }
            let disturbance = coming.pop().expect("ten were drawn");
            let struck = self.strike(disturbance);
            assert!(self.watch.wrong.lock().unwrap().is_empty(), "round {round}, {disturbance:?}: {:#?}", self.watch);
            self.cluster.wait_until_whole();
            for _ in 0..struck {
                self.residents.push(Resident::move_in(self.cluster));
            }
        }
        self.check_residents("in the end", |_| true);
    }

    /// Causes the disturbance, and waits for its end. Returns the number of residents that were allowed to lose their
    /// connection.
    fn strike(&mut self, disturbance: Disturbance) -> usize {
        let homes = self.homes();
        if let Some((node, _)) = disturbance.stands() {
            self.cluster.node(node).stop();
        }
        if let Some(node) = disturbance.dies() {
            self.cluster.node(node).kill();
            self.evict(|resident| node == DISPATCHER || homes[&resident.address] == node);
        }
        if let Some((node, for_ms)) = disturbance.stands() {
            if node != DISPATCHER {
                self.check_residents(&format!("{disturbance:?}"), |resident| homes[&resident.address] != node);
            }
            // The duration is the disturbance itself. No state is waited for by it.
            thread::sleep(Duration::from_millis(for_ms));
            self.cluster.node(node).go_on();
        }
        self.check_residents(&format!("{disturbance:?}"), |_| true);
        if let Some(node) = disturbance.dies() {
            self.cluster.node(node).start();
        }
        RESIDENTS - self.residents.len()
    }

    /// The node that serves each resident.
    fn homes(&self) -> HashMap<IpAddr, String> {
        let connections = self.cluster.connections();
        connections.into_iter().map(|connection| (connection.client.ip(), connection.node)).collect()
    }

    /// Removes the residents that lost their connection. Each must be able to detect the loss.
    fn evict(&mut self, lost: impl Fn(&Resident) -> bool) {
        for resident in self.residents.extract_if(.., |resident| lost(resident)) {
            let mut client = resident.client;
            assert!(!client.ends_cleanly(), "the connection of {} ended cleanly", resident.address);
        }
    }

    /// Checks that the residents of other nodes were not disturbed.
    fn check_residents(&mut self, when: &str, spared: impl Fn(&Resident) -> bool) {
        for resident in self.residents.iter_mut().filter(|resident| spared(resident)) {
            let seed = self.random.next();
            if let Err(fault) = resident.client.download(20_000, seed) {
                panic!("{when}: a resident at {} was not spared: {fault:?}", resident.address);
            }
        }
    }
}
