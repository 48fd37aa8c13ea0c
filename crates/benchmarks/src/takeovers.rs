//! Takeovers: the owner of a service address is killed, or leaves it by order. Another machine has to answer there.
//!
//! ```text
//!   client, bridge (this namespace) --+-- one: owner          each machine is a network namespace
//!                                     +-- two: standby
//!                                     +-- three: Watari's agent, the witness
//! ```
//!
//! * Watari: a dispatcher on each of the first two machines, with `[dispatcher.takeover]`.
//! * keepalived with `HAProxy` on each of them, as their manuals say. `HAProxy` serves the small file itself.

use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use watari_pki::Authority;
use watari_test_origins::namespace::{Machine, add_bridge};
use watari_values::{NodeName, Role};

use crate::Scale;
use crate::connection::Opener;
use crate::cpu;
use crate::drains::{Outcome, Visitors};
use crate::failure::{Failure, doing, tls};
use crate::measure::{Samples, interleaved};
use crate::process::Process;
use crate::report::{Report, Row, Unit};
use crate::servers::{Replaced, Server, ctl, haproxy_config, program};
use crate::site::{Key, Site};

const BRIDGE: &str = "br0";
const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
const SERVICE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 100);
const MACHINES: [(&str, u8); 3] = [("one", 1), ("two", 2), ("three", 3)];

/// Targets: the longest times until new connections are answered, in seconds.
const DEFAULT_TARGET: f64 = 1.0;
const SHORT_TARGET: f64 = 0.6;
/// Target: the most CPU time of an owner without clients, as a share of a core.
const CPU_TARGET: f64 = 0.01;

/// Connections at a planned switch. Some of them are downloads.
const SWITCHED: usize = 2000;
const SWITCHED_DOWNLOADS: usize = 200;
/// Target: the 99th percentile of the time to first byte of requests during a planned switch, in seconds.
const SWITCH_PAUSE_TARGET: f64 = 0.1;
const SWITCH_MAX: Duration = Duration::from_secs(20);

/// The pause after an attempt that failed at once.
const PAUSE: Duration = Duration::from_millis(5);
const READY_MAX: Duration = Duration::from_secs(30);
/// How long the CPU time of an owner without clients is measured.
const IDLE: Duration = Duration::from_secs(5);

/// The lease or advert interval of a pair.
#[derive(Clone, Copy)]
enum Pair {
    Watari {
        keys: &'static str,
    },
    /// With its defaults: one advert in a second.
    Keepalived,
}

const PAIRS: [Pair; 3] = [
    Pair::Watari { keys: "" },
    Pair::Watari { keys: "lease = \"300ms\"\nadvert_interval = \"75ms\"\n" },
    Pair::Keepalived,
];

/// Measures how long each pair is without an owner that answers.
pub(crate) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    eprintln!("takeovers ..");
    add_bridge(BRIDGE, &[&format!("{CLIENT}/24")]).map_err(doing("making a bridge"))?;
    issue(site)?;
    let client = Opener::coming_from(vec![CLIENT.into()], site)?;
    let mut samples = 0;
    let outcomes = interleaved(scale.rounds, &PAIRS, |pair| {
        samples += 1;
        Segment::make(site, &client, samples)?.kill_owner(*pair)
    })?;
    let [watari, short, keepalived] = &outcomes[..] else { unreachable!("a result for each pair") };
    let of = |rounds: &[Vec<f64>], at: usize| Samples::of(rounds, |figures| figures[at]);
    for (keys, ours, limit) in [("defaults", watari, DEFAULT_TARGET), ("a lease of 300 ms", short, SHORT_TARGET)] {
        let what = format!("owner killed, {keys}: time until new connections are answered");
        let (ours, theirs) = (of(ours, 0), of(keepalived, 0));
        report.add(Row::limited(what, Unit::Seconds, ours, "keepalived + HAProxy", theirs, limit));
    }
    for (keys, ours) in [("defaults", watari), ("a lease of 300 ms", short)] {
        let what = format!("owner without clients, {keys}: share of a core");
        let (ours, theirs) = (of(ours, 1), of(keepalived, 1));
        report.add(Row::limited(what, Unit::Percent, ours, "keepalived + HAProxy", theirs, CPU_TARGET));
    }
    switches(site, &client, scale, &mut samples, report)
}

