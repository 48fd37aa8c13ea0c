//! Planned switches under load: connections change their dispatcher with the address.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use watari_test_origins::namespace::is_inside;

use crate::lab::{DISPATCHERS, HOST, Lab, PLAN, Plan, V4, V6, dispatcher_tables, stdout, until};
use crate::pair::{NETWORK, Pair};

const SWITCHES: usize = 20;
/// Requests of each keep-alive connection, ten in a second.
const REQUESTS: usize = 120;
/// The addresses and options of downloads.
const DOWNLOADS: [(&str, &[&str]); 5] = [
    (V4, &["--http1.1"]),
    (V4, &["--http1.1", "--tls-max", "1.2"]),
    (V4, &["--http2"]),
    (V6, &["--http1.1"]),
    (V6, &["--http2", "--tls-max", "1.2"]),
];
/// When a dispatcher dies or stops, after the order of a switch, in milliseconds. A switch takes some tens.
const DEATHS_MS: [u64; 4] = [15, 30, 50, 80];
/// How long a dispatcher is stopped: longer than an attempt, which takes a second at most.
const STANDSTILL: Duration = Duration::from_millis(1500);
/// How long an owner is stopped: longer than the 3 s in which a connection has to go.
const OWNERS_STANDSTILL: Duration = Duration::from_millis(3500);
/// When a switch that was not carried out is ordered again.
const ORDER_AGAIN: Duration = Duration::from_millis(500);
/// When a switch is ordered, after the order of an upgrade of the next dispatcher, in milliseconds.
const UPGRADES_MS: [u64; 6] = [0, 100, 200, 300, 400, 500];
/// An owner that stands still for less than its lease keeps its address, also on a busy machine.
const LONG_LEASE: &str = "preempt = false\nlease = \"5s\"\nadvert_interval = \"150ms\"";
/// How long a reset may take to arrive.
const RESET_MAX: Duration = Duration::from_secs(20);

/// Downloads and keep-alive connections of both TLS versions and IP versions go on through 20 switches.
#[test]
fn connections_go_on() {
    if !is_inside("switches::connections_go_on") {
        return;
    }
    let lab = Lab::start(&Plan { keys: LONG_LEASE, ..PLAN });
    let mut downloads = Downloads::begin(&lab, "1M");
    let keep_alive = [(V4, "--http1.1"), (V4, "--http2"), (V6, "--http1.1")];
    let mut keep_alive = keep_alive.map(|(address, version)| {
        let mut command = curl(&lab, address, &format!("?[1-{REQUESTS}]"));
        command.args([version, "--rate", "10/s", "--output", "/dev/null", "--write-out"]);
        command.arg("%{http_code} %{num_connects} %{time_total}\n").stdout(Stdio::piped());
        Client::start(command)
    });
    for number in 0..SWITCHES {
        let (from, to) = if number % 2 == 0 { ("d1", "d2") } else { ("d2", "d1") };
        order_switch(&lab, from, to);
        lab.until_owner(to);
    }
    downloads.assert_complete();
    until("all clients have ended", || keep_alive.iter_mut().all(Client::has_ended));
    for mut client in keep_alive {
        let mut printed = String::new();
        client.0.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        let connects: usize =
            printed.lines().map(|line| line.split(' ').nth(1).unwrap().parse::<usize>().unwrap()).sum();
        let answered = printed.lines().filter(|line| line.starts_with("200 ")).count();
        assert_eq!((client.0.wait().unwrap().success(), connects, answered), (true, 1, REQUESTS), "{printed}");
    }
    let counted = |name: &str| counted(&lab, "d1", name) + counted(&lab, "d2", name);
    let [given, taken, reset] = ["connections_given", "connections_taken", "connections_not_given"].map(counted);
    assert!(given >= 8 * 5, "{given} were given");
    assert_eq!((taken, reset), (given, 0));
    lab.end();
}

/// Connections also go to a dispatcher with a higher priority when it starts, and to another one when it ends.
#[test]
fn connections_go_on_without_an_order() {
    if !is_inside("switches::connections_go_on_without_an_order") {
        return;
    }
    let lab = Lab::new(&Plan { priorities: [100, 150], keys: "preempt = true", ..PLAN });
    for node in ["a1", "d1"] {
        lab.start_node(node);
    }
    lab.until_owner("d1");
    let mut downloads = Downloads::begin(&lab, "1M");
    lab.start_node("d2");
    lab.until_owner("d2");
    lab.signal("d2", Signal::TERM);
    lab.until_owner("d1");
    downloads.assert_complete();
    assert_eq!(counted(&lab, "d1", "connections_taken"), DOWNLOADS.len() as u64);
}

