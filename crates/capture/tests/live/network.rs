//! Networks that a test has for itself: its process is in a network namespace, and [`Peer`]s in others.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{geteuid, gettid};

/// Says to a test that it is in a network of its own.
const INSIDE: &str = "WATARI_CAPTURE_TEST";

/// Runs the test of this name again, in a network of its own, where `test` is run.
pub(crate) fn alone(name: &str, test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        ip("link set lo up");
        return test();
    }
    let mut command = Command::new("unshare");
    // Root needs no user namespace for this, and not every system lets one be made.
    command.args(if geteuid().is_root() { &["--net"][..] } else { &["--map-root-user", "--net"] });
    command.arg(std::env::current_exe().unwrap()).args(["--exact", name, "--nocapture"]).env(INSIDE, name);
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    for line in said.lines().filter(|line| line.starts_with("SKIPPED")) {
        // Past the harness, which would keep it to itself.
        std::io::stderr().write_all(format!("{name}: {line}\n").as_bytes()).unwrap();
    }
}

/// What is not tested, because the kernel cannot.
pub(crate) fn skip(why: &str) {
    eprintln!("SKIPPED: {why}");
}

/// Runs `ip` in this thread's network.
pub(crate) fn ip(arguments: &str) {
    assert!(try_ip(arguments), "ip {arguments}");
}

/// The same, of what kernels may not have.
pub(crate) fn try_ip(arguments: &str) -> bool {
    let mut command = Command::new("ip");
    command.args(arguments.split(' ')).stderr(Stdio::null()).status().unwrap().success()
}

/// A thread in a network of its own, behind a cable: `a0` at the test's end, `b0` at its.
pub(crate) struct Peer {
    tasks: Sender<Task>,
}

type Task = Box<dyn FnOnce() + Send>;

impl Peer {
    /// The test has 10.9.0.1 and `fd09::1`, the peer 2 instead of 1.
    pub(crate) fn connect() -> Self {
        let (tasks, receiver) = mpsc::channel::<Task>();
        let (told, tid) = mpsc::channel();
        thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            told.send(gettid()).unwrap();
            for task in receiver {
                task();
            }
        });
        ip(&format!("link add a0 type veth peer name b0 netns {}", tid.recv().unwrap()));
        let peer = Self { tasks };
        address("a0", "10.9.0.1/24", "fd09::1/64");
        peer.run(|| address("b0", "10.9.0.2/24", "fd09::2/64"));
        peer
    }

    /// Does it there.
    pub(crate) fn run<T: Send + 'static>(&self, task: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = mpsc::channel();
        self.tasks.send(Box::new(move || done.send(task()).unwrap())).unwrap();
        result.recv().unwrap()
    }

    /// The same device at both ends, if the kernel has that kind; `{near}` and `{far}` in the arguments are of the end before them.
    pub(crate) fn add(&self, name: &str, kind: &str, network: u8) -> bool {
        let here = kind.replace("{cable}", "a0").replace("{near}", "10.9.0.1").replace("{far}", "10.9.0.2");
        let there = kind.replace("{cable}", "b0").replace("{near}", "10.9.0.2").replace("{far}", "10.9.0.1");
        let add = |name: &str, kind: &str| {
            let (before, kind) = kind.split_once("type").unwrap();
            try_ip(&format!("link add {before}name {name} type{kind}"))
        };
        if !add(name, &here) {
            return false;
        }
        address(name, &format!("10.9.{network}.1/24"), &format!("fd09:{network}::1/64"));
        let name = name.to_owned();
        self.run(move || {
            assert!(add(&name, &there));
            address(&name, &format!("10.9.{network}.2/24"), &format!("fd09:{network}::2/64"));
        });
        true
    }

    /// A server at the peer, which answers what it is told; until the test ends.
    pub(crate) fn serve(&self, ip: &str) -> SocketAddr {
        let ip = ip.to_owned();
        self.run(move || serve(&ip))
    }
}

fn address(device: &str, v4: &str, v6: &str) {
    ip(&format!("addr add {v4} dev {device}"));
    ip(&format!("link set {device} up"));
    // What cannot have an address of this version (IP in IP) does without.
    try_ip(&format!("addr add {v6} dev {device} nodad"));
}

/// A server in this thread's network.
pub(crate) fn serve(ip: &str) -> SocketAddr {
    let listener = TcpListener::bind((ip, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut told = Vec::new();
            stream.read_to_end(&mut told).unwrap();
            stream.write_all(&told).unwrap();
        }
    });
    address
}

/// A client's connection from its SYN to its last FIN; returns the client's address.
pub(crate) fn visit(server: SocketAddr) -> SocketAddr {
    let mut stream = TcpStream::connect(server).unwrap();
    let client = stream.local_addr().unwrap();
    stream.write_all(b"hello").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut told = Vec::new();
    stream.read_to_end(&mut told).unwrap();
    assert_eq!(told, b"hello");
    client
}
