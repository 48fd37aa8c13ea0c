//! The experiment of the paper on standby servers (its figure 2): users come back while a service address moves to the
//! other node of a standby pair. With private sessions, the next node does a full handshake for each of them.
//!
//! ```text
//!   users, bridge (this namespace) --+-- eth0  one  eth1 --+
//!                                    +-- eth0  two  eth1 --+-- bridge of the mesh
//!                                           three   eth1 --+   three: the witness
//! ```
//!
//! *one* and *two* are dispatcher and agent each. A dispatcher gives clients to the agent of its own node.

use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use watari_bench_engine::ending::EndingKind;
use watari_bench_engine::shares::Shares;
use watari_bench_engine::tally::{Point, Series};
use watari_bench_engine::users::{Count, Settings};
use watari_pki::Authority;
use watari_record::CipherSuite;
use watari_test_origins::namespace::{Machine, add_bridge};
use watari_values::{NodeName, Role};

use crate::Scale;
use crate::clients::Clients;
use crate::failure::{Failure, doing, planning, tls};
use crate::process::Process;
use crate::report::Report;
use crate::servers::{ctl, program};
use crate::site::{Key, Site};

/// The heading of the table.
const TITLE: &str = "Users who come back after a planned switch, by the second";

const BRIDGES: [&str; 2] = ["storm", "notices"];
const SERVICE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 100);
const NODES: [(&str, u8, &[Role]); 3] = [
    ("one", 1, &[Role::Dispatcher, Role::Agent]),
    ("two", 2, &[Role::Dispatcher, Role::Agent]),
    ("three", 3, &[Role::Dispatcher]),
];

/// The modes of sharing: as in the paper, by keys alone, and not at all.
const MODES: [&str; 3] = ["push", "tickets", "private"];

/// The times of the paper, in seconds.
const ARRIVALS_S: f64 = 90.0;
const SWITCH_S: f64 = 30.0;
const WAITS_S: [f64; 4] = [5.0, 10.0, 30.0, 60.0];
const REQUESTS: u32 = 3;

/// Seconds before the switch that the table has.
const BEFORE: isize = 3;
const READY_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);

/// Runs the experiment with shared and with private sessions.
pub(crate) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    eprintln!("storm ..");
    add_bridge(BRIDGES[0], &["203.0.113.9/24"]).map_err(doing("making a bridge"))?;
    add_bridge(BRIDGES[1], &[]).map_err(doing("making a bridge"))?;
    let authority = Authority::create(&site.path("storm-pki"), "benchmarks")?;
    for (name, _, roles) in NODES {
        authority.issue(&NodeName::new(name).map_err(tls("naming a node"))?, roles, 1)?;
    }
    let course = |mode| Pair::start(site, mode)?.experiment(scale);
    let [push, tickets, private] = MODES.map(course);
    report.add_table(TITLE, table(scale, &[push?, tickets?, private?]));
    Ok(())
}

/// The course of a run.
struct Course {
    series: Series,
    /// The share of a core that the next node took, in each second.
    cpu: Vec<f64>,
    /// The second in which the address moved.
    switch: usize,
}

/// A standby pair, of which *one* is active, and its witness.
struct Pair<'a> {
    site: &'a Site,
    // Processes end before their machines.
    next: Process,
    _others: [Process; 2],
    _machines: Vec<Machine>,
}

