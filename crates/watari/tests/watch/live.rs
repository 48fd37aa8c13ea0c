//! `watari watch live` and `watari watch judge` with traffic, and a receiver of alerts.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};
use tempfile::tempdir;

use crate::command::knock;
use crate::namespace::{POLL, Running, WAIT_MAX, is_inside, run, wait_for};
use crate::rows::Row;

/// The address of a sensor's metrics.
pub(crate) const METRICS: &str = "127.0.0.1:9464";

/// A line of `--json --states`: a server's state has changed.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Change {
    pub(crate) sensor: String,
    pub(crate) server: SocketAddr,
    pub(crate) since: f64,
    pub(crate) state: String,
}

/// A running `watari watch` that prints changes.
pub(crate) struct Watching {
    running: Running,
    printed: PathBuf,
    said: PathBuf,
}

impl Watching {
    /// Starts it in `dir`. Its output goes to a file there, its log to another.
    pub(crate) fn start(dir: &Path, name: &str, arguments: &[&str]) -> Self {
        let (printed, said) = (dir.join(format!("{name}.jsonl")), dir.join(format!("{name}.log")));
        let mut command = Command::new(env!("CARGO_BIN_EXE_watari"));
        // The namespace has no user except root.
        command.arg("watch").args(arguments).args(["--json", "--user", "root"]).current_dir(dir);
        command.stdin(Stdio::null()).stdout(File::create(&printed).unwrap()).stderr(File::create(&said).unwrap());
        Self { running: Running(command.spawn().unwrap()), printed, said }
    }

    /// The changes that it has printed of a server.
    pub(crate) fn changes(&self, server: SocketAddr) -> Vec<Change> {
        self.rows().into_iter().filter(|change: &Change| change.server == server).collect()
    }

    /// All rows that it has printed.
    pub(crate) fn rows<T: DeserializeOwned>(&self) -> Vec<T> {
        let text = fs::read_to_string(&self.printed).unwrap();
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until its log contains `part`.
    pub(crate) fn wait_until_logged(&self, part: &str) {
        self.wait_until(part, || fs::read_to_string(&self.said).unwrap().contains(part));
    }

    /// Waits until a server has reached this state.
    pub(crate) fn wait_until_in(&self, server: SocketAddr, state: &str) {
        self.wait_until(state, || self.changes(server).last().is_some_and(|change| change.state == state));
    }

    pub(crate) fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + WAIT_MAX;
        while !is_so() {
            let said = || fs::read_to_string(&self.said).unwrap();
            let printed = || fs::read_to_string(&self.printed).unwrap().chars().take(2000).collect::<String>();
            assert!(Instant::now() < deadline, "not {what}: {} {}", said(), printed());
            thread::sleep(POLL);
        }
    }

    /// Kills it at any point of its work.
    pub(crate) fn kill(mut self) {
        self.running.kill();
    }

    /// Ends it, which must succeed. Returns all that it has printed.
    pub(crate) fn end<T: DeserializeOwned>(mut self) -> Vec<T> {
        kill_process(Pid::from_child(&self.running.0), Signal::TERM).unwrap();
        let status = self.running.0.wait().unwrap();
        assert!(status.success(), "{status}: {}", fs::read_to_string(&self.said).unwrap());
        self.rows()
    }
}

/// Certificates of a sensor `s1` and a judge `j1`.
pub(crate) fn certificates(dir: &Path) {
    for arguments in [&["init"][..], &["issue", "s1", "--role", "sensor"], &["issue", "j1", "--role", "judge"]] {
        run(Command::new(env!("CARGO_BIN_EXE_watari")).arg("pki").args(arguments).current_dir(dir));
    }
}

