//! Nodes without a Watari dispatcher: behind other load balancers, and on their own. Each node resumes the sessions
//! that any of them has established. The configurations are those of `examples/`, used as their READMEs describe.

use std::env;
use std::fs;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::example::{block, set_up, shell, wait_until_linked};
use crate::support::{Running, WAIT_MAX, next_notification, own_loopback, watari};

const NODES: [&str; 2] = ["n1", "n2"];

/// Options of OpenSSL clients for each kind of session: TLS 1.3, TLS 1.2 with tickets, and TLS 1.2 with session ids.
const KINDS: [&str; 3] = ["-tls1_3", "-tls1_2", "-tls1_2 -no_ticket"];

/// The polling interval.
const PAUSE: Duration = Duration::from_millis(20);

#[test]
fn nodes_behind_haproxy_resume_what_any_has_established() {
    let site = Site::start("behind-haproxy", &["haproxy", "-f", "haproxy.cfg"]);
    site.resumes_at_every_node();
    site.knows_its_clients();
}

/// Runs nginx without a master process, so that the test has one process to end.
#[test]
fn nodes_behind_nginx_resume_what_any_has_established() {
    let one_process = "daemon off; master_process off;";
    let site =
        Site::start("behind-nginx", &["nginx", "-p", ".", "-c", "nginx.conf", "-e", "stderr", "-g", one_process]);
    site.resumes_at_every_node();
    site.knows_its_clients();
}

#[test]
fn nodes_on_their_own_resume_what_any_has_established() {
    let site = Site::start("on-their-own", &[]);
    site.resumes_at_every_node();
    site.knows_its_clients();
}

/// A running example.
struct Site {
    dir: tempfile::TempDir,
    readme: String,
    service: SocketAddr,
    _running: Vec<Running>,
}

impl Site {
    /// Starts the nodes, and `balancer` in front of them if it is not empty.
    fn start(example: &str, balancer: &[&str]) -> Self {
        let ip = own_loopback();
        let (dir, readme) = set_up(example, &ip);
        let readme = move_second_address(dir.path(), &readme);
        let nodes = NODES.map(|node| Running::start_node(dir.path(), &format!("{node}.toml")));
        for ((_, manager), node) in nodes.iter().zip(NODES) {
            assert_eq!(next_notification(manager), "READY=1");
            wait_until_linked(dir.path(), node);
        }
        let mut running: Vec<_> = nodes.into_iter().map(|(node, _)| node).collect();
        let service = format!("{ip}:8443").parse().unwrap();
        if let Some((program, arguments)) = balancer.split_first() {
            running.push(start(dir.path(), program, arguments, service));
        }
        Self { dir, readme, service, _running: running }
    }

    /// Follows the README for each kind of session. Each node gets some of the connections: which, depends on the
    /// balancer's checks of its servers, and so on the machine.
    fn resumes_at_every_node(&self) {
        let try_it = block(&self.readme, "sh try");
        let mut before = [0; 2];
        for kind in KINDS {
            let said = shell(self.dir.path(), &try_it.replace("-connect", &format!("{kind} -connect")));
            let first_words: Vec<_> = said.lines().map(|line| line.split(',').next().unwrap()).collect();
            assert_eq!(first_words, ["New", "Reused", "Reused", "Reused"], "{kind}");
            let done = NODES.map(|node| self.handshakes(node));
            assert_eq!(done.iter().sum::<u64>(), before.iter().sum::<u64>() + 4, "{kind}");
            assert!(done.iter().zip(before).all(|(done, before)| *done > before), "{kind}: {before:?} {done:?}");
            before = done;
        }
    }

    /// The number of handshakes that a node has done.
    fn handshakes(&self, node: &str) -> u64 {
        let sessions = self.ask(node, "sessions");
        let versions = sessions["handshakes"].as_array().unwrap();
        let resumed = |version: &Value| version["resumed"].as_object().unwrap().values().map(number).sum::<u64>();
        versions.iter().map(|version| number(&version["full"]) + resumed(version)).sum()
    }

    /// Each node sees the client's own address, not that of the balancer.
    fn knows_its_clients(&self) {
        let source: IpAddr = own_loopback().parse().unwrap();
        let mut client = Command::new("openssl");
        client.args([
            "s_client",
            "-connect",
            &self.service.to_string(),
            "-bind",
            &SocketAddr::new(source, 0).to_string(),
        ]);
        client.args(["-servername", "example.test", "-CAfile", "site.pem"]).current_dir(self.dir.path());
        let _client =
            Running(client.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        until("a node knows the client", || {
            let known = NODES.map(|node| self.ask(node, "connections"));
            let clients = known.iter().flat_map(|known| known.as_array().unwrap());
            clients
                .map(|connection| connection["client"].as_str().unwrap().parse::<SocketAddr>().unwrap().ip())
                .any(|ip| ip == source)
        });
    }

    fn ask(&self, node: &str, topic: &str) -> Value {
        let answer = watari(self.dir.path(), &["ctl", "--admin", &format!("{node}.sock"), "--json", topic]).done();
        serde_json::from_str(&answer).unwrap()
    }
}

/// Replaces 127.0.0.2, the second node's address in an example that needs two, by an address of the test's own.
fn move_second_address(dir: &Path, readme: &str) -> String {
    let (address, config) = (own_loopback(), dir.join("n2.toml"));
    let text = fs::read_to_string(&config).unwrap();
    fs::write(config, text.replace("127.0.0.2", &address)).unwrap();
    readme.replace("127.0.0.2", &address)
}

/// Starts an external program in `dir`, and waits until it accepts connections.
fn start(dir: &Path, program: &str, arguments: &[&str], service: SocketAddr) -> Running {
    let path = format!("{}:/usr/sbin", env::var("PATH").unwrap());
    let log = fs::File::create(dir.join("balancer.log")).unwrap();
    let mut command = Command::new(program);
    command.args(arguments).current_dir(dir).env("PATH", path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let running =
        Running(command.spawn().unwrap_or_else(|error| panic!("{program}, which scripts/deps installs: {error}")));
    until(&format!("{program} takes connections"), || TcpStream::connect(service).is_ok());
    running
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < WAIT_MAX, "waited in vain until {what}");
        thread::sleep(PAUSE);
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}
