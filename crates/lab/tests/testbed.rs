//! Hosts, networks, CPU quotas and processes, as root.
//!
//! The programs on the hosts are `sh`, and this test binary: see [`role`].

#[path = "testbed/sandbox.rs"]
mod sandbox;

use std::env;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Deserialize;
use watari_lab::control_group::Groups;
use watari_lab::experiment::{Host, Network, Router};
use watari_lab::hosts::{self, Process, ProcessError, Sampler, Testbed, prepare_sandbox};
use watari_test_origins::namespace::is_inside_as_root;

type Failure = Box<dyn std::error::Error>;

/// The octets of a transfer.
const TRANSFER_LEN: usize = 64 << 20;
/// Arguments of a role.
const ROLE: &str = "WATARI_LAB_ROLE";
/// Far longer than any step takes.
const WAIT_MAX: Duration = Duration::from_secs(40);
const POLL: Duration = Duration::from_millis(5);
const GREETING: &[u8] = b"hello";

/// A router without delay.
const FORWARDS: &[&str] = &[
    "sh",
    "-ec",
    "cd /proc/sys/net; echo 1 >ipv4/ip_forward; echo 1 >ipv6/conf/all/forwarding; echo ready; exec sleep infinity",
];

/// Two hosts in one network.
const PAIR: &str = r#"
    [[network]]
    name = "net"
    ipv4 = "192.0.2.0/24"
    ipv6 = "2001:db8::/64"
    in-order = true
    [[host]]
    name = "a"
    number = 1
    networks = ["net"]
    [[host]]
    name = "b"
    number = 2
    networks = ["net"]
"#;

/// A host in each of two networks, and a router.
const ROUTED: &str = r#"
    [[network]]
    name = "near"
    ipv4 = "198.51.100.0/24"
    ipv6 = "2001:db8:1::/64"
    [[network]]
    name = "far"
    ipv4 = "192.0.2.0/24"
    ipv6 = "2001:db8:2::/64"
    [[router]]
    name = "wan"
    between = ["near", "far"]
    [[host]]
    name = "a"
    number = 1
    networks = ["near"]
    [[host]]
    name = "b"
    number = 2
    networks = ["far"]
"#;

/// A host with a fifth of a core.
const SLOW: &str = r#"
    [[host]]
    name = "a"
    number = 1
    networks = []
    cpu = 0.2
"#;

#[test]
fn hosts_of_a_network_reach_each_other() -> Result<(), Failure> {
    if !is_inside_as_root("hosts_of_a_network_reach_each_other") {
        return Ok(());
    }
    let lab = Lab::new(PAIR)?;
    let b = lab.testbed.host("b")?;
    assert_eq!(b.addresses("net").first(), Some(&"192.0.2.2".parse()?));
    assert!(b.addresses("absent").is_empty());
    let mut server = lab.answer("b")?;
    for address in ["192.0.2.2:7", "[2001:db8::2]:7", "b:7", "b.net:7"] {
        lab.expect_answer(&mut server, "a", address)?;
    }
    assert!(lab.testbed.host("c").is_err());
    Ok(())
}

/// A connection sends from the processor of its process, and from that of the acknowledgements. Without segmentation
/// offload there are enough packets that some would overtake others.
#[test]
fn packets_of_a_host_keep_their_order() -> Result<(), Failure> {
    if !is_inside_as_root("packets_of_a_host_keep_their_order") {
        return Ok(());
    }
    let lab = Lab::new(PAIR)?;
    if let Some(because) = lab.testbed.deviation() {
        assert!(because.contains("Operation not permitted"), "{because}");
        println!("packets_of_a_host_keep_their_order: SKIPPED: only root of the machine may do it. {because}");
        return Ok(());
    }
    for (host, setting) in [
        ("a", "ip link set eth0 gso_max_segs 1"),
        // Less than the queue of a processor holds, so that no packet is lost.
        ("b", "echo 4096 65536 65536 >/proc/sys/net/ipv4/tcp_rmem"),
    ] {
        let set = lab.testbed.host(host)?.command("sh").args(["-e", "-c", setting]).status()?;
        assert!(set.success(), "{setting}: {set}");
    }
    let command = lab.role("a", "send [::]:9")?;
    let _sender = Process::spawn(command, &lab.file("out"), &lab.file("err"))?;
    let receive = lab.role("b", "receive 192.0.2.1:9")?.output()?;
    assert!(receive.status.success(), "{}", String::from_utf8_lossy(&receive.stdout));
    Ok(())
}

#[test]
fn a_router_forwards_between_its_networks() -> Result<(), Failure> {
    if !is_inside_as_root("a_router_forwards_between_its_networks") {
        return Ok(());
    }
    let lab = Lab::new(ROUTED)?;
    let mut server = lab.answer("b")?;
    for address in ["192.0.2.2:7", "[2001:db8:2::2]:7"] {
        lab.expect_answer(&mut server, "a", address)?;
    }
    Ok(())
}

