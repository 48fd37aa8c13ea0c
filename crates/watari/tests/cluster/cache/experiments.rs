//! The experiments with a cache server of the paper on ANMA and ENMA (chapter 5), in small, with both sides of the cache
//! watched by `watari watch`: dynamic content beside a file, a queue before the origin, and long heads.
//!
//! As in the paper, each connection of a client ends normally, the origin gets the half of the requests that is dynamic,
//! and the queue bounds the requests there. Unlike the product of the paper, the cache handles long heads as short ones.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use serde_json::Value;
use watari_test_origins::namespace::is_inside;

use super::script::{Gate, Reply};
use super::{FRESH, Scene, ask};
use crate::harness::node::WATARI;
use crate::harness::wait::until;

/// Requests for dynamic content, and as many for the file.
const PAIRS: usize = 50;
/// Requests for the file while the queue is full.
const HITS: usize = 20;
/// Requests in progress at the origin.
const IN_PROGRESS_MAX: usize = 10;

/// A capture of the loopback interface, which `watari watch` reads on both sides of the agent.
struct Capture {
    dumpcap: Child,
    file: PathBuf,
}

impl Capture {
    fn start(dir: &Path) -> Self {
        let file = dir.join("capture.pcapng");
        let mut command = Command::new("dumpcap");
        command.args(["-q", "-i", "lo", "-B", "64", "-f", "tcp", "-w"]).arg(&file);
        let dumpcap = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("the capture has begun", || file.metadata().is_ok_and(|file| file.len() > 0));
        Self { dumpcap, file }
    }