/// The agent is upgraded before and within switches. Its HTTP/2 connections stay in the previous processes, and change
/// their dispatcher there.
#[test]
fn connections_go_on_while_their_agent_is_upgraded() {
    if !is_inside("switches::connections_go_on_while_their_agent_is_upgraded") {
        return;
    }
    let lab = Lab::start(&PLAN);
    let mut downloads = Downloads::begin(&lab, "500k");
    lab.upgrade("a1");
    order_switch(&lab, "d1", "d2");
    lab.until_owner("d2");
    let mut order = Client::start(lab.ctl_command("d2", &["switch", "d1"]));
    lab.upgrade("a1");
    until("the order has ended", || order.has_ended());
    lab.until_owner("d1");
    downloads.assert_complete();
    let counted = |name: &str| counted(&lab, "d1", name) + counted(&lab, "d2", name);
    assert!(counted("connections_taken") >= 2 * DOWNLOADS.len() as u64);
    assert_eq!((counted("connections_not_given"), counted("connections_given")), (0, counted("connections_taken")));
    lab.end();
}

/// Each node of a pair is dispatcher and agent. When one ends, its connections go to the other dispatcher with the
/// address, and then to the other agent.
#[test]
fn connections_of_a_pair_go_on_when_a_node_ends() {
    if !is_inside("switches::connections_of_a_pair_go_on_when_a_node_ends") {
        return;
    }
    let pair = Pair::new("mode = \"push\"");
    let plan = Plan { pair: Some(pair), ..PLAN };
    let mut lab = Lab::new(&plan);
    let [d1, d2] = [("d1", 1), ("d2", 2)]
        .map(|(name, number)| format!("{{ name = \"{name}\", legs = \"{NETWORK}.{number}:7101\" }}"));
    for ((number, name), priority) in (1..).zip(DISPATCHERS).zip(plan.priorities) {
        let own = if number == 1 { &d1 } else { &d2 };
        let tables = pair.tables(name, number, priority, &plan);
        lab.write_config(name, &tables.replacen(&format!("[{own}]"), &format!("[{d1}, {d2}]"), 1));
        let config = fs::read_to_string(lab.config(name)).unwrap();
        fs::write(lab.config(name), config.replace("drain_timeout = \"1s\"", "drain_timeout = \"30s\"")).unwrap();
    }
    lab.start_nodes();
    // Connections with HTTP/2 move when they are idle.
    let http1 = [DOWNLOADS[0], DOWNLOADS[1], DOWNLOADS[3]];
    let mut downloads = Downloads::begin_with(&lab, &http1, "1M", |address, file| curl(&lab, address, file));
    lab.signal("d1", Signal::TERM);
    lab.until_owner("d2");
    until("d1 has ended", || lab.address("d1", V4).is_none());
    assert!(downloads.are_running(), "d1 did not wait for their ends");
    downloads.assert_complete();
    assert_eq!(counted(&lab, "d2", "connections_taken"), http1.len() as u64);
    lab.end();
}

/// The owner ends, and its link to the next dispatcher takes 2 MB a second. Connections go there as fast as that permits,
/// those of both addresses.
#[test]
fn connections_go_on_over_a_slow_link() {
    if !is_inside("switches::connections_go_on_over_a_slow_link") {
        return;
    }
    let lab = Lab::start(&Plan { keys: LONG_LEASE, ..PLAN });
    lab.slow_down("d1", "d2", "16mbit");
    let mut downloads = Downloads::begin_several(&lab, "500k", 2);
    // The buffers of their connections are full, which have to change their dispatcher.
    downloads.until_downloaded(1 << 20);
    lab.signal("d1", Signal::TERM);
    lab.until_owner("d2");
    downloads.assert_complete();
    assert_eq!(counted(&lab, "d2", "connections_taken"), 2 * DOWNLOADS.len() as u64);
    lab.end();
}