#[test]
fn a_router_that_ends_at_once_is_an_error() -> Result<(), Failure> {
    if !is_inside_as_root("a_router_that_ends_at_once_is_an_error") {
        return Ok(());
    }
    let error = Lab::with_router(ROUTED, &["false"]).err().ok_or("the router has ended")?;
    assert!(error.to_string().contains("wan ended before it was ready"), "{error}");
    Ok(())
}

#[test]
fn a_testbed_leaves_room_for_the_next() -> Result<(), Failure> {
    if !is_inside_as_root("a_testbed_leaves_room_for_the_next") {
        return Ok(());
    }
    let mut lab = Lab::new(ROUTED)?;
    let [daemon, started] = ["daemon", "started"].map(|name| lab.file(name));
    // The program ends, and its child goes on in another session.
    let script =
        format!("setsid sh -c 'echo $$ >{}; mv {0} {}; exec sleep infinity' &", daemon.display(), started.display());
    let mut program = lab.start("a", Command::new("sh").args(["-c", &script]))?;
    until("the daemon runs", || started.exists())?;
    until("the program has ended", || program.has_ended().is_some())?;
    let daemon: u32 = fs::read_to_string(&started)?.trim().parse()?;
    assert!(is_running(daemon)?);
    drop(lab.testbed);
    assert!(!is_running(daemon)?, "a daemon is left");
    lab.testbed = testbed(ROUTED, FORWARDS, &lab.groups.0)?;
    let mut server = lab.answer("b")?;
    lab.expect_answer(&mut server, "a", "192.0.2.2:7")
}

#[test]
fn a_quota_limits_the_cpu_time_of_all_processes_of_a_host() -> Result<(), Failure> {
    if !is_inside_as_root("a_quota_limits_the_cpu_time_of_all_processes_of_a_host") {
        return Ok(());
    }
    let (quota, enough) = (0.2, Duration::from_millis(300));
    let lab = Lab::new(SLOW)?;
    let host = lab.testbed.host("a")?;
    let started = Instant::now();
    let sampler = Sampler::start(&lab.testbed);
    // Two, so that they could use two cores.
    let _busy = [(); 2].map(|()| lab.start("a", Command::new("sh").args(["-c", "while :; do :; done"])));
    until("the host has used CPU time", || host.used().is_ok_and(|used| used > enough))?;
    let cores = host.used()?.as_secs_f64() / started.elapsed().as_secs_f64();
    println!("{cores} cores of {quota}");
    // A processor may finish the slice of 5 ms that it has begun.
    assert!(cores < quota * 1.5, "{cores} cores are more than {quota}");
    let seen = sampler.finish();
    assert!(seen.hosts.len() == 1 && seen.speed.is_some_and(|speed| speed > 0.0), "{seen:?}");
    let points = &seen.hosts["a"];
    assert!(!points.is_empty(), "it took longer than a second");
    for (seconds, cores) in points {
        assert!(*seconds >= 1.0 && *cores < quota * 1.5, "{points:?}");
    }
    assert!(points.iter().any(|(_, cores)| *cores > 0.0), "{points:?}");
    Ok(())
}

#[test]
fn a_process_is_its_program_and_ends_with_a_signal() -> Result<(), Failure> {
    if !is_inside_as_root("a_process_is_its_program_and_ends_with_a_signal") {
        return Ok(());
    }
    let lab = Lab::new(PAIR)?;
    let script = "trap 'echo bye; exit 3' TERM; echo $$; while :; do sleep 0.01; done";
    let mut program = lab.start("a", Command::new("sh").args(["-c", script]))?;
    let output = lab.file("out");
    until("it prints its id", || fs::read_to_string(&output).is_ok_and(|text| text.ends_with('\n')))?;
    assert_eq!(fs::read_to_string(&output)?, format!("{}\n", program.id()));
    assert!(program.has_ended().is_none());
    program.stop();
    assert_eq!(program.has_ended().and_then(|status| status.code()), Some(3));
    assert!(fs::read_to_string(&output)?.ends_with("bye\n"));
    Ok(())
}

#[test]
fn a_process_that_ignores_a_signal_is_killed() -> Result<(), Failure> {
    if !is_inside_as_root("a_process_that_ignores_a_signal_is_killed") {
        return Ok(());
    }
    let lab = Lab::new(PAIR)?;
    let script = "trap '' TERM; echo ready; while :; do sleep 0.01; done";
    let mut program = lab.start("a", Command::new("sh").args(["-c", script]))?;
    let output = lab.file("out");
    until("it ignores the signal", || fs::read_to_string(&output).is_ok_and(|text| text == "ready\n"))?;
    program.stop();
    assert!(program.has_ended().is_some_and(|status| status.code().is_none()), "no signal has ended it");
    Ok(())
}

