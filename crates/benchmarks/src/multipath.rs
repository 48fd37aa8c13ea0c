//! Several load balancers have the same address, behind a router with multipath routes. They come and leave while
//! clients use their connections, and one is killed.
//!
//! ```text
//!   clients, router, bridge (this namespace) --+-- one, two, three, four    each machine is a network namespace
//!                                              +-- five: Watari's agent
//! ```
//!
//! * Watari: a dispatcher on each of the first four machines, with `[dispatcher.multipath]`.
//! * `HAProxy` on each of them, with the address on its loopback interface, as behind any router with multipath routes. It
//!   serves the small file itself. When one leaves, the router's routes change first.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use watari_pki::Authority;
use watari_test_origins::namespace::{Machine, add_bridge};
use watari_values::{NodeName, Role};

use crate::Scale;
use crate::connection::Opener;
use crate::drains::{Outcome, Visitors};
use crate::failure::{Failure, doing, tls};
use crate::measure::{Samples, interleaved};
use crate::process::Process;
use crate::report::{Report, Row, Unit};
use crate::servers::{Replaced, Server, ctl, haproxy_config, program};
use crate::site::{Key, Site};

const BRIDGE: &str = "br1";
const ROUTER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 254);
const SERVICE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// The machines, by the last number of their addresses. The last one is for the agent.
const MACHINES: [&str; 5] = ["one", "two", "three", "four", "five"];
const AGENT: usize = 4;

/// Connections at changes of the dispatchers. Some of them are downloads.
const CONNECTIONS: usize = 2000;
const DOWNLOADS: usize = 200;
const READY_MAX: Duration = Duration::from_secs(30);
const END_MAX: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_millis(5);
/// How long routers get to notice that a dispatcher leaves.
const WITHDRAW: Duration = Duration::from_secs(1);

/// Who balances the load.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Watari,
    Haproxy,
}

/// Measures what becomes of connections.
pub(crate) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("multipath: SKIPPED, because BPF programs need root");
        return Ok(());
    }
    eprintln!("multipath ..");
    add_bridge(BRIDGE, &[&format!("{ROUTER}/24")]).map_err(doing("making a bridge"))?;
    fs::write("/proc/sys/net/ipv4/fib_multipath_hash_policy", "1").map_err(doing("setting the router's hash"))?;
    let authority = Authority::create(&site.path("multipath-pki"), "benchmarks")?;
    for (number, name) in MACHINES.into_iter().enumerate() {
        let role = if number == AGENT { Role::Agent } else { Role::Dispatcher };
        authority.issue(&NodeName::new(name).map_err(tls("naming a node"))?, &[role], 1)?;
    }
    let client = Opener::coming_from(vec![ROUTER.into()], site)?;
    let connections = CONNECTIONS.min(scale.idle);
    let downloads = DOWNLOADS.min(connections / 4);
    let mut samples = 0;
    let outcomes = interleaved(scale.rounds, &[Kind::Watari, Kind::Haproxy], |kind| {
        samples += 1;
        let changed = Routed::make(site, &client, *kind, samples)?.change(connections - downloads, downloads)?;
        samples += 1;
        let (killed, own) = Routed::make(site, &client, *kind, samples)?.kill(connections - downloads, downloads)?;
        let pauses = Samples::new(changed.pauses.iter().map(Duration::as_secs_f64).collect());
        let others = killed.lost.saturating_sub(own);
        Ok(vec![changed.lost as f64, pauses.quantile(0.99), changed.took.as_secs_f64(), others as f64, own as f64])
    })?;
    let what = format!("with {} idle connections and {downloads} downloads", connections - downloads);
    let rows = [
        (format!("dispatchers 3 -> 4 -> 2, {what}: connections lost"), Unit::Count, Some(0.0)),
        (
            "requests while dispatchers come and leave: time to first byte, 99th percentile".to_owned(),
            Unit::Microseconds,
            None,
        ),
        (format!("dispatchers 3 -> 4 -> 2, {what}: time in all"), Unit::Seconds, None),
        (format!("one of three dispatchers killed, {what}: connections of others lost"), Unit::Count, Some(0.0)),
        (format!("one of three dispatchers killed, {what}: its own connections"), Unit::Count, None),
    ];
    for (at, (figure, unit, limit)) in rows.into_iter().enumerate() {
        let of = |rounds: &[Vec<f64>]| Samples::of(rounds, |figures| figures[at]);
        let (ours, theirs) = (of(&outcomes[0]), of(&outcomes[1]));
        report.add(match limit {
            Some(limit) => Row::limited(figure, unit, ours, "HAProxy, same routes", theirs, limit),
            None => Row::against(figure, unit, ours, "HAProxy, same routes", theirs, None),
        });
    }
    Ok(())
}

/// The machines of one sample. Their addresses are new: for a moment, the kernel answers for machines of earlier samples.
struct Routed<'a> {
    sample: u8,
    site: &'a Site,
    client: &'a Opener,
    kind: Kind,
    machines: Vec<Machine>,
}