impl<'a> Pair<'a> {
    fn start(site: &'a Site, mode: &str) -> Result<Self, Failure> {
        let connect = |(name, number, _): (&str, u8, &[Role])| {
            let machine =
                Machine::connect(BRIDGES[0], &format!("{mode}-{name}"), &[&format!("203.0.113.{number}/24")])?;
            machine.add_link(BRIDGES[1], &format!("n-{mode}-{name}"), "eth1", &[&format!("198.51.100.{number}/24")])?;
            Ok(machine)
        };
        let machines: Vec<_> =
            NODES.into_iter().map(connect).collect::<Result<_, _>>().map_err(doing("making machines"))?;
        let start = |number: usize| -> Result<Process, Failure> {
            let name = NODES[number].0;
            let namespace = format!("--net={}", machines[number].namespace());
            let (program, config) = (program()?, config(site, number, mode)?);
            let arguments = [namespace.as_str(), "--", &program, "run", "--config", &config];
            Process::start(name, "nsenter", &arguments, site.path(&format!("{mode}-{name}.log")))
        };
        let (witness, mut active) = (start(2)?, start(0)?);
        active.wait_until(|| is_shown(site, "one", |shown| shown["role"] == "active"))?;
        let mut next = start(1)?;
        next.wait_until(|| is_shown(site, "two", |shown| shown["ready"] == true && shown["owner"] == "one"))?;
        Ok(Self { site, next, _others: [active, witness], _machines: machines })
    }

    /// Users come, and *two* gets the address in between.
    fn experiment(&self, scale: &Scale) -> Result<Course, Failure> {
        let of_paper = |seconds: f64| Duration::from_secs_f64(seconds / scale.users_shorter);
        let waits = Shares::new(WAITS_S.map(of_paper).to_vec(), 1).map_err(planning)?;
        let settings = Settings::new(scale.users_per_s, Count::Requests, of_paper(ARRIVALS_S), REQUESTS, waits);
        let clients = Clients::returning(self.site, CipherSuite::TLS_AES_128_GCM_SHA256)?;
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let load =
                clients.begin_users(SocketAddr::new(SERVICE.into(), 443), Key::Rsa2048, settings.map_err(planning)?)?;
            let begun = Instant::now();
            let (next, is_over) = (&self.next, &is_over);
            let cpu = scope.spawn(move || record_cpu(next, begun, is_over));
            sleep(of_paper(SWITCH_S));
            let switched = self.switch().map(|()| load.elapsed().as_secs());
            let finished = load.finish();
            is_over.store(true, Ordering::Relaxed);
            let cpu = cpu.join().expect("the thread does not panic")?;
            Ok(Course { series: finished.tally.series().clone(), cpu, switch: switched? as usize })
        })
    }

    fn switch(&self) -> Result<(), Failure> {
        ctl(&self.site.path("one.sock"), &["switch", "two"])?;
        let deadline = Instant::now() + READY_MAX;
        while let Err(shown) = is_shown(self.site, "two", |shown| shown["role"] == "active") {
            if Instant::now() > deadline {
                return Err(doing("waiting for the next owner")(io::Error::other(shown)));
            }
            sleep(POLL);
        }
        Ok(())
    }
}

/// The share of a core that the process takes, in each second.
fn record_cpu(process: &Process, begun: Instant, is_over: &AtomicBool) -> Result<Vec<f64>, Failure> {
    let (mut cpu, mut before) = (Vec::new(), process.cpu()?);
    while !is_over.load(Ordering::Relaxed) {
        sleep((SECOND * (cpu.len() as u32 + 1)).saturating_sub(begun.elapsed()));
        let used = process.cpu()?;
        cpu.push(used.saturating_sub(before).as_secs_f64());
        before = used;
    }
    Ok(cpu)
}

