//! Replacement of a server with thousands of idle keep-alive connections: the time until the old process ends, and the
//! connections that are lost.
//!
//! * Watari's agent gets SIGTERM, and moves its connections to two other agents.
//!   Another row has running downloads on further connections.
//! * An upgrade in place replaces Watari's dispatcher, or its agent, by a new process.
//! * `HAProxy` and nginx are replaced as their manuals say, by a new process for the same address. The old process
//!   closes idle connections, and their clients have to connect again.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use crate::Scale;
use crate::clients::Clients;
use crate::connection::{Connection, Opener};
use crate::failure::Failure;
use crate::measure::{Samples, interleaved};
use crate::report::{Report, Row, Unit};
use crate::servers::{Replaced, Server, UpgradedNode, Watari, haproxy_of_tls, nginx};
use crate::site::{LARGE, Site};

/// Target: the longest drain, in seconds.
const DRAIN_TARGET: f64 = 2.0;
/// Target: the 99th percentile of the time to first byte of requests during the drain, in seconds.
const PAUSE_TARGET: f64 = 0.002_5;

/// Target: the most memory of an idle connection in an agent, in bytes.
const AGENT_MEMORY_TARGET: f64 = 8.0 * 1024.0;

/// Running downloads, and the longest drain with them, in seconds.
const DOWNLOADS: usize = 500;
const DRAIN_WITH_DOWNLOADS_TARGET: f64 = 3.0;
/// Bytes that a client reads of a download after the drain: more than all buffers on the way hold.
const READ_AFTER: u64 = 2 << 20;

/// Upgrades in place: running downloads, the longest time until the old process ends, the 99th percentile of the time to
/// first byte of requests meanwhile, both in seconds, and how long the others are waited for.
const UPGRADE_DOWNLOADS: usize = 200;
const UPGRADE_TARGET: f64 = 1.0;
const UPGRADE_PAUSE_TARGET: f64 = 0.020;
const UPGRADE_END_MAX: Duration = Duration::from_secs(10);

/// Number of client addresses. One address may not have so many connections, and would always select the same agent.
const ADDRESSES: u8 = 64;
const THREADS: usize = 4;
/// Number of figures of an outcome that come before its memory.
const FIGURES: usize = 3;
/// Time between two requests of a thread during the replacement. Most connections have to be idle.
const PACE: Duration = Duration::from_millis(5);
/// The longest time in which the old process may end. A process that takes longer counts as if it took this time.
const END_MAX: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(5);
/// Time between two pieces that a thread reads of its downloads.
const DOWNLOAD_PACE: Duration = Duration::from_millis(1);

/// The server that is replaced.
#[derive(Clone, Copy)]
enum Candidate {
    Watari,
    Haproxy,
    Nginx,
}

/// The server that is upgraded.
#[derive(Clone, Copy)]
enum Upgraded {
    Watari(UpgradedNode),
    Haproxy,
    Nginx,
}

/// The result of one replacement.
pub(crate) struct Outcome {
    /// Memory of one idle connection in each process, in bytes.
    memory: Vec<f64>,
    pub(crate) took: Duration,
    /// Times from a request during the replacement to the first byte of its response.
    pub(crate) pauses: Vec<Duration>,
    /// Number of connections on which a request failed, during the replacement or after it.
    pub(crate) lost: usize,
}

/// Measures the replacement of each candidate.
pub(crate) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    let addresses = (1..=ADDRESSES).map(|last| IpAddr::from(Ipv4Addr::new(127, 202, 0, last)));
    let (clients, opener) = (Clients::new(site)?, Opener::coming_from(addresses.collect(), site)?);
    eprintln!("drains ..");
    let candidates = [Candidate::Watari, Candidate::Haproxy, Candidate::Nginx];
    let outcomes = interleaved(scale.rounds, &candidates, |candidate| {
        let outcome = candidate.replace(site, &clients, &opener, scale.idle)?;
        let pauses = Samples::new(outcome.pauses.iter().map(Duration::as_secs_f64).collect());
        let mut figures = vec![outcome.took.as_secs_f64(), outcome.lost as f64, pauses.quantile(0.99)];
        figures.extend(outcome.memory);
        Ok(figures)
    })?;
    report_memory(&outcomes, report);
    let idle = scale.idle;
    let figures = [
        (format!("drain of {idle} idle connections: time until the old process ends"), Unit::Seconds, DRAIN_TARGET),
        (format!("drain of {idle} idle connections: connections lost"), Unit::Count, 0.0),
        ("requests during the drain: time to first byte, 99th percentile".to_owned(), Unit::Microseconds, PAUSE_TARGET),
    ];
    for (at, (what, unit, limit)) in figures.into_iter().enumerate() {
        let of = |rounds: &[Vec<f64>]| Samples::of(rounds, |figures| figures[at]);
        for (peer, name) in outcomes[1..].iter().zip(["HAProxy", "nginx"]) {
            report.add(Row::limited(what.clone(), unit, of(&outcomes[0]), name, of(peer), limit));
        }
    }
    with_downloads(site, &clients, &opener, scale, &outcomes[0], report)?;
    upgrades(site, &clients, &opener, scale, report)
}

