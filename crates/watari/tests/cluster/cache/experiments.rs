//! The experiments with a cache server of the paper on ANMA and ENMA (chapter 5), in small: dynamic content beside a
//! file, and a queue before the origin. For the third one, about long heads, see `attacks`.

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

    /// The connections of a server so far.
    fn connections(&self, server: SocketAddr) -> Vec<Value> {
        let mut command = Command::new(WATARI);
        command.args(["watch", "pcap", "--json", "--server", &server.to_string()]).arg(&self.file);
        let printed = command.output().unwrap().stdout;
        String::from_utf8(printed).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.dumpcap.kill();
        let _ = self.dumpcap.wait();
    }
}

/// The origin sees the half of the requests that is dynamic, and one for the file.
#[test]
fn dynamic_content_reaches_the_origin_and_a_file_does_not() {
    if Command::new("dumpcap").arg("--version").output().is_err() {
        println!("SKIPPED: cache::experiments: there is no dumpcap, which `scripts/deps test` installs");
        return;
    }
    if !is_inside("cache::experiments::dynamic_content_reaches_the_origin_and_a_file_does_not") {
        return;
    }
    assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
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
    let delivered = |connection: &&Value| connection["delivered"] == true;
    until("all clients are in the capture", || {
        capture.connections(scene.cluster.service).iter().filter(delivered).count() == 2 * PAIRS
    });
    let requests = |connection: &Value| connection["requests"].as_u64().unwrap();
    until("all requests to the origin are in the capture", || {
        capture.connections(scene.origin.address).iter().map(requests).sum::<u64>() == PAIRS as u64 + 1
    });
    let endings = capture.connections(scene.origin.address);
    let is_bad = |connection: &&Value| ["S_RESET", "REFUSED", "TIMEOUT"].iter().any(|bad| connection["ending"] == *bad);
    assert_eq!(endings.iter().find(is_bad), None);
}

/// A crowd requests dynamic content. The origin never has more requests than the queue allows, and the file is served
/// meanwhile.
#[test]
fn the_queue_bounds_the_origin_and_hits_do_not_wait() {
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
        for _ in 0..20 {
            assert!(scene.get("/file", "").is_hit());
        }
        assert_eq!(now.load(SeqCst), IN_PROGRESS_MAX);
        gate.open(1);
    });
    assert_eq!(most.load(SeqCst), IN_PROGRESS_MAX);
    assert_eq!(scene.origin.total(), PAIRS + 1);
}
