//! The delay router between two hosts in network namespaces of their own.
//!
//! The programs on the machines are this test binary: see [`role`].

#![allow(clippy::cast_precision_loss, reason = "lengths are small")]

use std::env;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use watari_lab::router::{self, Settings};
use watari_test_origins::namespace::{Machine, add_bridge, is_inside_as_root};

type Failure = Box<dyn std::error::Error>;

/// Arguments of a role.
const ROLE: &str = "WATARI_LAB_ROLE";
/// Before what a role prints, because the test harness prints on the same line.
const SAYS: &str = "says:";
/// Far longer than any step takes.
const WAIT_MAX: Duration = Duration::from_secs(40);
const POLL: Duration = Duration::from_millis(5);
/// How early a packet and its answer can be, together.
const EARLY_MAX: Duration = Duration::from_micros(300);
const MIB: usize = 1 << 20;
/// A packet without its link-layer header, and with the header of `virtio_net`.
const SMALL_PACKET_MAX: u64 = 1510;

const FAR: [&str; 2] = ["192.0.2.1:7", "[2001:db8:2::1]:7"];

#[test]
fn a_round_trip_takes_as_long_as_the_setting() -> Result<(), Failure> {
    if !is_inside_as_root("a_round_trip_takes_as_long_as_the_setting") {
        return Ok(());
    }
    let set = Duration::from_millis(60);
    let lab = Lab::new()?;
    let _router = lab.route(&Settings { round_trip: set, ..Settings::default() })?;
    for address in FAR {
        let _echo = Role::start(&lab.far, &format!("echo {address}"))?;
        // On a busy machine, all packets of an attempt can be late. None is ever early.
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let mut times = lab.probe(address)?;
            times.sort();
            let (least, median) = (times[0], times[times.len() / 2]);
            println!("{address}: least {least:?}, median {median:?}, set {set:?}");
            assert_eq!(times.len(), 20, "a probe is lost");
            assert!(least + EARLY_MAX >= set, "a packet is early");
            if median < set + set / 2 {
                break;
            }
            assert!(Instant::now() < deadline, "packets are late");
        }
    }
    Ok(())
}

#[test]
fn jitter_comes_on_top_of_the_delay_and_differs() -> Result<(), Failure> {
    if !is_inside_as_root("jitter_comes_on_top_of_the_delay_and_differs") {
        return Ok(());
    }
    let (round_trip, jitter) = (Duration::from_millis(10), Duration::from_millis(40));
    let lab = Lab::new()?;
    let _router = lab.route(&Settings { round_trip, jitter, seed: 1, ..Settings::default() })?;
    let _echo = Role::start(&lab.far, &format!("echo {}", FAR[0]))?;
    let mut times = lab.probe(FAR[0])?;
    times.sort();
    assert!(times[0] + EARLY_MAX >= round_trip);
    // With this seed. A busy machine only adds to it.
    assert!(times[19] >= round_trip + jitter, "{times:?}");
    Ok(())
}

#[test]
fn bulk_data_arrives_intact_in_large_packets() -> Result<(), Failure> {
    if !is_inside_as_root("bulk_data_arrives_intact_in_large_packets") {
        return Ok(());
    }
    let lab = Lab::new()?;
    let _router = lab.route(&Settings { round_trip: Duration::from_millis(10), ..Settings::default() })?;
    for address in FAR {
        lab.transfer(address, 16 * MIB)?;
        // The far host sends. Its packets come in by tun1 and leave by tun0.
        for (device, direction) in [("tun1", "tx"), ("tun0", "rx")] {
            let mean = lab.counted(device, direction, "bytes")? / lab.counted(device, direction, "packets")?;
            println!("{address}: {device} {direction} {mean} octets in a packet");
            assert!(mean > 2 * SMALL_PACKET_MAX, "large packets are split");
        }
    }
    Ok(())
}

#[test]
fn bulk_data_arrives_intact_in_spite_of_losses_each_of_one_segment() -> Result<(), Failure> {
    if !is_inside_as_root("bulk_data_arrives_intact_in_spite_of_losses_each_of_one_segment") {
        return Ok(());
    }
    let lab = Lab::new()?;
    let _router = lab.route(&Settings { loss: 0.01, seed: 1, ..Settings::default() })?;
    for address in FAR {
        lab.transfer(address, 4 * MIB)?;
    }
    let mean = lab.counted("tun1", "tx", "bytes")? / lab.counted("tun1", "tx", "packets")?;
    assert!(mean <= SMALL_PACKET_MAX, "{mean} octets share their fate");
    let (came, left) = (lab.counted("tun1", "tx", "packets")?, lab.counted("tun0", "rx", "packets")?);
    assert!(left < came, "no packet was lost");
    Ok(())
}

