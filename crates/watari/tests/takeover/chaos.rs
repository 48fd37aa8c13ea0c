//! Faults at random: nodes are killed, stopped and cut off, networks are partitioned, clocks are stepped.
//!
//! A packet capture at the client checks all the time that no two machines answer a request for the address.
//!
//! `TAKEOVER_CHAOS_S` is the duration in seconds. `TAKEOVER_CHAOS_SEED` replays the faults of a run, as far as
//! processes can be replayed.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use watari_test_origins::namespace::is_inside;

use crate::lab::{Lab, PLAN, Plan, V4, until};

const NODES: [&str; 3] = ["d1", "d2", "a1"];
const DURATION_S: u64 = 20;
/// Between two looks at the capture.
const TICK: Duration = Duration::from_millis(20);
/// The longest time until the next fault, and that a fault lasts, in milliseconds. A lease is 600 ms.
const NEXT_MS_MAX: u64 = 500;
const LASTS_MS_MAX: u64 = 1_500;
/// Steps of a clock, in seconds. Certificates are valid at all of these times.
const STEPS_S: [i64; 6] = [-1_800, -60, -1, 1, 60, 1_800];
/// How long a client waits for a connection.
const CONNECT: Duration = Duration::from_millis(50);

/// Whatever happens, at most one machine answers. When all faults have ended, one does.
#[test]
fn no_two_machines_answer() {
    if !is_inside("chaos::no_two_machines_answer") {
        return;
    }
    let given = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let duration = Duration::from_secs(given("TAKEOVER_CHAOS_S").unwrap_or(DURATION_S));
    let of_now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64;
    let seed = given("TAKEOVER_CHAOS_SEED").unwrap_or_else(of_now);
    println!("TAKEOVER_CHAOS_SEED={seed}");
    let lab = Lab::start(&Plan { own_clocks: true, ..PLAN });
    let is_over = AtomicBool::new(false);
    let faults = thread::scope(|scope| {
        // Otherwise the capture would have only ARP.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = TcpStream::connect_timeout(&SocketAddr::new(V4.parse().unwrap(), 443), CONNECT);
                sleep(TICK);
            }
        });
        let _end = SetAtEnd(&is_over);
        Faults::new(&lab, seed).go_on_for(duration)
    });
    until("both know the same owner", || {
        let owners = ["d1", "d2"].map(|name| lab.address(name, V4).map(|shown| shown["owner"].clone()));
        matches!(&owners, [Some(a), Some(b)] if a == b && !a.is_null()) && lab.request(V4)
    });
    println!("{duration:?}: {faults:?}");
    assert!(faults.values().sum::<usize>() > 0);
    lab.end();
}

/// Otherwise the other tests would prove nothing.
#[test]
fn a_second_machine_is_noticed() {
    if !is_inside("chaos::a_second_machine_is_noticed") {
        return;
    }
    let lab = Lab::start(&PLAN);
    assert_eq!(lab.doubles(), Vec::<String>::new());
    lab.ip("x1", &["address", "add", &format!("{V4}/24"), "dev", "eth0"]);
    until("the second answer is noticed", || !lab.doubles().is_empty());
}