    /// The connections of a server so far, or with `--requests` its requests.
    fn rows(&self, server: SocketAddr, what: &[&str]) -> Vec<Value> {
        let mut command = Command::new(WATARI);
        command.args(["watch", "pcap", "--json", "--server", &server.to_string()]).args(what).arg(&self.file);
        let printed = command.output().unwrap().stdout;
        String::from_utf8(printed).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until the capture has so many requests to the origin, and returns them.
    fn requests(&self, scene: &Scene, count: usize) -> Vec<Value> {
        let mut requests = Vec::new();
        until("all requests to the origin are in the capture", || {
            requests = self.rows(scene.origin.address, &["--requests"]);
            requests.len() == count && requests.iter().all(|request| request["complete"] == true)
        });
        requests
    }

    /// Waits until the capture has so many connections of clients. Checks that the clients have closed all of them, with
    /// all responses, and that no connection to the origin ended badly.
    fn check_endings(&self, scene: &Scene, clients: usize) {
        let mut endings = Vec::new();
        until("all clients are in the capture", || {
            endings = self.rows(scene.cluster.service, &[]);
            endings.len() == clients && endings.iter().all(|connection| connection["ending"] != "OPEN")
        });
        let is_good = |connection: &&Value| connection["delivered"] == true && connection["ending"] == "C_NORMAL";
        let bad: Vec<_> = endings.iter().filter(|connection| !is_good(connection)).collect();
        assert!(bad.is_empty(), "{bad:#?}");
        let is_bad =
            |connection: &Value| ["S_RESET", "REFUSED", "TIMEOUT"].iter().any(|bad| connection["ending"] == *bad);
        let at_origin = self.rows(scene.origin.address, &[]);
        assert!(!at_origin.iter().any(is_bad), "{at_origin:#?}");
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.dumpcap.kill();
        let _ = self.dumpcap.wait();
    }
}

/// Whether this is the process that runs the test, in a network of its own whose packets can be captured.
fn is_ready(test: &str) -> bool {
    if Command::new("dumpcap").arg("--version").output().is_err() {
        println!("SKIPPED: cache::experiments: there is no dumpcap, which `scripts/deps test` installs");
        return false;
    }
    if !is_inside(test) {
        return false;
    }
    assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
    true
}

/// The most requests that were in progress at a time.
fn most_in_progress(requests: &[Value]) -> usize {
    let time = |request: &Value, name| request[name].as_f64().unwrap();
    let spans = requests.iter().map(|request| (time(request, "asked"), time(request, "first_octet_s")));
    let spans: Vec<_> = spans.map(|(asked, answered_s)| (asked, asked + answered_s)).collect();
    let in_progress = |at: f64| spans.iter().filter(|(asked, answered)| (*asked..*answered).contains(&at)).count();
    spans.iter().map(|(asked, _)| in_progress(*asked)).max().unwrap()
}

/// The origin sees the half of the requests that is dynamic, and one for the file.
#[test]
fn dynamic_content_reaches_the_origin_and_a_file_does_not() {
    if !is_ready("cache::experiments::dynamic_content_reaches_the_origin_and_a_file_does_not") {
        return;
    }
    let scene = Scene::set(|asked| match asked.path() {
        "/cgi" => Reply::ok("", asked.earlier.to_string()),
        _ => Reply::ok(FRESH, "f".repeat(100_000)),
    });
    let capture = Capture::start(scene.cluster.dir());
    for number in 0..PAIRS {
        assert_eq!(scene.get("/cgi", "").text(), number.to_string());
        assert_eq!(scene.get("/file", "").content.len(), 100_000);
    }
    assert_eq!([scene.origin.count("/cgi"), scene.origin.count("/file")], [PAIRS, 1]);
    capture.check_endings(&scene, 2 * PAIRS);
    capture.requests(&scene, PAIRS + 1);
}

/// A crowd requests dynamic content. The origin never has more requests than the queue allows, and the file is served
/// meanwhile.
#[test]
fn the_queue_bounds_the_origin_and_hits_do_not_wait() {
    if !is_ready("cache::experiments::the_queue_bounds_the_origin_and_hits_do_not_wait") {
        return;
    }
    let (now, most, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Gate::default());
    let (running, greatest, closed) = (now.clone(), most.clone(), gate.clone());
    let scene = Scene::set(move |asked| {
        if asked.path() == "/file" {
            return Reply::ok(FRESH, "file");
        }
        greatest.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
        closed.wait_until_open();
        running.fetch_sub(1, SeqCst);
        Reply::ok("", "cgi")
    });
    scene.agent().reconfigure(|text| {
        let queue = format!("[[agent.proxy.pool.queue]]\nin_progress_max = {IN_PROGRESS_MAX}\n");
        text.replace("[[agent.proxy.route]]", &format!("{queue}[[agent.proxy.route]]"))
    });
    let capture = Capture::start(scene.cluster.dir());
    scene.get("/file", "");
    thread::scope(|scope| {
        for number in 0..PAIRS {
            let scene = &scene;
            scope.spawn(move || {
                let got = ask(&mut scene.connect(), "GET", &format!("/cgi?{number}"), "");
                assert_eq!((got.head.status, got.text()), (200, "cgi".to_owned()));
            });
        }
        let requests = || scene.agent().count("watari_agent_requests_total", "");
        until("all have come", || usize::try_from(requests()).unwrap() > PAIRS && now.load(SeqCst) == IN_PROGRESS_MAX);
        for _ in 0..HITS {
            assert!(scene.get("/file", "").is_hit());
        }
        assert_eq!(now.load(SeqCst), IN_PROGRESS_MAX);
        gate.open(1);
    });
    assert_eq!(most.load(SeqCst), IN_PROGRESS_MAX);
    assert_eq!(scene.origin.total(), PAIRS + 1);
    // The file, and the hits of it.
    capture.check_endings(&scene, PAIRS + 1 + HITS);
    assert_eq!(most_in_progress(&capture.requests(&scene, PAIRS + 1)), IN_PROGRESS_MAX);
}

/// A file with a short head, and with 4 KB more. The product of the paper cached only one of them.
#[test]
fn a_file_is_cached_with_heads_of_any_length() {
    if !is_ready("cache::experiments::a_file_is_cached_with_heads_of_any_length") {
        return;
    }
    let scene = Scene::set(|asked| {
        let pad = if asked.path() == "/long" { 4 << 10 } else { 1 };
        Reply::ok(&format!("{FRESH}x-pad: {}\r\n", "p".repeat(pad)), "f".repeat(2000))
    });
    let capture = Capture::start(scene.cluster.dir());
    for _ in 0..PAIRS {
        for target in ["/short", "/long"] {
            assert_eq!(scene.get(target, "").content.len(), 2000);
        }
    }
    capture.check_endings(&scene, 2 * PAIRS);
    capture.requests(&scene, 2);
}