/// Measures planned switches of an address with connections.
fn switches(
    site: &Site,
    client: &Opener,
    scale: &Scale,
    samples: &mut usize,
    report: &mut Report,
) -> Result<(), Failure> {
    eprintln!("planned switches ..");
    let connections = SWITCHED.min(scale.idle);
    let downloads = SWITCHED_DOWNLOADS.min(connections / 4);
    let outcomes = interleaved(scale.rounds, &[PAIRS[0], Pair::Keepalived], |pair| {
        *samples += 1;
        let outcome = Segment::make(site, client, *samples)?.switch(*pair, connections - downloads, downloads)?;
        let pauses = Samples::new(outcome.pauses.iter().map(Duration::as_secs_f64).collect());
        Ok(vec![outcome.took.as_secs_f64(), outcome.lost as f64, pauses.quantile(0.99), pauses.quantile(0.5)])
    })?;
    let what = format!("planned switch with {} idle connections and {downloads} downloads", connections - downloads);
    let rows = [
        (format!("{what}: time until the next owner has the address"), Unit::Seconds, None),
        (format!("{what}: connections lost"), Unit::Count, Some(0.0)),
        (
            "requests during a planned switch: time to first byte, 99th percentile".to_owned(),
            Unit::Microseconds,
            Some(SWITCH_PAUSE_TARGET),
        ),
        ("requests during a planned switch: time to first byte, median".to_owned(), Unit::Microseconds, None),
    ];
    for (at, (figure, unit, limit)) in rows.into_iter().enumerate() {
        let of = |rounds: &[Vec<f64>]| Samples::of(rounds, |figures| figures[at]);
        let (ours, theirs) = (of(&outcomes[0]), of(&outcomes[1]));
        report.add(match limit {
            Some(limit) => Row::limited(figure, unit, ours, "keepalived + HAProxy", theirs, limit),
            None => Row::against(figure, unit, ours, "keepalived + HAProxy", theirs, None),
        });
    }
    Ok(())
}

/// The machines of one sample. A killed node leaves its gate closed, so another program could not use the address.
struct Segment<'a> {
    site: &'a Site,
    client: &'a Opener,
    machines: Vec<Machine>,
}

impl<'a> Segment<'a> {
    fn make(site: &'a Site, client: &'a Opener, sample: usize) -> Result<Self, Failure> {
        let machines = MACHINES.map(|(name, number)| {
            // The ports of earlier samples may still be there.
            let port = format!("{name}{sample}");
            Machine::connect(BRIDGE, &port, &[&format!("192.0.2.{number}/24")]).map_err(doing("making a machine"))
        });
        Ok(Self { site, client, machines: machines.into_iter().collect::<Result<_, _>>()? })
    }

    /// Starts a pair, and kills the owner's processes. Returns the time in seconds until the client gets the file again,
    /// and the owner's CPU time before as a share of a core.
    fn kill_owner(&self, pair: Pair) -> Result<Vec<f64>, Failure> {
        let (mut owner, _others) = match pair {
            Pair::Watari { keys } => self.start_watari(keys)?,
            Pair::Keepalived => self.start_keepalived()?,
        };
        let used = |owner: &[Process]| -> Result<f64, Failure> {
            owner.iter().map(|process| Ok(process.cpu()?.as_secs_f64())).sum()
        };
        let before = used(&owner)?;
        sleep(IDLE);
        let share = (used(&owner)? - before) / IDLE.as_secs_f64();
        for process in &owner {
            // Children first: those of keepalived end in good order when their parent is gone.
            for child in cpu::children(process.id()).unwrap_or_default() {
                let child = Pid::from_raw(child.cast_signed()).expect("a process has a number");
                let _ = kill_process(child, Signal::KILL);
            }
            process.signal(Signal::KILL)?;
        }
        let killed = Instant::now();
        self.until_answered()?;
        let took = killed.elapsed();
        owner.clear();
        Ok(vec![took.as_secs_f64(), share])
    }