/// Writes the configuration of a node, and returns its path.
fn config(site: &Site, node: usize, mode: &str) -> Result<String, Failure> {
    let path = |name: &str| site.path(name).display().to_string();
    let (name, number, _) = NODES[node];
    let mut text = format!(
        "[node]\nname = \"{name}\"\npki = \"{}\"\nmesh = \"198.51.100.{number}:7001\"\nadmin = \"{}\"\n",
        path("storm-pki"),
        path(&format!("{name}.sock"))
    );
    for (peer, number, _) in NODES {
        let _ = writeln!(text, "[[peer]]\nname = \"{peer}\"\nmesh = \"198.51.100.{number}:7001\"");
    }
    let agent =
        |name: &str, number: u8| format!("agents = [{{ name = \"{name}\", legs = \"198.51.100.{number}:7101\" }}]\n");
    if node == 2 {
        let _ = write!(text, "[dispatcher]\nlisten = [\"127.0.0.1:443\"]\n{}", agent("one", 1));
    } else {
        let (chain, key) = site.certificate(Key::Rsa2048);
        let _ = write!(
            text,
            "[dispatcher]\nlisten = [\"{SERVICE}:443\"]\n{}[dispatcher.takeover]\nvoters = [\"one\", \"two\", \"three\"]\n\
             preempt = false\naddresses = [{{ address = \"{SERVICE}/24\", interface = \"eth0\" }}]\n\
             [agent]\nlegs = \"198.51.100.{number}:7101\"\n[[agent.certificate]]\nchain = \"{}\"\nkey = \"{}\"\n\
             [agent.files]\nroot = \"{}\"\n[agent.sessions]\nmode = \"{mode}\"\n",
            agent(name, number),
            chain.display(),
            key.display(),
            site.root().display()
        );
    }
    site.write(&format!("storm-{name}.toml"), &text)
}

/// Whether what a node shows of the service address is as wanted. An error has what it shows.
fn is_shown(site: &Site, node: &str, is_wanted: impl Fn(&serde_json::Value) -> bool) -> Result<(), String> {
    let shown =
        ctl(&site.path(&format!("{node}.sock")), &["--json", "addresses"]).map_err(|error| error.to_string())?;
    let shown: serde_json::Value = serde_json::from_slice(&shown).map_err(|error| error.to_string())?;
    if is_wanted(&shown[0]) { Ok(()) } else { Err(shown.to_string()) }
}

fn table(scale: &Scale, courses: &[Course; 3]) -> String {
    let mut table = format!(
        "* Users send {} requests of 1 KiB a second for {:.0} s, each on a new connection of TLS 1.3 (RSA-2048).\n\
         * Each user comes three times, with a wait of {} s in between, in equal shares.\n\
         * At second 0, the service address moves to the other node of a standby pair by order.\n\
         * The rules and times are those of the paper on standby servers, with the times divided by {}.\n\
         * `push`, `tickets`, `private`: how agents share sessions. `private`: not at all. *CPU*: of the node that gets the \
         address, as a share of a core.\n\
         * One run of each.\n\n\
         | second | full handshakes: push | tickets | private | resumed: push | tickets | private \
         | failed requests: push | tickets | private | CPU: push | tickets | private |\n\
         | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        scale.users_per_s,
        ARRIVALS_S / scale.users_shorter,
        WAITS_S.map(|wait| format!("{:.2}", wait / scale.users_shorter)).join(", "),
        scale.users_shorter
    );
    let last = courses.iter().map(Course::seconds).max().unwrap_or(0);
    for second in -BEFORE..last {
        let figure = |figure: &dyn Fn(&Point) -> u64| {
            courses.each_ref().map(|course| course.point(second).map_or(0, figure).to_string()).join(" | ")
        };
        let failed = |point: &Point| point.endings.iter().sum::<u64>() - point.ended(EndingKind::Normal);
        let cpu = courses.each_ref().map(|course| format!("{:.0} %", course.cpu_of(second) * 100.0)).join(" | ");
        let (full, resumed) = (figure(&|point| point.full), figure(&|point| point.resumed));
        let _ = writeln!(table, "| {second} | {full} | {resumed} | {} | {cpu} |", figure(&failed));
    }
    table
}

impl Course {
    /// Seconds from the switch to the end.
    fn seconds(&self) -> isize {
        self.series.points().len().cast_signed() - self.switch.cast_signed()
    }

    fn point(&self, second: isize) -> Option<&Point> {
        self.series.points().get(self.switch.checked_add_signed(second)?)
    }

    fn cpu_of(&self, second: isize) -> f64 {
        self.switch.checked_add_signed(second).and_then(|at| self.cpu.get(at)).copied().unwrap_or(0.0)
    }
}