/// The response of the server at `address`.
pub(crate) fn get(address: &str, path: &str, host: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A receiver of alerts by webhook.
pub(crate) struct Receiver {
    pub(crate) url: String,
    received: Arc<Mutex<Vec<Value>>>,
}

impl Receiver {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let received = Arc::<Mutex<Vec<Value>>>::default();
        let taken = Arc::clone(&received);
        // Ends with the process of the test.
        thread::spawn(move || {
            for stream in listener.incoming() {
                if let Some(message) = take(stream.unwrap()) {
                    taken.lock().unwrap().push(message);
                }
            }
        });
        Self { url, received }
    }

    /// Status and state of all alerts that it received, in this order.
    pub(crate) fn received(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let received = self.received.lock().unwrap();
        received.iter().map(|it| (text(&it["status"]), text(&it["commonLabels"]["state"]))).collect()
    }
}

/// Reads one HTTP request, and responds.
fn take(mut stream: TcpStream) -> Option<Value> {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut len, mut line) = (0, String::new());
    while reader.read_line(&mut line).ok()? > 2 {
        let lower = line.to_ascii_lowercase();
        len = lower.strip_prefix("content-length:").map_or(len, |value| value.trim().parse().unwrap());
        line.clear();
    }
    let mut body = vec![0; len];
    reader.read_exact(&mut body).ok()?;
    stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").ok()?;
    serde_json::from_slice(&body).ok()
}

/// Connections in tunnels, captured at an interface that does not have their addresses.
#[test]
fn tunnels_are_looked_into() {
    if !is_inside("live::tunnels_are_looked_into", &[]) {
        return;
    }
    let dir = tempdir().unwrap();
    let watching = Watching::start(dir.path(), "sensor", &["live", "-i", "lo"]);
    watching.wait_until_logged("privileges dropped");
    let gre = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(47))).unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let here = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut ports = 4000..;
    watching.wait_until("all tunnels seen", || {
        // Packets sent before the threads capture may be lost, so further ones follow.
        let port = ports.next().unwrap();
        for (server, around) in [("198.51.100.7:80", "GRE"), ("203.0.113.7:80", "VXLAN"), ("203.0.113.8:80", "Geneve")]
        {
            let server: SocketAddr = server.parse().unwrap();
            for frame in knock(SocketAddr::from(([192, 0, 2, 1], port)), server) {
                // No flags, then an Ethernet frame. VXLAN carries nothing else; Geneve needs its protocol type.
                let (header, port): (&[u8], _) = match around {
                    "GRE" => (&[0, 0, 0x65, 0x58], 0),
                    "VXLAN" => (&[8, 0, 0, 0, 0, 0, 7, 0], 4789),
                    _ => (&[0, 0, 0x65, 0x58, 0, 0, 7, 0], 6081),
                };
                let packet = [header, &frame.data].concat();
                let sent = match port {
                    0 => gre.send_to(&packet, &here(port).into()),
                    _ => udp.send_to(&packet, here(port)),
                };
                assert_eq!(sent.unwrap(), packet.len());
            }
        }
        let rows: Vec<Row> = watching.rows();
        let seen = |server: &str| rows.iter().any(|row| row.server.to_string() == server && row.ending == "REFUSED");
        ["198.51.100.7:80", "203.0.113.7:80", "203.0.113.8:80"].into_iter().all(seen)
    });
    watching.end::<Row>();
}

/// Prints rows into a pipe. Returns when it captures.
fn piped(errors: Stdio) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_watari"));
    command.args(["watch", "live", "-i", "lo", "--json", "--user", "root", "--metrics", METRICS]);
    let watching = Running(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).spawn().unwrap());
    wait_for(METRICS.parse().unwrap());
    watching
}