/// The next dispatcher is upgraded while connections of one address wait for the slow link to it. They go on meanwhile.
#[test]
fn connections_go_on_while_the_next_dispatcher_is_upgraded_behind_a_slow_link() {
    if !is_inside("switches::connections_go_on_while_the_next_dispatcher_is_upgraded_behind_a_slow_link") {
        return;
    }
    let lab = Lab::start(&Plan { keys: LONG_LEASE, ..PLAN });
    lab.slow_down("d1", "d2", "16mbit");
    let of_one_address = [DOWNLOADS[0]; 8];
    let mut downloads = Downloads::begin_with(&lab, &of_one_address, "500k", |address, file| curl(&lab, address, file));
    downloads.until_downloaded(1 << 20);
    let switch = || Client::start(lab.ctl_command("d1", &["switch", V4, "d2"]));
    let mut order = switch();
    until("a connection has gone", || counted(&lab, "d1", "connections_given") > 0);
    lab.upgrade("d2");
    until("d2 has the address", || {
        // The owner gives up if the new process takes too long.
        if order.has_ended() {
            order = switch();
        }
        lab.address("d2", V4).is_some_and(|shown| shown["role"] == "active")
    });
    downloads.assert_complete();
    assert_eq!(counted(&lab, "d1", "connections_not_given"), 0);
    lab.end();
}

/// The next dispatcher does not answer. The owner keeps the address, its connections, and new clients.
#[test]
fn connections_stay_if_the_next_dispatcher_does_not_answer() {
    if !is_inside("switches::connections_stay_if_the_next_dispatcher_does_not_answer") {
        return;
    }
    let lab = Lab::start(&PLAN);
    let mut downloads = Downloads::begin(&lab, "1M");
    lab.signal("d2", Signal::STOP);
    let ordered = lab.ctl("d1", &["switch", "d2"]);
    lab.signal("d2", Signal::CONT);
    assert!(!ordered.status.success(), "a node that stands still takes nothing");
    lab.until_owner("d1");
    downloads.assert_complete();
    assert_eq!(counted(&lab, "d1", "connections_not_given"), 0);
    // It answers now.
    until("the switch is possible", || lab.ctl("d1", &["switch", "d2"]).status.success());
    lab.until_owner("d2");
    lab.end();
}

/// The next dispatcher is upgraded at the time of a switch. It gives what it holds to its successor, and the switch goes on
/// with that.
#[test]
fn connections_go_on_while_the_next_dispatcher_is_upgraded() {
    if !is_inside("switches::connections_go_on_while_the_next_dispatcher_is_upgraded") {
        return;
    }
    let lab = Lab::start(&Plan { keys: LONG_LEASE, ..PLAN });
    let mut downloads = Downloads::begin_several(&lab, "300k", 6);
    for (number, before) in UPGRADES_MS.into_iter().enumerate() {
        let (from, to) = if number % 2 == 0 { ("d1", "d2") } else { ("d2", "d1") };
        lab.until_standby(to, from);
        thread::scope(|scope| {
            let upgrade = scope.spawn(|| lab.upgrade(to));
            sleep(Duration::from_millis(before));
            // Without a link, it does not begin.
            until("the switch is possible", || lab.ctl(from, &["switch", to]).status.success());
            upgrade.join().unwrap();
        });
        lab.until_owner(to);
        assert_eq!(counted(&lab, from, "connections_not_given"), 0, "upgraded {before} ms before the switch");
    }
    // On a busy machine, an upgrade may take longer than the owner waits. The switch is ordered again then.
    let given_up = |node| lab.log(node).matches("the next dispatcher does not answer any more").count();
    let given_up: usize = DISPATCHERS.into_iter().map(given_up).sum();
    assert!(given_up <= UPGRADES_MS.len() / 2, "{given_up} switches were given up");
    downloads.assert_complete();
    lab.end();
}

/// The next dispatcher stands still for longer than an attempt takes, and goes on. No connection is lost or served by
/// both.
#[test]
fn the_next_dispatcher_stands_still_within_a_switch() {
    if is_inside("switches::the_next_dispatcher_stands_still_within_a_switch") {
        stop_within_switches(LONG_LEASE, STANDSTILL, |_, to| to);
    }
}

/// The owner stands still, for longer than connections may make no progress. It goes on with them, because that time
/// does not count.
#[test]
fn the_owner_stands_still_within_a_switch() {
    if is_inside("switches::the_owner_stands_still_within_a_switch") {
        stop_within_switches("preempt = false\nlease = \"8s\"", OWNERS_STANDSTILL, |from, _| from);
    }
}