#[test]
fn a_link_that_loses_all_lets_nothing_pass() -> Result<(), Failure> {
    if !is_inside_as_root("a_link_that_loses_all_lets_nothing_pass") {
        return Ok(());
    }
    let lab = Lab::new()?;
    let _router = lab.route(&Settings { loss: 1.0, ..Settings::default() })?;
    for address in FAR {
        Role::start(&lab.near, &format!("datagrams {address} 100"))?.finish()?;
    }
    let deadline = Instant::now() + WAIT_MAX;
    while lab.counted("tun0", "tx", "packets")? < 200 {
        assert!(Instant::now() < deadline, "the datagrams do not reach the router");
        sleep(POLL);
    }
    assert_eq!(lab.counted("tun1", "rx", "packets")?, 0);
    Ok(())
}

#[test]
fn a_transfer_is_not_faster_than_the_rate() -> Result<(), Failure> {
    if !is_inside_as_root("a_transfer_is_not_faster_than_the_rate") {
        return Ok(());
    }
    let lab = Lab::new()?;
    let _router = lab.route(&Settings { rate: Some(16e6), ..Settings::default() })?;
    for address in FAR {
        let took = lab.transfer(address, 2 * MIB)?;
        let mbit_s = (2 * MIB * 8) as f64 / took.as_secs_f64() / 1e6;
        println!("{address}: {mbit_s:.2} Mbit/s, set 16");
        assert!(mbit_s < 16.0);
    }
    Ok(())
}

#[test]
fn without_its_process_a_router_rejects_packets_until_another_one_starts() -> Result<(), Failure> {
    if !is_inside_as_root("without_its_process_a_router_rejects_packets_until_another_one_starts") {
        return Ok(());
    }
    let lab = Lab::new()?;
    let settings = Settings { round_trip: Duration::from_millis(20), ..Settings::default() };
    for address in FAR {
        let _echo = Role::start(&lab.far, &format!("echo {address}"))?;
        let router = lab.route(&settings)?;
        assert!(lab.probe(address)?.iter().all(|time| *time + EARLY_MAX >= settings.round_trip));
        drop(router);
        assert_eq!(lab.send_until_rejected(address)?, "rejected");
    }
    Ok(())
}

#[test]
fn a_router_names_the_interface_that_is_missing() {
    if !is_inside_as_root("a_router_names_the_interface_that_is_missing") {
        return;
    }
    let error = router::run(["absent0", "absent1"], &Settings::default()).expect_err("no interface has these names");
    assert!(error.to_string().contains("absent0"), "{error}");
}

/// Two hosts in two networks, and a router between them.
struct Lab {
    near: Machine,
    far: Machine,
    router: Machine,
}

impl Lab {
    fn new() -> Result<Self, Failure> {
        add_bridge("one", &[])?;
        add_bridge("two", &[])?;
        let near = Machine::connect("one", "near", &["198.51.100.1/24", "2001:db8:1::1/64"])?;
        let far = Machine::connect("two", "far", &["192.0.2.1/24", "2001:db8:2::1/64"])?;
        let router = Machine::connect("one", "router0", &["198.51.100.254/24", "2001:db8:1::254/64"])?;
        router.add_link("two", "router1", "eth1", &["192.0.2.254/24", "2001:db8:2::254/64"])?;
        for (host, gateways) in
            [(&near, ["198.51.100.254", "2001:db8:1::254"]), (&far, ["192.0.2.254", "2001:db8:2::254"])]
        {
            for gateway in gateways {
                succeed(host.command("ip").args(["route", "add", "default", "via", gateway]))?;
            }
        }
        Ok(Self { near, far, router })
    }

    /// Starts the router. It ends with the value.
    fn route(&self, settings: &Settings) -> Result<Role, Failure> {
        let Settings { round_trip, jitter, loss, rate, seed } = settings;
        let (round_trip, jitter) = (round_trip.as_micros(), jitter.as_micros());
        let rate = rate.unwrap_or_default();
        let mut role = Role::start(&self.router, &format!("router {round_trip} {jitter} {loss} {rate} {seed}"))?;
        role.wait_for("ready")?;
        Ok(role)
    }

    /// Twenty round trips from the near host.
    fn probe(&self, address: &str) -> Result<Vec<Duration>, Failure> {
        let times = Role::start(&self.near, &format!("probe {address}"))?.finish()?;
        times.split(' ').map(|us| Ok(Duration::from_micros(us.parse()?))).collect()
    }

    /// The near host fetches from the far one. The time from its request to the last octet.
    fn transfer(&self, address: &str, len: usize) -> Result<Duration, Failure> {
        let mut server = Role::start(&self.far, &format!("serve {address} {len}"))?;
        server.wait_for("ready")?;
        let took = Role::start(&self.near, &format!("fetch {address} {len}"))?.finish()?;
        server.child.wait()?;
        Ok(Duration::from_micros(took.parse()?))
    }

    fn send_until_rejected(&self, address: &str) -> Result<String, Failure> {
        Role::start(&self.near, &format!("rejected {address}"))?.finish()
    }

    /// A counter of a device of the router. `tx`: to the router process, `rx`: from it.
    fn counted(&self, device: &str, direction: &str, counter: &str) -> Result<u64, Failure> {
        let output = self.router.command("ip").args(["-json", "-stats", "link", "show", "dev", device]).output()?;
        let links: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        links[0]["stats64"][direction][counter].as_u64().ok_or_else(|| "ip prints no counters".into())
    }
}

