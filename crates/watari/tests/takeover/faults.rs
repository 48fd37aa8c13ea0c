//! The owner fails.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use watari_test_origins::namespace::is_inside;

use crate::lab::{Lab, PLAN, Plan, V4, V6, until};

/// A lease of five seconds.
const PATIENT: Plan = Plan { keys: "preempt = false\nlease = \"5s\"\nadvert_interval = \"500ms\"", ..PLAN };

/// The owner's process is killed. Its machine lives on, with the address on its interface.
#[test]
fn killed() {
    if !is_inside("faults::killed") {
        return;
    }
    let lab = Lab::start(&PLAN);
    lab.session("session");
    for address in [V4, V6] {
        lab.assert_owner("d1", address);
    }
    assert_eq!(Lab::neighbour(V4), Some(lab.mac("d1")));
    let killed = Instant::now();
    lab.kill("d1");
    assert!(lab.has("d1", V4), "the kernel has the address although the process is gone");
    until("the client's connections are answered", || lab.request(V4));
    println!("killed: answered after {:?} (IPv4)", killed.elapsed());
    lab.until_owner("d2");
    for address in [V4, V6] {
        assert_eq!(Lab::neighbour(address), Some(lab.mac("d2")), "{address}");
    }
    assert!(lab.session("session"), "the session resumes");
    until("the kernel has removed the address by itself", || !lab.has("d1", V4) && !lab.has("d1", V6));
    // The node comes back as standby.
    lab.start_node("d1");
    until("d1 knows the owner", || lab.address("d1", V4).is_some_and(|shown| shown["owner"] == "d2"));
    lab.assert_owner("d2", V4);
    assert!(!lab.has("d1", V4));
    lab.end();
}

/// A node that starts again before the kernel has removed the address cleans up.
#[test]
fn killed_and_started_at_once() {
    if !is_inside("faults::killed_and_started_at_once") {
        return;
    }
    // The kernel keeps the address far longer than a start takes.
    let lab = Lab::start(&PATIENT);
    lab.kill("d1");
    assert!(lab.has("d1", V4));
    lab.start_node("d1");
    until("the leftover is removed", || lab.log("d1").contains("an address that an earlier process has left"));
    until("a node has the address", || lab.request(V4) && lab.request(V6));
    lab.end();
}

/// Detection within 300 ms.
#[test]
fn killed_with_a_short_lease() {
    if !is_inside("faults::killed_with_a_short_lease") {
        return;
    }
    let plan = Plan { keys: "preempt = false\nlease = \"300ms\"\nadvert_interval = \"75ms\"", ..PLAN };
    let lab = Lab::start(&plan);
    let killed = Instant::now();
    lab.kill("d1");
    until("the client's connections are answered", || lab.request(V4));
    println!("killed, lease 300 ms: answered after {:?}", killed.elapsed());
    lab.end();
}

/// The owner's process stands still, and goes on after its lease.
#[test]
fn stopped() {
    if !is_inside("faults::stopped") {
        return;
    }
    let lab = Lab::start(&PLAN);
    for (owner, other) in [("d1", "d2"), ("d2", "d1")] {
        let stopped = Instant::now();
        lab.signal(owner, Signal::STOP);
        until("the client's connections are answered", || lab.request(V4));
        println!("stopped: answered after {:?}", stopped.elapsed());
        lab.until_owner(other);
        lab.signal(owner, Signal::CONT);
        until("the previous owner has removed the address", || {
            lab.address(owner, V4).is_some_and(|shown| shown["role"] == "standby") && !lab.has(owner, V4)
        });
        until("it knows the owner", || lab.address(owner, V4).is_some_and(|shown| shown["owner"] == other));
        lab.until_owner(other);
    }
    lab.end();
}

/// The owner is cut off from everything, and both live.
#[test]
fn cut_off() {
    if !is_inside("faults::cut_off") {
        return;
    }
    let lab = Lab::start(&PLAN);
    let cut = Instant::now();
    Lab::cut("d1", true);
    until("the client's connections are answered", || lab.request(V4));
    println!("cut off: answered after {:?}", cut.elapsed());
    lab.until_owner("d2");
    until("the minority gives up", || !lab.has("d1", V4) && !lab.has("d1", V6));
    let shown = lab.address("d1", V4).unwrap();
    assert_ne!(shown["role"], "active", "{shown}");
    Lab::cut("d1", false);
    until("d1 knows the owner", || lab.address("d1", V4).is_some_and(|shown| shown["owner"] == "d2"));
    lab.until_owner("d2");
    lab.end();
}

/// The two dispatchers cannot reach each other. Both reach the witness.
#[test]
fn partitioned() {
    if !is_inside("faults::partitioned") {
        return;
    }
    // The owner renews its lease in time even on a busy machine.
    let lab = Lab::start(&PATIENT);
    lab.ip("d1", &["route", "add", "blackhole", "192.0.2.2/32"]);
    lab.ip("d2", &["route", "add", "blackhole", "192.0.2.1/32"]);
    until("d2 asks the witness, in vain", || {
        lab.address("d2", V4).is_some_and(|shown| shown["owner"].is_null() && shown["role"] != "active")
    });
    let end = Instant::now() + Duration::from_secs(3);
    until("the owner keeps the address for three seconds", || {
        assert!(lab.has("d1", V4) && !lab.has("d2", V4));
        Instant::now() > end
    });
    lab.until_owner("d1");
    lab.end();
}

/// The owner's interface has no carrier. Its node gives the address up, because no voter can be reached.
#[test]
fn without_carrier() {
    if !is_inside("faults::without_carrier") {
        return;
    }
    let lab = Lab::start(&PLAN);
    Lab::set_carrier("d1", "down");
    lab.until_owner("d2");
    until("d1 cannot serve", || lab.address("d1", V4).is_some_and(|shown| shown["ready"] == false));
    Lab::set_carrier("d1", "up");
    until("d1 stands by", || lab.address("d1", V4).is_some_and(|shown| shown["owner"] == "d2"));
    lab.end();
}

/// Faults in turn, for a while. `TAKEOVER_FAULTS` is their number.
#[test]
fn many_faults() {
    if !is_inside("faults::many_faults") {
        return;
    }
    let count = std::env::var("TAKEOVER_FAULTS").map_or(6, |count| count.parse().unwrap());
    let lab = Lab::start(&PLAN);
    let owner = || ["d1", "d2"].into_iter().find(|name| lab.has(name, V4)).unwrap_or("d1");
    for number in 0..count {
        let victim = owner();
        match number % 4 {
            0 => {
                lab.kill(victim);
                until("connections are answered", || lab.request(V4));
                lab.start_node(victim);
            }
            1 => {
                lab.signal(victim, Signal::STOP);
                until("connections are answered", || lab.request(V4));
                lab.signal(victim, Signal::CONT);
            }
            2 => {
                Lab::cut(victim, true);
                until("connections are answered", || lab.request(V4));
                Lab::cut(victim, false);
            }
            _ => {
                // The witness is not there: the two dispatchers are a majority.
                lab.kill("a1");
                lab.start_node("a1");
            }
        }
        until("both know the same owner", || {
            let owners = ["d1", "d2"].map(|name| lab.address(name, V4).map(|shown| shown["owner"].clone()));
            matches!(&owners, [Some(a), Some(b)] if a == b && !a.is_null()) && lab.request(V4)
        });
    }
    lab.end();
}