/// Faults that begin and end at random. Several can be there at a time, of one node or of several.
struct Faults<'a> {
    lab: &'a Lab,
    random: u64,
    /// Those that have begun, with the times of their ends.
    present: Vec<(Instant, Fault)>,
    begun: BTreeMap<&'static str, usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The process is killed. At the end, the node starts again.
    Killed(&'static str),
    /// The process stands still.
    Stopped(&'static str),
    /// The machine is off the bridge, and its interface has a carrier.
    Cut(&'static str),
    /// The machine's interface has no carrier.
    Unplugged(&'static str),
    /// Two nodes cannot reach each other.
    Parted(&'static str, &'static str),
    /// The node's wall clock is wrong by these seconds.
    Stepped(&'static str, i64),
}

impl<'a> Faults<'a> {
    fn new(lab: &'a Lab, seed: u64) -> Self {
        Self { lab, random: seed, present: Vec::new(), begun: BTreeMap::new() }
    }

    /// Returns the numbers of faults when all have ended. Panics when two machines have answered.
    fn go_on_for(mut self, duration: Duration) -> BTreeMap<&'static str, usize> {
        let begun = Instant::now();
        let mut next = begun;
        while begun.elapsed() < duration {
            let now = Instant::now();
            self.end(|end| end <= now);
            if now >= next {
                self.begin(now);
                next = now + Duration::from_millis(self.below(NEXT_MS_MAX));
            }
            assert_eq!(self.lab.doubles(), Vec::<String>::new(), "two machines answered a request");
            sleep(TICK);
        }
        self.end(|_| true);
        self.begun
    }

    fn begin(&mut self, now: Instant) {
        let fault = self.draw();
        let is_possible = match fault {
            Fault::Killed(node) | Fault::Stopped(node) => {
                let is_away =
                    |fault: &Fault| matches!(fault, Fault::Killed(name) | Fault::Stopped(name) if *name == node);
                !self.present.iter().any(|(_, present)| is_away(present))
            }
            _ => !self
                .present
                .iter()
                .any(|(_, present)| std::mem::discriminant(present) == std::mem::discriminant(&fault)),
        };
        if is_possible {
            println!("{fault:?}");
            fault.begin(self.lab);
            let end = now + Duration::from_millis(self.below(LASTS_MS_MAX));
            self.present.push((end, fault));
            *self.begun.entry(fault.name()).or_default() += 1;
        }
    }

    fn end(&mut self, is_due: impl Fn(Instant) -> bool) {
        for (_, fault) in self.present.extract_if(.., |(end, _)| is_due(*end)) {
            println!("ends: {fault:?}");
            fault.end(self.lab);
        }
    }

    fn draw(&mut self) -> Fault {
        let node = NODES[self.below(3) as usize];
        // The owner is the one that matters.
        let dispatcher = NODES[self.below(2) as usize];
        match self.below(8) {
            0 => Fault::Killed(node),
            1 => Fault::Killed(dispatcher),
            2 | 3 => Fault::Stopped(dispatcher),
            4 => Fault::Cut(node),
            5 => Fault::Unplugged(dispatcher),
            6 => Fault::Parted(dispatcher, if node == dispatcher { "a1" } else { node }),
            _ => Fault::Stepped(node, STEPS_S[self.below(STEPS_S.len() as u64) as usize]),
        }
    }

    /// A number below `end`, by `SplitMix64`.
    fn below(&mut self, end: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

impl Fault {
    fn begin(self, lab: &Lab) {
        match self {
            Self::Killed(node) => lab.kill(node),
            Self::Stopped(node) => lab.signal(node, Signal::STOP),
            Self::Cut(node) => Lab::cut(node, true),
            Self::Unplugged(node) => Lab::set_carrier(node, "down"),
            Self::Parted(a, b) => lab.part(a, b, true),
            Self::Stepped(node, seconds) => lab.step_clock(node, seconds),
        }
    }

    fn end(self, lab: &Lab) {
        match self {
            Self::Killed(node) => lab.start_node(node),
            Self::Stopped(node) => lab.signal(node, Signal::CONT),
            Self::Cut(node) => Lab::cut(node, false),
            Self::Unplugged(node) => Lab::set_carrier(node, "up"),
            Self::Parted(a, b) => lab.part(a, b, false),
            Self::Stepped(node, _) => lab.step_clock(node, 0),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Killed(_) => "killed",
            Self::Stopped(_) => "stopped",
            Self::Cut(_) => "cut",
            Self::Unplugged(_) => "unplugged",
            Self::Parted(..) => "parted",
            Self::Stepped(..) => "stepped",
        }
    }
}

struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Timers go on when a wall clock is stepped, and so do leases. The log has the node's time.
#[test]
fn a_step_of_the_clock_changes_no_owner() {
    if !is_inside("chaos::a_step_of_the_clock_changes_no_owner") {
        return;
    }
    // A busy machine does not miss a renewal.
    let keys = "preempt = false\nlease = \"3s\"\nadvert_interval = \"300ms\"";
    let lab = Lab::start(&Plan { own_clocks: true, keys, ..PLAN });
    for step in [1_800, -1_800, 0] {
        for node in NODES {
            lab.step_clock(node, step);
        }
        // They have nothing to log otherwise.
        for node in ["d1", "d2"] {
            assert!(lab.ctl(node, &["reload"]).status.success());
            until("the log has the new time", || is_stepped(&lab, node) == (step != 0));
        }
        let end = Instant::now() + Duration::from_secs(3);
        until("the lease has ended, and was renewed before", || {
            assert!(lab.has("d1", V4) && !lab.has("d2", V4), "after a step of {step} s");
            Instant::now() > end
        });
        assert!(lab.request(V4), "after a step of {step} s");
    }
    let activations = ["d1", "d2"].map(|node| lab.metric(node, "watari_address_activations_total", V4));
    assert_eq!(activations, [1, 0]);
    lab.end();
}

/// A time that the log of no node reaches by itself: its last line is younger, in seconds.
const STEPPED_S: i64 = 30;

/// Whether the last line of the node's log is of another time.
fn is_stepped(lab: &Lab, name: &str) -> bool {
    let log = lab.log(name);
    let time = log.lines().rev().find_map(|line| OffsetDateTime::parse(line.split(' ').next()?, &Rfc3339).ok());
    (time.unwrap() - OffsetDateTime::now_utc()).whole_seconds().abs() >= STEPPED_S
}