    /// Starts a pair, and orders the owner to leave the address while the clients use their connections.
    fn switch(&self, pair: Pair, idle: usize, downloads: usize) -> Result<Outcome, Failure> {
        let service = SocketAddr::new(IpAddr::V4(SERVICE), 443);
        match pair {
            Pair::Watari { keys } => {
                let (processes, _others) = self.start_watari(keys)?;
                let server = Server { service, processes };
                Visitors::connect(self.client, &server, idle, downloads)?.during(SWITCH_MAX, || {
                    let since = Instant::now();
                    ctl(&self.admin("one"), &["switch", "two"])?;
                    self.until_owner("two")?;
                    Ok(Replaced { pids: Vec::new(), since })
                })
            }
            Pair::Keepalived => {
                let (processes, _others) = self.start_keepalived()?;
                let server = Server { service, processes };
                // HAProxy has no large file here.
                Visitors::connect(self.client, &server, idle + downloads, 0)?.during(SWITCH_MAX, || {
                    let since = Instant::now();
                    // It gives the address up in good order.
                    server.processes[0].signal(Signal::TERM)?;
                    self.until_answered()?;
                    Ok(Replaced { pids: Vec::new(), since })
                })
            }
        }
    }

    /// What a node shows of the service address.
    fn shown(&self, node: &str) -> Result<serde_json::Value, Failure> {
        let shown = ctl(&self.admin(node), &["--json", "addresses"])?;
        let shown: serde_json::Value =
            serde_json::from_slice(&shown).map_err(|error| doing("reading the addresses of a node")(error.into()))?;
        Ok(shown[0].clone())
    }

    fn admin(&self, node: &str) -> PathBuf {
        self.site.path(&format!("{node}.sock"))
    }

    fn until_owner(&self, node: &str) -> Result<(), Failure> {
        let deadline = Instant::now() + READY_MAX;
        loop {
            let shown = self.shown(node)?;
            if shown["role"] == "active" {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(doing("waiting for the next owner")(io::Error::other(shown.to_string())));
            }
            sleep(PAUSE);
        }
    }

    fn until_answered(&self) -> Result<(), Failure> {
        self.client.until_answered(SocketAddr::new(IpAddr::V4(SERVICE), 443), READY_MAX)
    }

    /// Starts a program on a machine.
    fn start(&self, machine: usize, name: &str, arguments: &[&str]) -> Result<Process, Failure> {
        let name = format!("{name}-{}", MACHINES[machine].0);
        let namespace = format!("--net={}", self.machines[machine].namespace());
        let arguments = [&[namespace.as_str(), "--"], arguments].concat();
        Process::start(&name, "nsenter", &arguments, self.site.path(&format!("{name}.log")))
    }