/// Stops one of the two dispatchers of each switch for a while.
fn stop_within_switches(
    keys: &'static str,
    standstill: Duration,
    which: fn(&'static str, &'static str) -> &'static str,
) {
    let lab = Lab::start(&Plan { keys, ..PLAN });
    let mut downloads = Downloads::begin_several(&lab, "300k", 2);
    for (number, after) in DEATHS_MS.into_iter().enumerate() {
        let (from, to) = if number % 2 == 0 { ("d1", "d2") } else { ("d2", "d1") };
        lab.until_standby(to, from);
        let mut order = Client::start(lab.ctl_command(from, &["switch", to]));
        sleep(Duration::from_millis(after));
        lab.signal(which(from, to), Signal::STOP);
        sleep(standstill);
        lab.signal(which(from, to), Signal::CONT);
        // If the next dispatcher did not answer, the owner stays the owner, and is asked again.
        let mut ordered = Instant::now();
        let is_active = |address: &str| lab.address(to, address).is_some_and(|shown| shown["role"] == "active");
        until("the switch is complete", || {
            let is_complete = is_active(V4) && is_active(V6);
            if !is_complete && ordered.elapsed() > ORDER_AGAIN {
                order = Client::start(lab.ctl_command(from, &["switch", to]));
                ordered = Instant::now();
            }
            is_complete
        });
        drop(order);
        lab.until_owner(to);
        assert_eq!(counted(&lab, from, "connections_not_given"), 0, "stopped {after} ms after the order");
    }
    downloads.assert_complete();
    lab.end();
}