#[test]
fn a_process_that_does_not_become_ready_is_an_error_that_says_why() -> Result<(), Failure> {
    if !is_inside_as_root("a_process_that_does_not_become_ready_is_an_error_that_says_why") {
        return Ok(());
    }
    let lab = Lab::new(PAIR)?;
    let sh = |script: &str| -> Result<Command, hosts::Error> {
        let mut command = lab.testbed.host("a")?.command("sh");
        command.args(["-c", script]);
        Ok(command)
    };
    let mut ended = lab.start("a", Command::new("sh").args(["-c", "echo no certificate >&2; exit 4"]))?;
    let error = ended.wait_ready("server", vec![sh("exit 1")?], WAIT_MAX).err().ok_or("it is ready")?;
    assert!(matches!(&error, ProcessError::Ended { status, .. } if status.code() == Some(4)), "{error}");
    assert!(error.to_string().contains("server") && error.to_string().contains("no certificate"), "{error}");

    let mut slow = lab.start("a", Command::new("sleep").arg("infinity"))?;
    let ready = vec![sh("true")?, sh("echo no answer >&2; exit 1")?];
    // Enough for many attempts.
    let error = slow.wait_ready("server", ready, Duration::from_secs(3)).err().ok_or("it is ready")?;
    assert!(matches!(error, ProcessError::NotReady { .. }), "{error}");
    assert!(error.to_string().contains("no answer"), "{error}");
    // A command that does not end, either.
    let error = slow.wait_ready("server", vec![sh("sleep infinity")?], Duration::from_millis(100)).err();
    assert!(matches!(error, Some(ProcessError::NotReady { .. })), "{error:?}");
    Ok(())
}

#[test]
fn a_topology_that_cannot_be_is_an_error_that_says_why() -> Result<(), Failure> {
    if !is_inside_as_root("a_topology_that_cannot_be_is_an_error_that_says_why") {
        return Ok(());
    }
    let (second, two) = ("number = 2", "    networks = [\"net\"]\n");
    let cases = [
        (PAIR.replacen(two, "networks = [\"absent\"]\n", 1), "absent"),
        (PAIR.replace(second, "number = 1"), "the same number"),
        (PAIR.replace(second, "number = 251"), "the largest is 250"),
        (PAIR.replace(second, "number = 0"), "the smallest 1"),
        (PAIR.replace("name = \"a\"", "name = \"a-name-too-long\""), "a-name-too-long"),
        (PAIR.replace("name = \"a\"", "name = \"A;\""), "A;"),
        (PAIR.replace("ipv4 = \"192.0.2.0/24\"", "").replace("ipv6 = \"2001:db8::/64\"", ""), "prefix"),
        (PAIR.replace("192.0.2.0/24", "192.0.2.0/31"), "prefix"),
        (ROUTED.replace("[\"near\", \"far\"]", "[\"near\", \"absent\"]"), "absent"),
        (ROUTED.replace("192.0.2.0/24", "192.0.2.0/25"), "prefix"),
        // Both would have the number 254 in both networks.
        (format!("{ROUTED}[[router]]\nname = \"wan-2\"\nbetween = [\"near\", \"far\"]"), "wan-2"),
        (ROUTED.replace("[\"near\", \"far\"]", "[\"near\", \"near\"]"), "near"),
        (PAIR.replacen(two, "networks = [\"net\", \"net\"]\n", 1), "net"),
        (ROUTED.replace("name = \"wan\"", "name = \"a\""), "a"),
        (SLOW.replace("0.2", "-1.0"), "quota"),
        (SLOW.replace("0.2", "nan"), "quota"),
        (SLOW.replace("0.2", "0.001"), "quota"),
    ];
    let folder = tempfile::tempdir()?;
    prepare_sandbox(&folder.path().join("hosts"))?;
    let groups = RemovedGroups(Groups::create()?);
    for (topology, cause) in cases {
        match testbed(&topology, FORWARDS, &groups.0) {
            Ok(_) => return Err(format!("{cause}: no error for {topology}").into()),
            Err(error) => assert!(error.to_string().contains(cause), "{cause}: {error}"),
        }
    }
    Ok(())
}

/// A testbed in the namespace of the test.
struct Lab {
    testbed: Testbed,
    folder: tempfile::TempDir,
    groups: RemovedGroups,
}

/// They end with this value.
struct RemovedGroups(Groups);

impl Drop for RemovedGroups {
    fn drop(&mut self) {
        self.0.remove();
    }
}

#[derive(Deserialize)]
struct Topology {
    #[serde(default, rename = "network")]
    networks: Vec<Network>,
    #[serde(default, rename = "host")]
    hosts: Vec<Host>,
    #[serde(default, rename = "router")]
    routers: Vec<Router>,
}

