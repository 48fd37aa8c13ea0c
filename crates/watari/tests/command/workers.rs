//! `watari bench http` with `--workers` and `--processes`, and `watari bench worker`

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Running, WAIT_MAX, command, watari};

/// A server that responds to every request, and counts requests and connections.
struct Server {
    url: String,
    requests: Arc<AtomicU64>,
    /// Connections that are open.
    connections: Arc<AtomicU64>,
    clients: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = Self { url, requests: Arc::default(), connections: Arc::default(), clients: Arc::default() };
        let (requests, connections) = (Arc::clone(&server.requests), Arc::clone(&server.connections));
        let clients = Arc::clone(&server.clients);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                clients.lock().unwrap().extend(stream.peer_addr());
                let (requests, connections) = (Arc::clone(&requests), Arc::clone(&connections));
                thread::spawn(move || {
                    connections.fetch_add(1, Ordering::Relaxed);
                    serve(&stream, &requests);
                    connections.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        server
    }

    /// The source addresses of the connections, sorted.
    fn clients(&self) -> Vec<SocketAddr> {
        let mut clients = self.clients.lock().unwrap().clone();
        clients.sort_unstable();
        clients
    }

    fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

/// Serves until the client closes or resets the connection, or requests its end.
fn serve(mut stream: &TcpStream, requests: &AtomicU64) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    loop {
        let fields: Vec<_> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        if fields.is_empty() {
            return;
        }
        requests.fetch_add(1, Ordering::Relaxed);
        let answered = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        if answered.is_err() || fields.iter().any(|field| field == "connection: close") {
            return;
        }
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT_MAX;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Certificates of a controller and of two workers.
fn cluster() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    watari(dir.path(), &["pki", "init"]).done();
    for node in ["lead", "w1", "w2"] {
        watari(dir.path(), &["pki", "issue", node, "--role", "bench"]).done();
    }
    dir
}

/// A worker, and the address at which it listens.
fn worker(dir: &Path, node: &str) -> (Running, SocketAddr) {
    let mut child = command(dir, &["bench", "worker", "--listen", "127.0.0.1:0", "--node", node])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on ").unwrap().parse().unwrap();
    (Running(child), address)
}

/// `watari bench http` with these workers.
fn controller(dir: &Path, server: &Server, workers: &[SocketAddr], arguments: &[&str]) -> Command {
    let workers: Vec<_> = workers.iter().map(ToString::to_string).collect();
    let http = ["bench", "http", &server.url, "--json", "--node", "lead", "--workers", &workers.join(",")];
    command(dir, &[&http, arguments].concat())
}

#[test]
fn workers_make_the_load_of_a_controller() {
    let (dir, server) = (cluster(), Server::start());
    let ((_first, one), (_second, two)) = (worker(dir.path(), "w1"), worker(dir.path(), "w2"));
    let output = controller(dir.path(), &server, &[one, two], &["-n", "1001", "-c", "10"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((summary["requests"].as_u64(), server.requests()), (Some(1001), 1001));
    assert_eq!(summary["endings"]["NORMAL"], 1001);
    let workers = summary["run"]["workers"].as_array().unwrap();
    assert_eq!(workers.iter().map(|worker| worker["requests"].as_u64().unwrap()).collect::<Vec<_>>(), [501, 500]);
    assert_eq!(workers[0]["name"], format!("w1 ({one})"));
}

#[test]
fn a_killed_worker_is_reported_and_the_rest_counts() {
    let (dir, server) = (cluster(), Server::start());
    let ((_first, one), (second, two)) = (worker(dir.path(), "w1"), worker(dir.path(), "w2"));
    let mut running = controller(dir.path(), &server, &[one, two], &["-d", "1h", "-c", "4"]);
    let mut running = Running(running.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    wait_until("not both are at work", || server.connections.load(Ordering::Relaxed) == 4);
    drop(second);
    wait_until("its connections are closed", || server.connections.load(Ordering::Relaxed) == 2);
    let before = server.requests();
    wait_until("the other goes on", || server.requests() > before + 100);
    running.signal(Signal::INT);
    let (out, error) = output_of(&mut running.0);
    assert_eq!(running.wait().code(), Some(1));
    assert_eq!(error, "watari: 1 of the workers were lost: the figures lack their last results\n");
    let summary: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(summary["run"]["workers"][0]["lost"], Value::Null);
    assert_eq!(summary["run"]["workers"][1]["lost"], "the connection was closed");
    assert!(summary["requests"].as_u64().unwrap() >= 100);
}

#[test]
fn a_load_ends_with_its_controller() {
    let (dir, server) = (cluster(), Server::start());
    let (_worker, address) = worker(dir.path(), "w1");
    let there = || server.connections.load(Ordering::Relaxed);
    let running = controller(dir.path(), &server, &[address], &["-d", "1h", "-c", "4"]);
    let running = Running({ running }.stdout(Stdio::null()).spawn().unwrap());
    wait_until("all workers are idle", || there() == 4);
    // Killed, so that it cannot close its connections properly.
    drop(running);
    wait_until("its load goes on", || there() == 0);

    let processes = ["bench", "http", &server.url, "-d", "1h", "-c", "4", "--processes", "2"];
    let running = Running(command(dir.path(), &processes).stdout(Stdio::null()).spawn().unwrap());
    wait_until("all workers are idle", || there() == 4);
    drop(running);
    wait_until("its processes go on", || there() == 0);
}

#[test]
fn processes_share_a_load() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::start());
    let out = ["bench", "http", &server.url, "-n", "3000", "-c", "300", "--processes", "3", "--json"];
    let summary: Value = serde_json::from_str(&watari(dir.path(), &out).done()).unwrap();
    assert_eq!((summary["endings"]["NORMAL"].as_u64(), server.requests()), (Some(3000), 3000));
    assert_eq!(summary["connections"]["opened"], 300);
    let workers = summary["run"]["workers"].as_array().unwrap();
    assert!(workers.iter().all(|worker| worker["requests"] == 1000), "{workers:?}");
}

#[test]
fn connections_of_processes_have_a_line_each() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::start());
    let load = ["bench", "http", &server.url, "-n", "901", "-c", "30", "--requests-per-connection", "1"];
    let more = ["--processes", "3", "--csv", "connections.csv", "--json"];
    let summary: Value = serde_json::from_str(&watari(dir.path(), &[&load[..], &more].concat()).done()).unwrap();
    let csv = fs::read_to_string(dir.path().join("connections.csv")).unwrap();
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let local = names.iter().position(|name| *name == "local").unwrap();
    let mut told: Vec<SocketAddr> = lines.map(|line| line[local].parse().unwrap()).collect();
    told.sort_unstable();
    assert_eq!((summary["connections"]["opened"].as_u64(), server.requests()), (Some(901), 901));
    assert_eq!(told, server.clients());
}

#[test]
fn a_search_ends_with_a_worker_that_is_lost() {
    let (dir, server) = (cluster(), Server::start());
    let ((_first, one), (second, two)) = (worker(dir.path(), "w1"), worker(dir.path(), "w2"));
    let workers = format!("{one},{two}");
    let by = ["--by", "connections", "--from", "4", "--step", "+1", "--warmup", "10ms", "-d", "500ms"];
    let search = ["bench", "capacity", &server.url, "--expect", "failures=0", "--node", "lead", "--workers", &workers];
    let mut running = command(dir.path(), &[&search[..], &by].concat());
    let mut running = Running(running.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut output = BufReader::new(running.0.stdout.take().unwrap());
    let mut first = String::new();
    output.read_line(&mut first).unwrap();
    assert!(first.starts_with("  1. 4 connections: ") && first.ends_with(" % failed: met\n"), "{first}");
    drop(second);
    let (mut rest, mut error) = (String::new(), String::new());
    output.read_to_string(&mut rest).unwrap();
    running.0.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert_eq!(running.wait().code(), Some(1));
    // The controller loses it during a load, or when it begins the next one.
    assert!(error.contains(&two.to_string()) && error.lines().count() == 1, "{error}");
    assert!(!rest.contains("meet the conditions"), "{rest}");
}

#[test]
fn a_search_takes_as_many_processes_as_files_make_necessary() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::start());
    let watari = env!("CARGO_BIN_EXE_watari");
    let search = format!(
        "ulimit -n 200 && exec {watari} bench capacity {} --by connections --from 100 --to 100 --repeats 1 \
         --warmup 300ms -d 300ms --expect failures=0 --json",
        server.url
    );
    let output = Command::new("sh").args(["-c", &search]).current_dir(dir.path()).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error, "2 processes share 100 connections: one process may open only 200 files\n");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &told["search"]["finding"]["level"]), (Some(0), &100.into()), "{told}");
    // Three single requests measure the server without a load.
    assert_eq!(server.clients().len(), 3 + 100);
}

#[test]
fn impossible_arguments_are_refused_at_the_start() {
    let (dir, server) = (cluster(), Server::start());
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ended = watari(dir.path(), &["bench", "http", &server.url, "--node", "lead", "--workers", &unused.to_string()]);
    assert!(ended.refused(1).starts_with(&format!("watari: {unused}: cannot connect: ")));
    let without_role = ["bench", "worker", "--listen", "127.0.0.1:0", "--node", "a1"];
    watari(dir.path(), &["pki", "issue", "a1", "--role", "agent"]).done();
    let refused = watari(dir.path(), &without_role).refused(1);
    assert_eq!(refused, "watari: the certificate of a1 does not allow the role bench");
    let too_few = ["bench", "http", &server.url, "-c", "2", "--processes", "3"];
    let refused = watari(dir.path(), &too_few).refused(2);
    assert_eq!(refused, "watari: 2 connections cannot be shared out among 3 workers or processes");
    assert_eq!(server.requests(), 0);
}

/// All output of a process until it ends.
fn output_of(child: &mut Child) -> (String, String) {
    let (mut out, mut error) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    (out, error)
}
