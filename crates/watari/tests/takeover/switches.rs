//! Planned switches under load: connections change their dispatcher with the address.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;
use watari_test_origins::namespace::is_inside;

use crate::lab::{HOST, Lab, PLAN, Plan, V4, V6, stdout, until};

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
/// When a dispatcher dies, after the order of a switch, in milliseconds. A switch takes some tens.
const DEATHS_MS: [u64; 4] = [15, 30, 50, 80];

/// Downloads and keep-alive connections of both TLS versions and IP versions go on through 20 switches.
#[test]
fn connections_go_on() {
    if !is_inside("switches::connections_go_on") {
        return;
    }
    let lab = Lab::start(&PLAN);
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
        let ordered = lab.ctl(from, &["switch", to]);
        assert!(ordered.status.success(), "{}", String::from_utf8_lossy(&ordered.stderr));
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
        until("the node stands by", || {
            lab.address(dead, V4).is_some_and(|shown| shown["owner"] == alive && shown["ready"] == true)
        });
        owner = alive;
    }
    lab.end();
}

/// A counter of a dispatcher.
fn counted(lab: &Lab, node: &str, name: &str) -> u64 {
    let metrics = lab.command(node, "curl").args(["--silent", "http://127.0.0.1:9001/metrics"]).output().unwrap();
    let value = |line: &str| Some(line.strip_prefix(&format!("watari_dispatcher_{name}_total "))?.parse().unwrap());
    stdout(&metrics).lines().find_map(value).unwrap_or(0)
}

/// Downloads of a large file, each to a file of its own.
struct Downloads {
    bytes: Vec<u8>,
    running: Vec<(PathBuf, Client)>,
}

impl Downloads {
    /// Begins all downloads at this rate, and waits until they run.
    fn begin(lab: &Lab, rate: &str) -> Self {
        let bytes: Vec<u8> = (0..3_u32 << 20).flat_map(u32::to_le_bytes).collect();
        fs::write(lab.dir().join("www/large"), &bytes).unwrap();
        let begin = |(number, (address, options)): (usize, (&str, &[&str]))| {
            let file = lab.dir().join(format!("downloaded{number}"));
            let _ = fs::remove_file(&file);
            let mut command = curl(lab, address, "large");
            // A client that only receives does not notice that its dispatcher has died.
            command.args(options).args(["--speed-limit", "1", "--speed-time", "10"]);
            command.args(["--limit-rate", rate, "--output"]).arg(&file);
            (file, Client::start(command))
        };
        let running: Vec<_> = DOWNLOADS.into_iter().enumerate().map(begin).collect();
        until("the downloads run", || running.iter().all(|(file, _)| file.exists()));
        Self { bytes, running }
    }

    fn assert_complete(&mut self) {
        assert!(self.running.iter_mut().any(|(_, client)| !client.has_ended()), "the downloads were too short");
        assert_eq!(self.assert_right(), (self.running.len(), 0));
    }

    /// Waits for the ends. Checks the bytes, and that only complete downloads have ended well. Returns how many were
    /// complete, and how many were cut.
    fn assert_right(&mut self) -> (usize, usize) {
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
struct Client(Child);

impl Client {
    fn start(mut command: Command) -> Self {
        Self(command.spawn().unwrap())
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
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
    let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    let mut command = Command::new("curl");
    command.current_dir(lab.dir()).args(["--silent", "--show-error", "--fail", "--max-time", "35"]);
    command.args(["--cacert", "site.pem", "--resolve", &format!("{HOST}:443:{host}")]);
    command.arg(format!("https://{HOST}/{file}")).stdin(Stdio::null());
    command
}