/// Drains an agent that sends downloads. The other servers have no such drain: they cut downloads, or wait for them.
fn with_downloads(
    site: &Site,
    clients: &Clients,
    opener: &Opener,
    scale: &Scale,
    without: &[Vec<f64>],
    report: &mut Report,
) -> Result<(), Failure> {
    let (idle, downloads) = (scale.idle, DOWNLOADS.min(scale.idle / 4));
    eprintln!("drains with downloads ..");
    let outcomes = interleaved(scale.rounds, &[()], |()| {
        let watari = Watari::emptying_two_ways(site, clients)?;
        let mut visitors = Visitors::connect(opener, &watari.server, idle, 0)?;
        visitors.begin_downloads(opener, watari.second_service(), downloads)?;
        watari.open_others()?;
        let outcome = visitors.during(END_MAX, || watari.end_first_agent())?;
        Ok(vec![outcome.took.as_secs_f64(), outcome.lost as f64])
    })?;
    let what = format!("drain of {idle} idle connections and {downloads} downloads");
    let rows = [
        ("time until the old process ends", Unit::Seconds, DRAIN_WITH_DOWNLOADS_TARGET),
        ("connections lost", Unit::Count, 0.0),
    ];
    for (at, (figure, unit, limit)) in rows.into_iter().enumerate() {
        let of = |rounds: &[Vec<f64>]| Samples::of(rounds, |figures| figures[at]);
        let what = format!("{what}: {figure}");
        report.add(Row::limited(what, unit, of(&outcomes[0]), "the same without downloads", of(without), limit));
    }
    Ok(())
}

/// Replaces servers with idle connections and downloads by new processes on the same host.
fn upgrades(
    site: &Site,
    clients: &Clients,
    opener: &Opener,
    scale: &Scale,
    report: &mut Report,
) -> Result<(), Failure> {
    let downloads = UPGRADE_DOWNLOADS.min(scale.idle / 4);
    let idle = scale.idle - downloads;
    eprintln!("upgrades ..");
    let candidates = [
        Upgraded::Watari(UpgradedNode::Dispatcher),
        Upgraded::Watari(UpgradedNode::Agent),
        Upgraded::Haproxy,
        Upgraded::Nginx,
    ];
    let outcomes = interleaved(scale.rounds, &candidates, |candidate| {
        let outcome = candidate.upgrade(site, clients, opener, (idle, downloads))?;
        let pauses = Samples::new(outcome.pauses.iter().map(Duration::as_secs_f64).collect());
        Ok(vec![outcome.took.as_secs_f64(), outcome.lost as f64, pauses.quantile(0.99)])
    })?;
    let (ours, peers) = outcomes.split_at(2);
    for (node, ours) in ["dispatcher", "agent"].into_iter().zip(ours) {
        let what = format!("upgrade of the {node} with {idle} idle connections and {downloads} downloads");
        let rows = [
            (format!("{what}: time until the old process ends"), Unit::Seconds, UPGRADE_TARGET),
            (format!("{what}: connections lost"), Unit::Count, 0.0),
            (
                format!("requests during the upgrade of the {node}: time to first byte, 99th percentile"),
                Unit::Microseconds,
                UPGRADE_PAUSE_TARGET,
            ),
        ];
        for (at, (figure, unit, limit)) in rows.into_iter().enumerate() {
            let of = |rounds: &[Vec<f64>]| Samples::of(rounds, |figures| figures[at]);
            for (peer, name) in peers.iter().zip(["HAProxy", "nginx"]) {
                report.add(Row::limited(figure.clone(), unit, of(ours), name, of(peer), limit));
            }
        }
    }
    Ok(())
}

fn report_memory(outcomes: &[Vec<Vec<f64>>], report: &mut Report) {
    let [watari, haproxy, nginx] = outcomes else { unreachable!("a result for each candidate") };
    let of = |rounds: &[Vec<f64>], process: usize| Samples::of(rounds, |figures| figures[FIGURES + process]);
    // The other agents have no connections yet.
    for (what, process, limit) in [("dispatcher", 0, None), ("agent", 1, Some(AGENT_MEMORY_TARGET))] {
        for (peer, name) in [(haproxy, "HAProxy"), (nginx, "nginx")] {
            let what = format!("memory of an idle connection: {what}");
            let (ours, theirs) = (of(watari, process), of(peer, 0));
            report.add(match limit {
                Some(limit) => Row::limited(what, Unit::Bytes, ours, name, theirs, limit),
                None => Row::against(what, Unit::Bytes, ours, name, theirs, None),
            });
        }
    }
}

