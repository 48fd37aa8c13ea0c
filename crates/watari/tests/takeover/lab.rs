//! A bridge with machines on it, each a network namespace of its own.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;
use watari_test_origins::namespace::{Machine, add_bridge};

use crate::pair::{self, Pair};
use crate::watch::Watch;

pub(crate) const V4: &str = "192.0.2.100";
pub(crate) const V6: &str = "2001:db8::100";
pub(crate) const DISPATCHERS: [&str; 2] = ["d1", "d2"];
/// The name in the site's certificate.
pub(crate) const HOST: &str = "site.test";
const WATARI: &str = env!("CARGO_BIN_EXE_watari");
/// Far longer than any step takes.
const WAIT_MAX: Duration = Duration::from_secs(40);
const POLL: Duration = Duration::from_millis(10);

/// What differs between the labs of tests.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    /// Of d1 and d2.
    pub(crate) priorities: [u8; 2],
    /// Keys of `[dispatcher.takeover]`.
    pub(crate) keys: &'static str,
    /// Whether the test can [step the clocks](Lab::step_clock) of nodes.
    pub(crate) own_clocks: bool,
    /// If set, d1 and d2 are a [standby pair](crate::pair).
    pub(crate) pair: Option<Pair>,
}

/// d1 gets the addresses first, and does not take them back.
pub(crate) const PLAN: Plan = Plan { priorities: [150, 100], keys: "preempt = false", own_clocks: false, pair: None };

pub(crate) struct Lab {
    dir: TempDir,
    hosts: Vec<Host>,
    /// The network of the mesh, without the number of the machine.
    mesh: &'static str,
    own_clocks: bool,
    watch: Option<Watch>,
}

/// A machine, and the node on it.
struct Host {
    name: &'static str,
    number: u8,
    /// Ends before the machine.
    node: Mutex<Option<Node>>,
    machine: Machine,
}

/// A node's process. It ends with this value.
struct Node {
    /// The process that the test has started. Its successors are in its group.
    first: Child,
    pid: Pid,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.first), Signal::KILL);
        let _ = self.first.wait();
        until("the process is gone", || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid.as_raw_nonzero()));
            stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))
        });
    }
}

