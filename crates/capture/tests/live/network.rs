//! A network for each test: its process is in a network namespace, and [`Peer`]s are in others.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{geteuid, gettid};

/// Set in a test's process that is in its own network.
const INSIDE: &str = "WATARI_CAPTURE_TEST";

/// Runs the test of this name in another process with its own network. That process runs `test`.
pub(crate) fn alone(name: &str, test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        ip("link set lo up");
        return test();
    }
    let mut command = Command::new("unshare");
    // Root needs no user namespace for this, and not every system allows one.
    command.args(if geteuid().is_root() { &["--net"][..] } else { &["--map-root-user", "--net"] });
    command.arg(std::env::current_exe().unwrap()).args(["--exact", name, "--nocapture"]).env(INSIDE, name);
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    for line in said.lines().filter(|line| line.starts_with("SKIPPED")) {
        // Not by `eprintln!`, because the test harness would capture it.
        std::io::stderr().write_all(format!("{name}: {line}\n").as_bytes()).unwrap();
    }
}

/// Prints which part of the test the kernel does not support.
pub(crate) fn skip(why: &str) {
    eprintln!("SKIPPED: {why}");
}

/// Runs `ip` in this thread's network.
pub(crate) fn ip(arguments: &str) {
    assert!(try_ip(arguments), "ip {arguments}");
}

/// The same for features that a kernel may lack. Returns whether it succeeded.
pub(crate) fn try_ip(arguments: &str) -> bool {
    let mut command = Command::new("ip");
    command.args(arguments.split(' ')).stderr(Stdio::null()).status().unwrap().success()
}

/// A thread in its own network, behind a virtual cable: `a0` at the test's end, `b0` at the thread's.
pub(crate) struct Peer {
    tasks: Sender<Task>,
}

type Task = Box<dyn FnOnce() + Send>;

impl Peer {
    /// The test has 10.9.0.1 and `fd09::1`. The peer has 2 instead of 1.
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

    /// Runs `task` in the peer's network.
    pub(crate) fn run<T: Send + 'static>(&self, task: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = mpsc::channel();
        self.tasks.send(Box::new(move || done.send(task()).unwrap())).unwrap();
        result.recv().unwrap()
    }

    /// Adds the same device at both ends, and returns whether the kernel supports it. `{near}` and `{far}` in `kind`
    /// stand for the addresses of the ends.
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

    /// Starts an echo server at the peer, which runs until the test ends.
    pub(crate) fn serve(&self, ip: &str) -> SocketAddr {
        let ip = ip.to_owned();
        self.run(move || serve(&ip))
    }
}

fn address(device: &str, v4: &str, v6: &str) {
    ip(&format!("addr add {v4} dev {device}"));
    ip(&format!("link set {device} up"));
    // A device that cannot have an address of this version (IP in IP) has none.
    try_ip(&format!("addr add {v6} dev {device} nodad"));
}

/// Starts an echo server in this thread's network.
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

/// A client's connection from its SYN to its last FIN. Returns the client's address.
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