impl Upgraded {
    fn upgrade(
        self,
        site: &Site,
        clients: &Clients,
        opener: &Opener,
        (idle, downloads): (usize, usize),
    ) -> Result<Outcome, Failure> {
        match self {
            Self::Watari(node) => {
                let watari = Watari::single(site, clients)?;
                let visitors = Visitors::connect(opener, &watari.server, idle, downloads)?;
                visitors.during(UPGRADE_END_MAX, || watari.upgrade(node))
            }
            Self::Haproxy => {
                let mut haproxy = haproxy_of_tls(site, clients)?;
                // It has no files here.
                let visitors = Visitors::connect(opener, &haproxy.server, idle + downloads, 0)?;
                visitors.during(UPGRADE_END_MAX, || haproxy.replace())
            }
            Self::Nginx => {
                let nginx = nginx(site, clients)?;
                let visitors = Visitors::connect(opener, &nginx, idle, downloads)?;
                visitors.during(UPGRADE_END_MAX, || Replaced::workers(&nginx.processes[0]))
            }
        }
    }
}

impl Candidate {
    fn replace(self, site: &Site, clients: &Clients, opener: &Opener, idle: usize) -> Result<Outcome, Failure> {
        match self {
            Self::Watari => {
                let watari = Watari::emptying(site, clients)?;
                let (mut connections, memory) = connect(opener, &watari.server, idle)?;
                watari.open_others()?;
                during(&mut connections, memory, END_MAX, || watari.end_first_agent())
            }
            Self::Haproxy => {
                let mut haproxy = haproxy_of_tls(site, clients)?;
                let (mut connections, memory) = connect(opener, &haproxy.server, idle)?;
                during(&mut connections, memory, END_MAX, || haproxy.replace())
            }
            Self::Nginx => {
                let nginx = nginx(site, clients)?;
                let (mut connections, memory) = connect(opener, &nginx, idle)?;
                during(&mut connections, memory, END_MAX, || Replaced::workers(&nginx.processes[0]))
            }
        }
    }
}

/// Opens `count` connections, gets one response on each, and leaves them idle. Also returns the memory of one
/// connection in each process, in bytes.
pub(crate) fn connect(opener: &Opener, server: &Server, count: usize) -> Result<(Vec<Connection>, Vec<f64>), Failure> {
    let before = server.memory()?;
    let part = || (0..count.div_ceil(THREADS)).map(|_| used_once(opener, server)).collect::<Result<Vec<_>, _>>();
    let parts = scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(part)).collect();
        let parts = threads.into_iter().map(|thread| thread.join().expect("a client does not panic"));
        parts.collect::<Result<Vec<_>, Failure>>()
    })?;
    let connections: Vec<_> = parts.into_iter().flatten().collect();
    let grown = server.memory()?.into_iter().zip(before).map(|(after, before)| after.saturating_sub(before));
    let memory = grown.map(|bytes| bytes as f64 / connections.len() as f64).collect();
    Ok((connections, memory))
}

fn used_once(opener: &Opener, server: &Server) -> Result<Connection, Failure> {
    let mut connection = opener.open(server.service)?;
    connection.get()?;
    Ok(connection)
}

/// Idle connections, and downloads on further ones.
pub(crate) struct Visitors {
    idle: Vec<Connection>,
    downloads: Vec<Download>,
}

impl Visitors {
    pub(crate) fn connect(opener: &Opener, server: &Server, idle: usize, downloads: usize) -> Result<Self, Failure> {
        let (idle, _) = connect(opener, server, idle)?;
        let mut visitors = Self { idle, downloads: Vec::new() };
        visitors.begin_downloads(opener, server.service, downloads)?;
        Ok(visitors)
    }

    fn begin_downloads(&mut self, opener: &Opener, service: SocketAddr, count: usize) -> Result<(), Failure> {
        for _ in 0..count {
            self.downloads.push(Download::begin(opener.open(service)?)?);
        }
        Ok(())
    }

    /// Replaces the server while the downloads run and a few of the connections are in use. Counts downloads that are
    /// cut as lost connections.
    pub(crate) fn during(
        mut self,
        end_max: Duration,
        replace: impl FnOnce() -> Result<Replaced, Failure>,
    ) -> Result<Outcome, Failure> {
        let over = AtomicBool::new(false);
        let (outcome, cut) = scope(|scope| {
            let part = self.downloads.len().div_ceil(THREADS).max(1);
            let readers: Vec<_> =
                self.downloads.chunks_mut(part).map(|part| scope.spawn(|| Download::read_all(part, &over))).collect();
            let outcome = during(&mut self.idle, Vec::new(), end_max, replace);
            over.store(true, Ordering::Relaxed);
            let cut: usize = readers.into_iter().map(|reader| reader.join().expect("a client does not panic")).sum();
            (outcome, cut)
        });
        outcome.map(|outcome| Outcome { lost: outcome.lost + cut, ..outcome })
    }
}