impl<'a> Routed<'a> {
    fn make(site: &'a Site, client: &'a Opener, kind: Kind, sample: u8) -> Result<Self, Failure> {
        let machines = MACHINES.into_iter().enumerate().map(|(number, name)| {
            let address = format!("{}/24", address(sample, number));
            Machine::connect(BRIDGE, &format!("m{name}{sample}"), &[&address]).map_err(doing("making a machine"))
        });
        Ok(Self { sample, site, client, kind, machines: machines.collect::<Result<_, _>>()? })
    }

    /// One more dispatcher comes, and then two leave.
    fn change(&self, idle: usize, downloads: usize) -> Result<Outcome, Failure> {
        let mut processes = self.start_first()?;
        let server = Server { service: SocketAddr::new(IpAddr::V4(SERVICE), 443), processes: Vec::new() };
        // HAProxy has no large file here.
        let (idle, downloads) = if self.kind == Kind::Watari { (idle, downloads) } else { (idle + downloads, 0) };
        Visitors::connect(self.client, &server, idle, downloads)?.during(END_MAX, || {
            let since = Instant::now();
            processes.push(self.start(3)?);
            self.until_serving(&[0, 1, 2, 3])?;
            self.route_to(&[0, 1, 2, 3])?;
            self.until_serving(&[0, 1, 2, 3])?;
            for (leaving, rest) in [(0, &[1, 2, 3][..]), (1, &[2, 3])] {
                processes[leaving].signal(match self.kind {
                    Kind::Watari => Signal::TERM,
                    // It ends when its last client has gone.
                    Kind::Haproxy => Signal::USR1,
                })?;
                self.route_to(rest)?;
                if self.kind == Kind::Watari {
                    self.until_gone(leaving)?;
                } else {
                    sleep(WITHDRAW);
                }
                self.until_serving(rest)?;
            }
            Ok(Replaced { pids: Vec::new(), since })
        })
    }

    /// One of three dispatchers is killed. Returns how many connections it had, too.
    fn kill(&self, idle: usize, downloads: usize) -> Result<(Outcome, usize), Failure> {
        let processes = self.start_first()?;
        let server = Server { service: SocketAddr::new(IpAddr::V4(SERVICE), 443), processes: Vec::new() };
        let (idle, downloads) = if self.kind == Kind::Watari { (idle, downloads) } else { (idle + downloads, 0) };
        let visitors = Visitors::connect(self.client, &server, idle, downloads)?;
        let own = self.connections(1)?;
        let outcome = visitors.during(END_MAX, || {
            let since = Instant::now();
            processes[1].signal(Signal::KILL)?;
            self.until_serving(&[0, 2])?;
            self.route_to(&[0, 2])?;
            self.until_answered()?;
            Ok(Replaced { pids: Vec::new(), since })
        })?;
        Ok((outcome, own))
    }

    /// Starts the agent if there is one, and three dispatchers.
    fn start_first(&self) -> Result<Vec<Process>, Failure> {
        let mut processes = (0..3).map(|number| self.start(number)).collect::<Result<Vec<_>, _>>()?;
        if self.kind == Kind::Watari {
            processes.push(self.start(AGENT)?);
        }
        self.until_serving(&[0, 1, 2])?;
        self.route_to(&[0, 1, 2])?;
        self.until_answered()?;
        Ok(processes)
    }

    /// The connections that a dispatcher has.
    fn connections(&self, machine: usize) -> Result<usize, Failure> {
        match self.kind {
            Kind::Watari => {
                let shown = ctl(&self.admin(machine), &["--json", "connections"])?;
                let shown: serde_json::Value =
                    serde_json::from_slice(&shown).map_err(|error| doing("reading connections")(error.into()))?;
                Ok(shown.as_array().map_or(0, Vec::len))
            }
            Kind::Haproxy => self.sockets(machine, &["state", "established"]),
        }
    }

    /// The sockets at the service's port in this state.
    fn sockets(&self, machine: usize, state: &[&str]) -> Result<usize, Failure> {
        let mut command = self.machines[machine].command("ss");
        let output = command.arg("-Htn").args(state).args(["sport", "=", ":443"]).output();
        let output = output.map_err(doing("counting the sockets of a machine"))?;
        Ok(String::from_utf8_lossy(&output.stdout).lines().count())
    }

    /// Waits until these load balancers accept connections. Dispatchers agree then, and have no strays.
    fn until_serving(&self, machines: &[usize]) -> Result<(), Failure> {
        let deadline = Instant::now() + READY_MAX;
        for machine in machines {
            while let Err(shown) = self.is_serving(*machine, machines.len() - 1)? {
                if Instant::now() > deadline {
                    let waiting = format!("waiting for {}", MACHINES[*machine]);
                    return Err(doing(waiting)(io::Error::other(shown)));
                }
                sleep(PAUSE);
            }
        }
        Ok(())
    }