impl Lab {
    /// The machines and configurations. No node runs yet.
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut lab = Self::without_files(&[("d1", 1), ("d2", 2), ("a1", 3), ("x1", 4)]);
        lab.own_clocks = plan.own_clocks;
        if plan.pair.is_some() {
            lab.mesh = pair::NETWORK;
            lab.add_network(pair::NETWORK);
        }
        lab.make_files(plan.pair.as_ref());
        for ((number, name), priority) in (1..).zip(DISPATCHERS).zip(plan.priorities) {
            let tables = match &plan.pair {
                Some(pair) => pair.tables(name, number, priority, plan),
                None => dispatcher_tables(priority, "eth0", plan.keys),
            };
            lab.write_config(name, &tables);
        }
        lab
    }

    /// Machines with these names and numbers, and the configuration of the agent `a1`.
    pub(crate) fn with_machines(machines: &[(&'static str, u8)]) -> Self {
        let lab = Self::without_files(machines);
        lab.make_files(None);
        lab
    }

    fn without_files(machines: &[(&'static str, u8)]) -> Self {
        let dir = tempfile::Builder::new().prefix("watari-takeover-").tempdir().unwrap();
        succeed(Command::new("ip").args(["link", "set", "lo", "up"]));
        add_bridge("br0", &["192.0.2.9/24", "2001:db8::9/64"]).unwrap();
        let host = |&(name, number): &(&'static str, u8)| {
            let addresses = [format!("192.0.2.{number}/24"), format!("2001:db8::{number}/64")];
            let machine = Machine::connect("br0", &format!("v{name}"), &addresses.each_ref().map(String::as_str));
            Host { name, number, node: Mutex::default(), machine: machine.unwrap() }
        };
        let hosts = machines.iter().map(host).collect();
        Self { dir, hosts, mesh: "192.0.2", own_clocks: false, watch: None }
    }

    /// All nodes run, and d1 has both addresses.
    pub(crate) fn start(plan: &Plan) -> Self {
        let mut lab = Self::new(plan);
        lab.start_nodes();
        lab
    }

    /// As [`Lab::start`], after [`Lab::new`].
    pub(crate) fn start_nodes(&mut self) {
        for node in ["a1", "d1"] {
            self.start_node(node);
        }
        self.until_owner("d1");
        self.start_node("d2");
        // It may have taken the addresses over already.
        until("d2 is ready", || {
            self.address("d2", V4).is_some_and(|shown| !shown["owner"].is_null() && shown["ready"] == true)
        });
        self.watch = Some(Watch::start());
    }

    /// The requests so far that two machines have answered.
    pub(crate) fn doubles(&self) -> Vec<String> {
        self.watch.as_ref().unwrap().doubles()
    }

    /// Waits until `name` can take the address that `owner` has.
    pub(crate) fn until_standby(&self, name: &str, owner: &str) {
        until(&format!("{name} stands by"), || {
            self.address(name, V4).is_some_and(|shown| shown["owner"] == owner && shown["ready"] == true)
        });
    }

    /// Ends the watch, which must not have seen two owners at a time.
    pub(crate) fn end(mut self) {
        let seen = self.watch.take().unwrap().stop();
        assert_eq!(seen.doubles, Vec::<String>::new(), "two machines answered a request");
        assert!(seen.answers > 0, "no machine ever answered");
        println!("{} answers to ARP requests, {} to connections", seen.answers, seen.connections);
    }

    /// A second link of each machine, `eth1`, to a bridge of its own.
    fn add_network(&self, network: &str) {
        add_bridge("br1", &[]).unwrap();
        for Host { name, number, machine, .. } in &self.hosts {
            machine.add_link("br1", &format!("n{name}"), "eth1", &[&format!("{network}.{number}/24")]).unwrap();
        }
    }

    /// Certificates, the site, the program of `notify`, and the configuration of `a1`.
    fn make_files(&self, pair: Option<&Pair>) {
        let watari = |arguments: &[&str]| succeed(Command::new(WATARI).current_dir(self.dir()).args(arguments));
        watari(&["pki", "init", "--dir", "pki"]);
        for Host { name, .. } in &self.hosts {
            let role = match (name.starts_with('d'), pair) {
                (true, Some(_)) => "dispatcher,agent",
                (true, None) | (false, Some(_)) => "dispatcher",
                (false, None) => "agent",
            };
            watari(&["pki", "issue", name, "--role", role, "--dir", "pki"]);
        }
        // The certificate signs itself, and is no authority: clients of all libraries accept it as the only one.
        let key = KeyPair::generate_for(pair.map_or(&PKCS_ECDSA_P256_SHA256, |pair| pair.key)).unwrap();
        let certificate = CertificateParams::new([HOST.to_owned()]).unwrap().self_signed(&key).unwrap();
        fs::write(self.dir().join("site.pem"), certificate.pem()).unwrap();
        let mut file =
            File::options().write(true).create_new(true).mode(0o600).open(self.dir().join("site.key")).unwrap();
        file.write_all(key.serialize_pem().as_bytes()).unwrap();
        fs::create_dir(self.dir().join("www")).unwrap();
        fs::write(self.dir().join("www/index.html"), "hello\n").unwrap();
        let program = self.dir().join("notify");
        fs::write(&program, format!("#!/bin/sh\necho \"$@\" >> {}/notified\n", self.dir().display())).unwrap();
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        if pair.is_some() {
            return self.write_config("a1", &pair::witness_tables());
        }
        self.write_config(
            "a1",
            "[agent]\nlegs = \"192.0.2.3:7101\"\n[[agent.certificate]]\nchain = \"site.pem\"\nkey = \"site.key\"\n\
             default = true\n[agent.files]\nroot = \"www\"\n",
        );
    }

    /// Writes the configuration of a node, with these tables behind those of the node itself.
    pub(crate) fn write_config(&self, name: &str, tables: &str) {
        let (number, mesh) = (self.host(name).number, self.mesh);
        let mut text = format!(
            "[node]\nname = \"{name}\"\npki = \"pki\"\nmesh = \"{mesh}.{number}:7001\"\nadmin = \"{name}.sock\"\n\
             metrics = \"127.0.0.1:9001\"\ndrain_timeout = \"{}\"\n",
            // An agent that is upgraded keeps connections for as long.
            if name == "a1" { "60s" } else { "1s" }
        );
        for Host { name, number, .. } in &self.hosts {
            let _ = writeln!(text, "[[peer]]\nname = \"{name}\"\nmesh = \"{mesh}.{number}:7001\"");
        }
        fs::write(self.config(name), text + tables).unwrap();
    }

    pub(crate) fn config(&self, name: &str) -> PathBuf {
        self.dir().join(format!("{name}.toml"))
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn host(&self, name: &str) -> &Host {
        self.hosts.iter().find(|host| host.name == name).unwrap()
    }

    /// Starts the node of a machine.
    pub(crate) fn start_node(&self, name: &str) {
        self.start_node_by(name, &[]);
    }

    /// Starts the node of a machine by another program, which replaces itself by it.
    pub(crate) fn start_node_by(&self, name: &str, launcher: &[&str]) {
        let log = File::options().create(true).append(true).open(self.dir().join(format!("{name}.log"))).unwrap();
        let words = [launcher, &[WATARI]].concat();
        let mut command = self.command(name, words[0]);
        command.args(&words[1..]).args(["run", "--config", &format!("{name}.toml")]).stdin(Stdio::null());
        if self.own_clocks {
            // Only the wall clock: timers go on as they are.
            command.env("LD_PRELOAD", faketime()).env("FAKETIME_TIMESTAMP_FILE", self.clock(name));
            command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
            command.env("DONT_FAKE_MONOTONIC", "1");
        }
        let first = command.stdout(Stdio::null()).stderr(log).process_group(0).spawn().unwrap();
        let pid = Pid::from_child(&first);
        *self.host(name).node.lock().unwrap() = Some(Node { first, pid });
    }

    /// Replaces the process of a node by a new one.
    pub(crate) fn upgrade(&self, name: &str) {
        let output = self.ctl(name, &["upgrade"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut node = self.host(name).node.lock().unwrap();
        let node = node.as_mut().unwrap();
        until("the new process answers", || {
            let status = self.ctl(name, &["--json", "status"]).stdout;
            let pid = serde_json::from_slice(&status).ok().and_then(|status: Value| status["pid"].as_i64());
            let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).unwrap()));
            pid.filter(|pid| *pid != node.pid).is_some_and(|pid| {
                node.pid = pid;
                true
            })
        });
    }

    pub(crate) fn signal(&self, name: &str, signal: Signal) {
        let node = self.host(name).node.lock().unwrap();
        kill_process(node.as_ref().unwrap().pid, signal).unwrap();
    }

    /// The process of a node, if there is one.
    pub(crate) fn pid(&self, name: &str) -> Option<Pid> {
        Some(self.host(name).node.lock().unwrap().as_ref()?.pid)
    }

    /// Kills a node, and waits until it is gone.
    pub(crate) fn kill(&self, name: &str) {
        drop(self.host(name).node.lock().unwrap().take().unwrap());
    }

    /// A program in the namespace of a machine, in the directory of the lab.
    pub(crate) fn command(&self, name: &str, program: &str) -> Command {
        let mut command = self.host(name).machine.command(program);
        command.current_dir(self.dir());
        command
    }

    /// Takes the machine off the bridge, without a change of its carrier, or puts it there again.
    pub(crate) fn cut(name: &str, is_cut: bool) {
        set_bridge(&format!("v{name}"), "br0", is_cut);
    }

    /// Takes the node of a [pair](crate::pair) off the network of the mesh.
    pub(crate) fn cut_notices(name: &str) {
        set_bridge(&format!("n{name}"), "br1", true);
    }

    /// Steps the wall clock of a node to the system's time and these seconds.
    pub(crate) fn step_clock(&self, name: &str, seconds: i64) {
        let new = self.dir().join("clock.new");
        fs::write(&new, format!("{seconds:+}\n")).unwrap();
        fs::rename(new, self.clock(name)).unwrap();
    }

    /// The offset of a node's wall clock.
    fn clock(&self, name: &str) -> PathBuf {
        self.dir().join(format!("{name}.clock"))
    }

    /// Drops all packets between two machines, or no longer.
    pub(crate) fn part(&self, a: &str, b: &str, is_parted: bool) {
        let order = if is_parted { "add" } else { "del" };
        for (from, to) in [(a, b), (b, a)] {
            self.ip(from, &["route", order, "blackhole", &format!("192.0.2.{}/32", self.host(to).number)]);
        }
    }

    /// Limits what a machine sends to another one by IPv4, at a rate that `tc` understands.
    pub(crate) fn slow_down(&self, from: &str, to: &str, rate: &str) {
        let target = format!("192.0.2.{}/32", self.host(to).number);
        for order in [
            "qdisc add dev eth0 root handle 1: htb",
            &format!("class add dev eth0 parent 1: classid 1:1 htb rate {rate}"),
            &format!("filter add dev eth0 parent 1: protocol ip u32 match ip dst {target} flowid 1:1"),
        ] {
            succeed(self.command(from, "tc").args(order.split(' ')));
        }
    }

    /// Sets the carrier of the machine's interface.
    pub(crate) fn set_carrier(name: &str, state: &str) {
        succeed(Command::new("ip").args(["link", "set", &format!("v{name}"), state]));
    }

    pub(crate) fn ip(&self, name: &str, arguments: &[&str]) -> String {
        stdout(&self.command(name, "ip").args(arguments).output().unwrap())
    }

    /// Whether `eth0` of the machine has the address.
    pub(crate) fn has(&self, name: &str, address: &str) -> bool {
        self.ip(name, &["address", "show", "dev", "eth0"]).contains(&format!(" {address}/"))
    }

    /// The link-layer address of the machine.
    pub(crate) fn mac(&self, name: &str) -> String {
        self.ip(name, &["link", "show", "dev", "eth0"]).split("link/ether ").nth(1).unwrap()[..17].to_owned()
    }

    /// The link-layer address that the client's neighbour table has.
    pub(crate) fn neighbour(address: &str) -> Option<String> {
        let shown = stdout(&Command::new("ip").args(["neigh", "show", address]).output().unwrap());
        Some(shown.split("lladdr ").nth(1)?[..17].to_owned())
    }

    /// Runs `watari ctl`.
    pub(crate) fn ctl(&self, name: &str, arguments: &[&str]) -> Output {
        self.ctl_command(name, arguments).output().unwrap()
    }

    pub(crate) fn ctl_command(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(WATARI);
        command.args(["ctl", "--admin", &format!("{name}.sock")]).args(arguments).current_dir(self.dir());
        command
    }

    /// What a node shows of an address. `None`: it does not answer.
    pub(crate) fn address(&self, name: &str, address: &str) -> Option<Value> {
        let output = self.ctl(name, &["--json", "addresses"]);
        let shown: Value = serde_json::from_slice(&output.stdout).ok()?;
        let is_meant = |shown: &&Value| shown["address"].as_str().unwrap().starts_with(&format!("{address}/"));
        shown.as_array()?.iter().find(is_meant).cloned()
    }

    pub(crate) fn log(&self, name: &str) -> String {
        fs::read_to_string(self.dir().join(format!("{name}.log"))).unwrap_or_default()
    }

    /// The sum of a metric's values, of the series with this part in their labels.
    pub(crate) fn metric(&self, name: &str, metric: &str, label: &str) -> u64 {
        let metrics = self.command(name, "curl").args(["--silent", "http://127.0.0.1:9001/metrics"]).output().unwrap();
        let value = |line: &str| {
            let (series, value) = line.rsplit_once(' ')?;
            let is_meant = series.split('{').next() == Some(metric) && series.contains(label);
            is_meant.then(|| value.parse::<u64>().unwrap())
        };
        stdout(&metrics).lines().filter_map(value).sum()
    }

    /// A request by a new connection. Fails if it is not answered in 100 ms.
    pub(crate) fn request(&self, address: &str) -> bool {
        let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        let output = Command::new("curl")
            .current_dir(self.dir())
            .args(["--silent", "--show-error", "--connect-timeout", "0.1", "--max-time", "5", "--cacert", "site.pem"])
            .args(["--resolve", &format!("{HOST}:443:{host}"), &format!("https://{HOST}/")])
            .output()
            .unwrap();
        stdout(&output) == "hello\n"
    }

    /// Downloads a file to `downloaded`, at this rate.
    pub(crate) fn download(&self, address: &str, file: &str, rate: &str) -> Child {
        let mut command = Command::new("curl");
        command.current_dir(self.dir()).args(["--silent", "--fail", "--http1.1", "--cacert", "site.pem"]);
        command.args(["--limit-rate", rate, "--output", "downloaded", "--resolve"]);
        command.args([format!("{HOST}:443:{address}"), format!("https://{HOST}/{file}")]);
        command.stdin(Stdio::null()).spawn().unwrap()
    }

    /// Waits until `name` has both addresses and answers there.
    pub(crate) fn until_owner(&self, name: &str) {
        for address in [V4, V6] {
            until(&format!("{name} has {address}"), || {
                self.address(name, address).is_some_and(|shown| shown["role"] == "active") && self.request(address)
            });
            assert!(self.has(name, address));
        }
    }

    /// Checks that `name` has the address now, and waits until it answers there.
    pub(crate) fn assert_owner(&self, name: &str, address: &str) {
        assert!(self.has(name, address), "{name} does not have {address}");
        until(&format!("{name} answers at {address}"), || self.request(address));
    }

    /// A TLS session with the site. Returns whether it resumed the one in `file`, and stores it there.
    pub(crate) fn session(&self, file: &str) -> bool {
        let mut command = Command::new("openssl");
        command.current_dir(self.dir()).args(["s_client", "-connect", &format!("{V4}:443"), "-servername", HOST]);
        if self.dir().join(file).exists() {
            command.args(["-sess_in", file]);
        }
        let mut client = command
            .args(["-sess_out", file, "-quiet", "-ign_eof", "-no_ssl3"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let request = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        client.stdin.as_mut().unwrap().write_all(request.as_bytes()).unwrap();
        assert!(stdout(&client.wait_with_output().unwrap()).contains("hello"));
        // A second client only tells whether the session resumes.
        let output = Command::new("openssl")
            .current_dir(self.dir())
            .args(["s_client", "-connect", &format!("{V4}:443"), "-servername", HOST, "-sess_in", file])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        stdout(&output).contains("Reused, ")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if thread::panicking() {
            for Host { name, .. } in &self.hosts {
                eprintln!("---- {name}\n{}", self.log(name));
            }
        }
    }
}

/// The tables of a dispatcher with both addresses.
pub(crate) fn dispatcher_tables(priority: u8, interface: &str, keys: &str) -> String {
    format!(
        "[dispatcher]\nlisten = [\"{V4}:443\", \"[{V6}]:443\"]\n\
         agents = [{{ name = \"a1\", legs = \"192.0.2.3:7101\" }}]\n\
         [dispatcher.takeover]\nvoters = [\"d1\", \"d2\", \"a1\"]\n{keys}\n{}",
        service_addresses(priority, interface)
    )
}

/// The key of `[dispatcher.takeover]` with both addresses.
pub(crate) fn service_addresses(priority: u8, interface: &str) -> String {
    format!(
        "addresses = [\n\
         {{ address = \"{V4}/24\", interface = \"{interface}\", priority = {priority} }},\n\
         {{ address = \"{V6}/64\", interface = \"{interface}\", priority = {priority} }},\n]\n"
    )
}

/// The library of Debian's package faketime, which changes the time that a program sees.
fn faketime() -> PathBuf {
    let path = PathBuf::from(format!("/usr/lib/{}-linux-gnu/faketime/libfaketime.so.1", std::env::consts::ARCH));
    assert!(path.exists(), "{} is missing: install faketime", path.display());
    path
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn set_bridge(port: &str, bridge: &str, is_cut: bool) {
    let arguments: &[&str] = if is_cut { &["nomaster"] } else { &["master", bridge] };
    succeed(Command::new("ip").args(["link", "set", port]).args(arguments));
}

pub(crate) fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT_MAX;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {WAIT_MAX:?}: {what}");
        thread::sleep(POLL);
    }
}