/// Replaces the server while a few of the connections are in use. Then sends a request on each connection.
fn during(
    connections: &mut [Connection],
    memory: Vec<f64>,
    end_max: Duration,
    replace: impl FnOnce() -> Result<Replaced, Failure>,
) -> Result<Outcome, Failure> {
    let part = connections.len().div_ceil(THREADS);
    let over = AtomicBool::new(false);
    let (took, used) = scope(|scope| {
        let users: Vec<_> =
            connections.chunks_mut(part).map(|part| scope.spawn(|| Use::of(part).until(&over))).collect();
        let took = replace().map(|replaced| replaced.wait(end_max));
        over.store(true, Ordering::Relaxed);
        let used = users.into_iter().map(|user| user.join().expect("a client does not panic")).collect::<Vec<_>>();
        (took, used)
    });
    let pauses = used.iter().flat_map(|used| used.pauses.iter().copied()).collect();
    let lost = used.iter().map(Use::lost).sum();
    Ok(Outcome { memory, took: took?, pauses, lost })
}

/// A download of the large file that its client reads slowly.
struct Download {
    connection: Connection,
    at: u64,
    is_cut: bool,
}

impl Download {
    fn begin(mut connection: Connection) -> Result<Self, Failure> {
        connection.begin(LARGE)?;
        Ok(Self { connection, at: 0, is_cut: false })
    }

    /// Reads a piece of one download after the other until the server is replaced, and then some more of each. Returns
    /// how many were cut.
    fn read_all(downloads: &mut [Self], over: &AtomicBool) -> usize {
        let content = LARGE.content();
        let mut next = (0..downloads.len()).cycle();
        while let Some(at) = next.next().filter(|_| !over.load(Ordering::Relaxed)) {
            downloads[at].read(&content);
            sleep(DOWNLOAD_PACE);
        }
        for download in downloads.iter_mut() {
            let end = (download.at + READ_AFTER).min(LARGE.len);
            while download.at < end && !download.is_cut {
                download.read(&content);
            }
        }
        downloads.iter().filter(|download| download.is_cut).count()
    }

    /// Reads one piece, and compares it.
    fn read(&mut self, content: &[u8]) {
        let from = usize::try_from(self.at).unwrap_or(content.len());
        if self.is_cut || from == content.len() {
            return;
        }
        match self.connection.piece() {
            Ok(piece) if content[from..].starts_with(&piece) => self.at += piece.len() as u64,
            _ => self.is_cut = true,
        }
    }
}

/// The connections that one thread uses.
struct Use<'a> {
    connections: &'a mut [Connection],
    broken: Vec<bool>,
    pauses: Vec<Duration>,
}

impl<'a> Use<'a> {
    fn of(connections: &'a mut [Connection]) -> Self {
        let broken = vec![false; connections.len()];
        Self { connections, broken, pauses: Vec::new() }
    }

    /// Sends a request on one connection after the other, with pauses of [`PACE`], until the server is replaced. Then
    /// sends a request on each of them.
    fn until(mut self, over: &AtomicBool) -> Self {
        let mut next = (0..self.connections.len()).cycle();
        while !over.load(Ordering::Relaxed) {
            if let Some(wait) = next.next().and_then(|at| self.ask(at)) {
                self.pauses.push(wait);
            }
            sleep(PACE);
        }
        for at in 0..self.connections.len() {
            self.ask(at);
        }
        self
    }

    /// Time to the first byte of the response. `None`: the connection is broken.
    fn ask(&mut self, at: usize) -> Option<Duration> {
        if self.broken[at] {
            return None;
        }
        let answered = self.connections[at].get();
        self.broken[at] = answered.is_err();
        answered.ok()
    }

    fn lost(&self) -> usize {
        self.broken.iter().filter(|broken| **broken).count()
    }
}

impl Replaced {
    /// Waits until the old processes have ended, for `max` at most, and returns how long that took.
    fn wait(&self, max: Duration) -> Duration {
        let ended = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| is_zombie(&stat));
        while !self.pids.iter().all(ended) && self.since.elapsed() < max {
            sleep(POLL);
        }
        self.since.elapsed()
    }
}

/// Whether a process has ended and its parent has not waited for it yet (proc(5): state Z, after the name).
fn is_zombie(stat: &str) -> bool {
    stat.rsplit_once(')').is_some_and(|(_, behind)| behind.trim_start().starts_with('Z'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_is_known() {
        assert!(is_zombie("42 (a) b) Z 1 42"));
        assert!(!is_zombie("42 (Z) S 1 42"));
    }
}