/// The reader of the output may stop reading.
#[test]
fn the_output_needs_no_reader() {
    if !is_inside("live::the_output_needs_no_reader", &[]) {
        return;
    }
    let mut watching = piped(Stdio::null());
    let deadline = Instant::now() + WAIT_MAX;
    let refused = || {
        let seen = get(METRICS, "/metrics", "localhost");
        let of = "watari_watch_connections_ended_total{sensor=\"here\",server=\"127.0.0.1:9\",ending=\"REFUSED\"} ";
        seen.lines().find_map(|line| line.strip_prefix(of)).map_or(0, |count| count.parse().unwrap())
    };
    // Far more rows than a pipe and the printer's queue hold.
    while refused() < 2_000 {
        assert!(Instant::now() < deadline, "{} are known", refused());
        for _ in 0..100 {
            assert!(TcpStream::connect("127.0.0.1:9").is_err());
        }
    }
    kill_process(Pid::from_child(&watching.0), Signal::TERM).unwrap();
    let mut output = watching.0.stdout.take().unwrap();
    // It stops waiting for a reader, and exits. That closes the pipe, which the test has not read before.
    assert_eq!(watching.0.wait().unwrap().code(), Some(1));
    let mut rows = String::new();
    output.read_to_string(&mut rows).unwrap();
    assert!(rows.lines().count() > 50 && rows.lines().count() < 2_000, "{}", rows.lines().count());
}

/// The command ends without an error when the reader of its output closes it.
#[test]
fn a_reader_may_go_away() {
    if !is_inside("live::a_reader_may_go_away", &[]) {
        return;
    }
    let mut watching = piped(Stdio::piped());
    drop(watching.0.stdout.take());
    let deadline = Instant::now() + WAIT_MAX;
    let code = loop {
        assert!(Instant::now() < deadline, "it goes on");
        assert!(TcpStream::connect("127.0.0.1:9").is_err());
        if let Some(status) = watching.0.try_wait().unwrap() {
            break status.code();
        }
        thread::sleep(POLL);
    };
    let mut logged = String::new();
    watching.0.stderr.take().unwrap().read_to_string(&mut logged).unwrap();
    assert!(code == Some(0) && !logged.contains("panicked"), "{code:?} {logged}");
}

/// Connections that are still open at the end are part of the results.
#[test]
fn open_connections_are_rows_at_the_end() {
    if !is_inside("live::open_connections_are_rows_at_the_end", &[]) {
        return;
    }
    let dir = tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:8080").unwrap();
    let server = listener.local_addr().unwrap();
    let watching = Watching::start(dir.path(), "sensor", &["live", "-i", "lo", "--port", "8080", "--metrics", METRICS]);
    wait_for(METRICS.parse().unwrap());
    let mut clients = Vec::new();
    watching.wait_until("connections seen", || {
        clients.push(TcpStream::connect(server).unwrap());
        let opened = "watari_watch_connections_opened_total{sensor=\"here\",server=\"127.0.0.1:8080\"} ";
        get(METRICS, "/metrics", "localhost").contains(opened)
    });
    // The first connection may precede the capture.
    let rows: Vec<Row> = watching.end();
    let clients: Vec<_> = clients.iter().map(|client| client.local_addr().unwrap()).collect();
    assert!(!rows.is_empty(), "{clients:?}");
    for row in rows {
        assert!(clients.contains(&row.client) && row.ending == "OPEN" && row.phase == "before_request", "{row:?}");
    }
}

/// An interface that disappears does not end the capture of the others.
#[test]
fn an_interface_may_go_away() {
    if !is_inside("live::an_interface_may_go_away", &["ip"]) {
        return;
    }
    let dir = tempdir().unwrap();
    let ip = |arguments: &str| run(Command::new("ip").args(arguments.split(' ')));
    ip("link add v0 type veth peer name v1");
    ip("link set v0 up");
    ip("link set v1 up");
    let watching = Watching::start(dir.path(), "sensor", &["live", "-i", "v0", "-i", "lo"]);
    watching.wait_until_logged("privileges dropped");
    ip("link delete v0");
    watching.wait_until_logged("the capture on an interface has failed");
    watching.wait_until("lo has reported", || {
        assert!(TcpStream::connect("127.0.0.1:9").is_err());
        !watching.rows::<Row>().is_empty()
    });
    watching.end::<Row>();
}
