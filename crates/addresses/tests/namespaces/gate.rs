//! The gate.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use watari_addresses::{Gate, GateError};
use watari_test_origins::namespace::is_inside;

use crate::lab::{Neighbour, ip, until};

const V4: &str = "192.0.2.10";
const V6: &str = "2001:db8::10";

#[test]
fn a_gate_closes_by_itself() {
    if !is_inside("gate::a_gate_closes_by_itself") {
        return;
    }
    let neighbour = Neighbour::connect();
    let addresses: Vec<IpAddr> = [V4, V6].map(|address| address.parse().unwrap()).into();
    let began = Instant::now();
    let now = || began.elapsed();
    let mut gate = Gate::make(addresses.clone(), vec!["eth0".into()]).unwrap();
    for (address, len) in [(V4, 24), (V6, 64)] {
        ip(&["address", "add", &format!("{address}/{len}"), "dev", "eth0", "nodad"]);
    }
    until("other addresses answer", || neighbour.reaches("192.0.2.1") && neighbour.reaches("2001:db8::1"));
    for (name, address) in [V4, V6].into_iter().zip(&addresses) {
        assert!(!neighbour.reaches(name), "{name} answers with a closed gate");
        gate.open(*address, now() + Duration::from_mins(1), now).unwrap();
        until("the open gate lets an answer out", || neighbour.reaches(name));
        // A shorter limit replaces a longer one, and the other way round.
        gate.open(*address, now() + Duration::from_millis(200), now).unwrap();
        gate.open(*address, now() + Duration::from_millis(600), now).unwrap();
        let opened = Instant::now();
        until("the gate closes by itself", || !neighbour.reaches(name));
        assert!(opened.elapsed() > Duration::from_millis(500), "{:?}", opened.elapsed());
        assert!(matches!(gate.open(*address, now(), now), Err(GateError::LeaseOver)));
        gate.open(*address, now() + Duration::from_mins(1), now).unwrap();
        gate.close(*address).unwrap();
        gate.close(*address).unwrap();
        assert!(!neighbour.reaches(name), "{name} answers");
    }
    // The tables of an earlier process are replaced.
    let mut gate = Gate::make(addresses.clone(), vec!["eth0".into()]).unwrap();
    assert!(!neighbour.reaches(V4));
    // Another program removes the tables.
    Gate::make(Vec::new(), Vec::new()).unwrap().remove().unwrap();
    gate.open(addresses[0], now() + Duration::from_mins(1), now).unwrap();
    until("the gate is open again", || neighbour.reaches(V4));
    assert!(!neighbour.reaches(V6), "the new tables have all addresses");
    gate.remove().unwrap();
    until("no gate is left", || neighbour.reaches(V6));
}

/// A process that stands still between reading the clock and its order does not open the gate late.
#[test]
fn a_late_order_is_refused() {
    if !is_inside("gate::a_late_order_is_refused") {
        return;
    }
    let _neighbour = Neighbour::connect();
    let address: IpAddr = V4.parse().unwrap();
    let mut gate = Gate::make(vec![address], vec!["eth0".into()]).unwrap();
    let began = Instant::now();
    let slow_clock = || {
        let now = began.elapsed();
        std::thread::sleep(Duration::from_millis(80));
        now
    };
    let opened = gate.open(address, Duration::from_mins(1), slow_clock);
    assert!(matches!(opened, Err(GateError::TooSlow)), "{opened:?}");
}