fn succeed(command: &mut Command) -> Result<(), Failure> {
    let output = command.output()?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
}

/// This test binary as a program on a machine. It is killed with this value.
struct Role {
    child: Child,
    arguments: String,
}

impl Role {
    fn start(machine: &Machine, arguments: &str) -> io::Result<Self> {
        let mut command = machine.command(&env::current_exe()?.display().to_string());
        command.args(["--exact", "role", "--nocapture"]).env(ROLE, arguments).stdout(Stdio::piped());
        Ok(Self { child: command.spawn()?, arguments: arguments.to_owned() })
    }

    /// Waits until it prints `text`.
    fn wait_for(&mut self, text: &str) -> Result<(), Failure> {
        let output = self.child.stdout.as_mut().ok_or("standard output is not piped")?;
        for line in BufReader::new(output).lines() {
            if line?.ends_with(text) {
                return Ok(());
            }
        }
        Err(format!("{} has ended", self.arguments).into())
    }

    /// Waits until it ends. What it said.
    fn finish(mut self) -> Result<String, Failure> {
        let mut output = String::new();
        self.child.stdout.take().ok_or("standard output is not piped")?.read_to_string(&mut output)?;
        if !self.child.wait()?.success() {
            return Err(format!("{}: {output}", self.arguments).into());
        }
        Ok(output.lines().find_map(|line| line.split_once(SAYS)).map(|(_, said)| said.to_owned()).unwrap_or_default())
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// No test: what this binary does as a program on a machine.
#[test]
fn role() -> Result<(), Failure> {
    let Ok(arguments) = env::var(ROLE) else { return Ok(()) };
    let arguments: Vec<_> = arguments.split(' ').collect();
    match arguments[..] {
        ["router", round_trip_us, jitter_us, loss, rate, seed] => {
            let rate = Some(rate.parse()?).filter(|rate| *rate > 0.0);
            let [round_trip, jitter] = [round_trip_us.parse()?, jitter_us.parse()?].map(Duration::from_micros);
            let settings = Settings { round_trip, jitter, loss: loss.parse()?, rate, seed: seed.parse()? };
            router::run(["eth0", "eth1"], &settings)?;
        }
        ["echo", address] => router::echo(address.parse()?)?,
        ["probe", address] => {
            let times = router::measure(address.parse()?, 20)?;
            let times: Vec<_> = times.iter().map(|time| time.as_micros().to_string()).collect();
            println!("{SAYS}{}", times.join(" "));
        }
        ["datagrams", address, count] => send_datagrams(address.parse()?, count.parse()?)?,
        ["rejected", address] => wait_for_rejection(address.parse()?)?,
        ["serve", address, len] => serve(address.parse()?, len.parse()?)?,
        ["fetch", address, len] => fetch(address.parse()?, len.parse()?)?,
        _ => return Err(format!("no such role: {arguments:?}").into()),
    }
    Ok(())
}

fn socket_to(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.connect(address)?;
    Ok(socket)
}

fn send_datagrams(address: SocketAddr, count: usize) -> Result<(), Failure> {
    let socket = socket_to(address)?;
    // The first ones wait for the link-layer address of the router, and some of these may be dropped.
    for _ in 0..count {
        socket.send(b"datagram")?;
        sleep(POLL);
    }
    Ok(())
}

/// Sends datagrams until the network refuses one, or the other host answers.
fn wait_for_rejection(address: SocketAddr) -> Result<(), Failure> {
    let socket = socket_to(address)?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let deadline = Instant::now() + WAIT_MAX;
    while Instant::now() < deadline {
        let answer = socket.send(b"datagram").and_then(|_| socket.recv(&mut [0; 16]));
        match answer.map_err(|error| error.kind()) {
            Ok(_) => return Err("the other host answers".into()),
            Err(io::ErrorKind::HostUnreachable | io::ErrorKind::PermissionDenied) => {
                println!("{SAYS}rejected");
                return Ok(());
            }
            Err(_) => {}
        }
    }
    Err("the router neither rejects packets nor forwards them".into())
}

/// The same octets on both hosts.
fn body(len: usize) -> Vec<u8> {
    let mut body = vec![0; len];
    StdRng::seed_from_u64(1).fill(&mut body[..]);
    body
}

/// Sends the body on one connection.
fn serve(address: SocketAddr, len: usize) -> Result<(), Failure> {
    let listener = TcpListener::bind(address)?;
    println!("ready");
    let (mut stream, _) = listener.accept()?;
    stream.write_all(&body(len))?;
    stream.shutdown(Shutdown::Write)?;
    // Until the client has all.
    io::copy(&mut stream, &mut io::sink())?;
    Ok(())
}

/// Receives the body, and compares it.
fn fetch(address: SocketAddr, len: usize) -> Result<(), Failure> {
    let expected = body(len);
    let started = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    let mut received = Vec::new();
    stream.read_to_end(&mut received)?;
    let took = started.elapsed();
    if received != expected {
        return Err(format!("{} octets came, not the {len} that were sent", received.len()).into());
    }
    println!("{SAYS}{}", took.as_micros());
    Ok(())
}