    /// Whether the machine serves, with so many `others`. The error is what it shows.
    fn is_serving(&self, machine: usize, others: usize) -> Result<Result<(), String>, Failure> {
        if self.kind == Kind::Haproxy {
            let listens = self.sockets(machine, &["state", "listening"])? > 0;
            return Ok(if listens { Ok(()) } else { Err("no listener".to_owned()) });
        }
        let shown = ctl(&self.admin(machine), &["--json", "addresses"]).unwrap_or_default();
        let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap_or_default();
        let why = shown[0]["why"].as_str().unwrap_or_default();
        let is_settled = why.contains(" 0 strays") && !why.contains("not agreed");
        let serves = shown[0]["role"] == "serving" && is_settled && why.matches(" serving").count() == others;
        Ok(if serves { Ok(()) } else { Err(shown.to_string()) })
    }

    /// Waits until a node has ended.
    fn until_gone(&self, machine: usize) -> Result<(), Failure> {
        let deadline = Instant::now() + END_MAX;
        while ctl(&self.admin(machine), &["--json", "addresses"]).is_ok() {
            if Instant::now() > deadline {
                return Err(doing("waiting for the end of a node")(io::Error::other(MACHINES[machine])));
            }
            sleep(PAUSE);
        }
        Ok(())
    }

    fn until_answered(&self) -> Result<(), Failure> {
        self.client.until_answered(SocketAddr::new(IpAddr::V4(SERVICE), 443), READY_MAX)
    }

    fn admin(&self, machine: usize) -> PathBuf {
        self.site.path(&format!("multipath-{}.sock", MACHINES[machine]))
    }

    /// The router spreads packets over these machines from now on.
    fn route_to(&self, machines: &[usize]) -> Result<(), Failure> {
        let mut command = Command::new("ip");
        command.args(["route", "replace", &format!("{SERVICE}/32")]);
        for machine in machines {
            command.args(["nexthop", "via", &address(self.sample, *machine).to_string()]);
        }
        let status = command.status().map_err(doing("changing the routes"))?;
        if status.success() { Ok(()) } else { Err(doing("changing the routes")(io::Error::other(status.to_string()))) }
    }

    /// Starts the program of a machine.
    fn start(&self, machine: usize) -> Result<Process, Failure> {
        let arguments = match self.kind {
            Kind::Watari => vec![program()?, "run".to_owned(), "--config".to_owned(), self.node(machine)?],
            Kind::Haproxy => {
                let mut command = self.machines[machine].command("ip");
                let added = command.args(["address", "add", &format!("{SERVICE}/32"), "dev", "lo"]).status();
                added.map_err(doing("adding the address"))?;
                let config = haproxy_config(self.site, &format!("{SERVICE}:443"))?;
                // Each has a file of its own: another one may be reading its file now.
                let path = self.site.write(&format!("multipath-{}.cfg", MACHINES[machine]), &config)?;
                ["haproxy", "-db", "-f", &path].map(str::to_owned).into()
            }
        };
        let name = format!("multipath-{}", MACHINES[machine]);
        let namespace = format!("--net={}", self.machines[machine].namespace());
        let arguments: Vec<_> =
            [namespace.as_str(), "--"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
        Process::start(&name, "nsenter", &arguments, self.site.path(&format!("{name}.log")))
    }

    /// Writes the configuration of a node. Returns its path.
    fn node(&self, machine: usize) -> Result<String, Failure> {
        let (name, agent) = (MACHINES[machine], address(self.sample, AGENT));
        let pki = self.site.path("multipath-pki");
        let mut text = format!(
            "[node]\nname = \"{name}\"\npki = \"{}\"\nmesh = \"{}:7001\"\nadmin = \"{}\"\n",
            pki.display(),
            address(self.sample, machine),
            self.admin(machine).display()
        );
        for (number, peer) in MACHINES.into_iter().enumerate() {
            let _ = writeln!(text, "[[peer]]\nname = \"{peer}\"\nmesh = \"{}:7001\"", address(self.sample, number));
        }
        if machine == AGENT {
            let (chain, key) = self.site.certificate(Key::P256);
            let _ = write!(
                text,
                "[agent]\nlegs = \"{agent}:7101\"\n[[agent.certificate]]\nchain = \"{}\"\nkey = \"{}\"\n\
                 [agent.files]\nroot = \"{}\"\n",
                chain.display(),
                key.display(),
                self.site.root().display()
            );
        } else {
            let _ = write!(
                text,
                "[dispatcher]\nlisten = [\"{SERVICE}:443\"]\nagents = [{{ name = \"five\", legs = \"{agent}:7101\" }}]\n\
                 [dispatcher.multipath]\naddresses = [\"{SERVICE}\"]\ninterface = \"eth0\"\nwithdraw = \"{}s\"\n",
                WITHDRAW.as_secs()
            );
        }
        self.site.write(&format!("multipath-{name}.toml"), &text)
    }
}

fn address(sample: u8, machine: usize) -> Ipv4Addr {
    let first = (sample - 1) * MACHINES.len() as u8 + 1;
    Ipv4Addr::new(198, 51, 100, first + machine as u8)
}