    /// The owner's process, and the others.
    fn start_watari(&self, keys: &str) -> Result<(Vec<Process>, Vec<Process>), Failure> {
        let path = |name: &str| self.site.path(name).display().to_string();
        let node = |name: &str, number: u8, tables: &str| {
            let mut text = format!(
                "[node]\nname = \"{name}\"\npki = \"{}\"\nmesh = \"192.0.2.{number}:7001\"\nadmin = \"{}\"\n",
                path("takeover-pki"),
                path(&format!("{name}.sock")),
            );
            for (peer, number) in MACHINES {
                let _ = writeln!(text, "[[peer]]\nname = \"{peer}\"\nmesh = \"192.0.2.{number}:7001\"");
            }
            self.site.write(&format!("{name}.toml"), &(text + tables))
        };
        let dispatcher = |priority: u8| {
            format!(
                "[dispatcher]\nlisten = [\"{SERVICE}:443\"]\nagents = [{{ name = \"three\", legs = \"192.0.2.3:7101\" }}]\n\
                 [dispatcher.takeover]\nvoters = [\"one\", \"two\", \"three\"]\n{keys}\
                 addresses = [{{ address = \"{SERVICE}/24\", interface = \"eth0\", priority = {priority} }}]\n"
            )
        };
        let (chain, key) = self.site.certificate(Key::P256);
        let agent = format!(
            "[agent]\nlegs = \"192.0.2.3:7101\"\n[[agent.certificate]]\nchain = \"{}\"\nkey = \"{}\"\n\
             [agent.files]\nroot = \"{}\"\n",
            chain.display(),
            key.display(),
            self.site.root().display()
        );
        let program = program()?;
        let start = |machine: usize, tables: &str| {
            let (name, number) = MACHINES[machine];
            self.start(machine, "watari", &[&program, "run", "--config", &node(name, number, tables)?])
        };
        let witness = start(2, &agent)?;
        let owner = start(0, &dispatcher(150))?;
        self.until_answered()?;
        let mut standby = start(1, &dispatcher(100))?;
        standby.wait_until(|| {
            let shown = self.shown("two").map_err(|error| error.to_string())?;
            let is_ready = shown["ready"] == true && shown["owner"] == "one";
            if is_ready { Ok(()) } else { Err(format!("the standby shows {shown}")) }
        })?;
        Ok((vec![owner], vec![standby, witness]))
    }

    /// The owner's processes, and those of the standby.
    fn start_keepalived(&self) -> Result<(Vec<Process>, Vec<Process>), Failure> {
        let service = format!("{SERVICE}:443 transparent");
        let haproxy = self.site.write("takeover-haproxy.cfg", &haproxy_config(self.site, &service)?)?;
        let start = |machine: usize, priority: u8| -> Result<Vec<Process>, Failure> {
            let name = MACHINES[machine].0;
            let text = format!(
                "vrrp_instance site {{\n  state BACKUP\n  interface eth0\n  virtual_router_id 51\n  priority {priority}\n  \
                 virtual_ipaddress {{\n    {SERVICE}/24\n  }}\n}}\n"
            );
            let config = self.site.write(&format!("{name}-keepalived.conf"), &text)?;
            let [pid, vrrp] =
                ["pid", "vrrp"].map(|file| self.site.path(&format!("{name}-{file}")).display().to_string());
            let relay = self.start(machine, "haproxy", &["haproxy", "-db", "-f", &haproxy])?;
            let arguments = ["keepalived", "-n", "-l", "-D", "-P", "-f", &config, "-p", &pid, "-r", &vrrp];
            Ok(vec![self.start(machine, "keepalived", &arguments)?, relay])
        };
        let owner = start(0, 150)?;
        self.until_answered()?;
        let mut standby = start(1, 100)?;
        standby[0].wait_until(|| {
            let log = std::fs::read_to_string(self.site.path("keepalived-two.log")).unwrap_or_default();
            if log.contains("Entering BACKUP STATE") { Ok(()) } else { Err("it is no standby") }
        })?;
        Ok((owner, standby))
    }
}

/// Makes the certificates of the nodes.
fn issue(site: &Site) -> Result<(), Failure> {
    let authority = Authority::create(&site.path("takeover-pki"), "benchmarks")?;
    for ((name, _), role) in MACHINES.into_iter().zip([Role::Dispatcher, Role::Dispatcher, Role::Agent]) {
        authority.issue(&NodeName::new(name).map_err(tls("naming a node"))?, &[role], 1)?;
    }
    Ok(())
}