/// Clients of backends, and those that have sent nothing, cannot go to another dispatcher. They are reset and counted.
#[test]
fn clients_without_an_agent_are_reset() {
    if !is_inside("switches::clients_without_an_agent_are_reset") {
        return;
    }
    let mut lab = Lab::new(&PLAN);
    let backend = TcpListener::bind("192.0.2.9:0").unwrap();
    let backends = backend.local_addr().unwrap();
    let passthrough = format!("[[dispatcher.passthrough]]\nnames = [\"raw.test\"]\nbackends = [\"{backends}\"]\n");
    for (node, priority) in DISPATCHERS.into_iter().zip(PLAN.priorities) {
        lab.write_config(node, &(dispatcher_tables(priority, "eth0", PLAN.keys) + &passthrough));
    }
    lab.start_nodes();
    let silent = TcpStream::connect((V4, 443)).unwrap();
    let mut passed = TcpStream::connect((V6, 443)).unwrap();
    passed.write_all(&hello("raw.test")).unwrap();
    let mut served = backend.accept().unwrap().0;
    served.write_all(b"answer").unwrap();
    passed.read_exact(&mut [0; 6]).unwrap();
    order_switch(&lab, "d1", "d2");
    lab.until_owner("d2");
    for mut end in [silent, passed, served] {
        end.set_read_timeout(Some(RESET_MAX)).unwrap();
        // The backend has read nothing so far.
        let ended = end.read_to_end(&mut Vec::new());
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    assert_eq!(counted(&lab, "d1", "connections_not_given"), 2);
    lab.end();
}

/// The first record of a client with this server name.
fn hello(name: &str) -> Vec<u8> {
    let config = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let mut client = ClientConnection::new(Arc::new(config), name.to_owned().try_into().unwrap()).unwrap();
    let mut record = Vec::new();
    client.write_tls(&mut record).unwrap();
    record
}

/// A dispatcher dies within a switch. What the client gets is right, and what is cut does not look complete.
#[test]
fn a_dispatcher_dies_within_a_switch() {
    if !is_inside("switches::a_dispatcher_dies_within_a_switch") {
        return;
    }
    let lab = Lab::start(&PLAN);
    let mut owner = "d1";
    for (number, after) in DEATHS_MS.into_iter().enumerate() {
        let next = if owner == "d1" { "d2" } else { "d1" };
        let mut downloads = Downloads::begin(&lab, "3M");
        let mut order = Client::start(lab.ctl_command(owner, &["switch", next]));
        sleep(Duration::from_millis(after));
        let (dead, alive) = if number % 2 == 0 { (owner, next) } else { (next, owner) };
        lab.kill(dead);
        until("the order has ended", || order.has_ended());
        lab.until_owner(alive);
        let (complete, cut) = downloads.assert_right();
        println!("{dead} killed after {after} ms: {complete} of {} complete, {cut} cut", DOWNLOADS.len());
        lab.start_node(dead);
        lab.until_standby(dead, alive);
        owner = alive;
    }
    lab.end();
}

/// Orders a switch of all addresses.
fn order_switch(lab: &Lab, from: &str, to: &str) {
    // The owner keeps the address if the next one takes too long to answer.
    until(&format!("{from} has switched to {to}"), || lab.ctl(from, &["switch", to]).status.success());
}

/// A counter of a dispatcher.
fn counted(lab: &Lab, node: &str, name: &str) -> u64 {
    let metrics = lab.command(node, "curl").args(["--silent", "http://127.0.0.1:9001/metrics"]).output().unwrap();
    let value = |line: &str| Some(line.strip_prefix(&format!("watari_dispatcher_{name}_total "))?.parse().unwrap());
    stdout(&metrics).lines().find_map(value).unwrap_or(0)
}

/// Downloads of a large file, each to a file of its own.
pub(crate) struct Downloads {
    bytes: Vec<u8>,
    running: Vec<(PathBuf, Client)>,
}

impl Downloads {
    /// Begins all downloads at this rate, and waits until they run.
    fn begin(lab: &Lab, rate: &str) -> Self {
        Self::begin_several(lab, rate, 1)
    }

    /// The same with several clients for each kind of download.
    fn begin_several(lab: &Lab, rate: &str, times: usize) -> Self {
        Self::begin_with(lab, &DOWNLOADS.repeat(times), rate, |address, file| curl(lab, address, file))
    }

    /// The same with these addresses and options, by this program.
    pub(crate) fn begin_with(
        lab: &Lab,
        downloads: &[(&str, &[&str])],
        rate: &str,
        curl: impl Fn(&str, &str) -> Command,
    ) -> Self {
        let bytes: Vec<u8> = (0..3_u32 << 20).flat_map(u32::to_le_bytes).collect();
        fs::write(lab.dir().join("www/large"), &bytes).unwrap();
        let begin = |(number, (address, options)): (usize, &(&str, &[&str]))| {
            let file = lab.dir().join(format!("downloaded{number}"));
            let _ = fs::remove_file(&file);
            let mut command = curl(address, "large");
            // A client that only receives does not notice that its dispatcher has died.
            command.args(*options).args(["--speed-limit", "1", "--speed-time", "10"]);
            command.args(["--limit-rate", rate, "--output"]).arg(&file);
            (file, Client::start(command))
        };
        let running: Vec<_> = downloads.iter().enumerate().map(begin).collect();
        until("the downloads run", || running.iter().all(|(file, _)| file.exists()));
        Self { bytes, running }
    }

    /// Waits until each client has this many bytes.
    fn until_downloaded(&self, len: u64) {
        let has_len = |(file, _): &(PathBuf, Client)| fs::metadata(file).is_ok_and(|file| file.len() >= len);
        until("the downloads run", || self.running.iter().all(has_len));
    }

    fn are_running(&mut self) -> bool {
        self.running.iter_mut().all(|(_, client)| !client.has_ended())
    }

    pub(crate) fn assert_complete(&mut self) {
        assert_eq!(self.assert_right(), (self.running.len(), 0));
    }

    /// Waits for the ends. Checks the bytes, and that only complete downloads have ended well. Returns how many were
    /// complete, and how many were cut.
    pub(crate) fn assert_right(&mut self) -> (usize, usize) {
        let Self { bytes, running } = self;
        let mut complete = 0;
        for (file, client) in running.iter_mut() {
            until("the download has ended", || client.has_ended());
            let got = fs::read(&*file).unwrap();
            let is_complete = client.0.wait().unwrap().success();
            assert!(bytes.starts_with(&got), "{}: other bytes", file.display());
            assert_eq!(is_complete, got.len() == bytes.len(), "{}: {} bytes", file.display(), got.len());
            complete += usize::from(is_complete);
        }
        (complete, running.len() - complete)
    }
}

/// A program that ends with this value.
pub(crate) struct Client(Child);

impl Client {
    pub(crate) fn start(mut command: Command) -> Self {
        Self(command.spawn().unwrap())
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// What it has printed, to its end.
    pub(crate) fn take_output(&mut self) -> Output {
        let mut output = Vec::new();
        self.0.stdout.take().unwrap().read_to_end(&mut output).unwrap();
        Output { status: self.0.wait().unwrap(), stdout: output, stderr: Vec::new() }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// curl, for a file of the site at `address`.
fn curl(lab: &Lab, address: &str, file: &str) -> Command {
    as_curl(Command::new("curl"), lab, address, file)
}

/// The same, on another machine.
pub(crate) fn as_curl(mut command: Command, lab: &Lab, address: &str, file: &str) -> Command {
    let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    command.current_dir(lab.dir()).args(["--silent", "--show-error", "--fail", "--max-time", "90"]);
    command.args(["--cacert", "site.pem", "--resolve", &format!("{HOST}:443:{host}")]);
    command.arg(format!("https://{HOST}/{file}")).stdin(Stdio::null());
    command
}