impl Lab {
    fn new(topology: &str) -> Result<Self, Failure> {
        Self::with_router(topology, FORWARDS)
    }

    fn with_router(topology: &str, router: &[&str]) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        prepare_sandbox(&folder.path().join("hosts"))?;
        let groups = RemovedGroups(Groups::create()?);
        let testbed = testbed(topology, router, &groups.0)?;
        Ok(Self { testbed, folder, groups })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self, host: &str, program: &Command) -> Result<Process, Failure> {
        let mut command = self.testbed.host(host)?.command(program.get_program());
        command.args(program.get_args());
        Ok(Process::spawn(command, &self.file("out"), &self.file("err"))?)
    }
}

impl Lab {
    /// Starts a server that greets its clients.
    fn answer(&self, host: &str) -> Result<Process, Failure> {
        let command = self.role(host, "answer [::]:7")?;
        Ok(Process::spawn(command, &self.file("out"), &self.file("err"))?)
    }

    /// Waits until `host` gets the greeting of a server.
    fn expect_answer(&self, server: &mut Process, host: &str, address: &str) -> Result<(), Failure> {
        let ask = self.role(host, &format!("ask {address}"))?;
        Ok(server.wait_ready(&format!("the server, which {host} asks at {address}"), vec![ask], WAIT_MAX)?)
    }

    fn role(&self, host: &str, arguments: &str) -> Result<Command, Failure> {
        let mut command = self.testbed.host(host)?.command(env::current_exe()?);
        command.args(["--exact", "role", "--nocapture"]).env(ROLE, arguments);
        Ok(command)
    }
}

fn testbed(topology: &str, router: &[&str], groups: &Groups) -> Result<Testbed, Failure> {
    let topology: Topology = toml::from_str(topology)?;
    let router = |_: &Router| router.iter().map(|word| (*word).to_owned()).collect();
    Ok(Testbed::new(&topology.networks, &topology.hosts, &topology.routers, groups, &router)?)
}

/// No test: what this binary does as a program on a host, and as the program that supervises a run.
#[test]
fn role() -> Result<(), Failure> {
    let Ok(arguments) = env::var(ROLE) else { return Ok(()) };
    match arguments.split(' ').collect::<Vec<_>>()[..] {
        ["answer", address] => {
            let listener = TcpListener::bind(address)?;
            loop {
                listener.accept()?.0.write_all(GREETING)?;
            }
        }
        ["ask", address] => {
            let address = address.to_socket_addrs()?.next().ok_or("no address")?;
            let mut greeting = Vec::new();
            TcpStream::connect_timeout(&address, Duration::from_secs(1))?.read_to_end(&mut greeting)?;
            if greeting != GREETING {
                return Err(format!("a greeting of {} octets", greeting.len()).into());
            }
        }
        ["send", address] => TcpListener::bind(address)?.accept()?.0.write_all(&vec![0; TRANSFER_LEN])?,
        ["receive", address] => {
            let address: SocketAddr = address.parse()?;
            let mut sender = None;
            until("a connection", || {
                sender = TcpStream::connect(address).ok();
                sender.is_some()
            })?;
            let received = io::copy(&mut sender.ok_or("no connection")?, &mut io::sink())?;
            let early = netstat("TCPOFOQueue")?;
            if (received, early) != (TRANSFER_LEN as u64, 0) {
                return Err(format!("{received} octets, and {early} segments before their turn").into());
            }
        }
        ["supervise", folder] => sandbox::supervise(Path::new(folder))?,
        _ => return Err(format!("no such role: {arguments}").into()),
    }
    Ok(())
}

/// A counter of this network namespace: `netstat` has a line of names above each line of values.
fn netstat(name: &str) -> Result<u64, Failure> {
    let text = fs::read_to_string("/proc/self/net/netstat")?;
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    let mut pairs = lines.chunks(2).flat_map(|pair| pair[0].iter().zip(&pair[1]));
    Ok(pairs.find(|(found, _)| **found == name).ok_or("the kernel has no such counter")?.1.parse()?)
}

/// False for a process that only waits for its parent.
fn is_running(id: u32) -> Result<bool, Failure> {
    let Ok(stat) = fs::read_to_string(format!("/proc/{id}/stat")) else { return Ok(false) };
    let (_, rest) = stat.rsplit_once(") ").ok_or("stat has a name")?;
    Ok(!rest.starts_with(['Z', 'X']))
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), Failure> {
    let deadline = Instant::now() + WAIT_MAX;
    while !is_so() {
        if Instant::now() > deadline {
            return Err(format!("not within {WAIT_MAX:?}: {what}").into());
        }
        sleep(POLL);
    }
    Ok(())
}
