//! Configurations and machines that do not fit. Nothing is left half done.

use std::process::Output;
use watari_test_origins::namespace::is_inside;

use crate::lab::{Lab, PLAN, V4, V6, dispatcher_tables, stdout, until};

/// Shows the addresses of a machine, without those that the kernel makes by itself and checks for a while.
const GLOBAL: [&str; 4] = ["address", "show", "scope", "global"];

/// A start that fails, and what it says.
fn refused(lab: &Lab, options: &[&str]) -> String {
    let mut command = lab.command("d1", "timeout");
    command.args(["10", env!("CARGO_BIN_EXE_watari"), "run", "--config", "d1.toml"]).args(options);
    let Output { status, stderr, .. } = command.output().unwrap();
    assert_eq!(status.code().map(|code| code == 1 || code == 2), Some(true), "{status}");
    String::from_utf8_lossy(&stderr).into_owned()
}

#[test]
fn a_start_is_refused() {
    if !is_inside("bad_input::a_start_is_refused") {
        return;
    }
    let lab = Lab::new(&PLAN);
    let addresses_before = lab.ip("d1", &GLOBAL);
    lab.write_config("d1", &dispatcher_tables(100, "eth7", ""));
    let said = refused(&lab, &[]);
    assert!(
        said.contains("d1.toml:") && said.contains("there is no interface eth7 (dispatcher.takeover.addresses)"),
        "{said}"
    );
    lab.write_config("d1", &dispatcher_tables(100, "lo", ""));
    let said = refused(&lab, &["--dry-run"]);
    assert!(said.contains("the interface lo is not Ethernet"), "{said}");
    lab.write_config("d1", &dispatcher_tables(100, "eth0", ""));
    lab.write_config("d1", &dispatcher_tables(100, "eth0", "notify = \"nothing\""));
    let said = refused(&lab, &[]);
    assert!(said.contains("the program of notify, nothing, cannot run: No such file"), "{said}");
    lab.write_config("d1", &dispatcher_tables(100, "eth0", ""));
    // Without the capability.
    let output = lab
        .command("d1", "setpriv")
        .args(["--bounding-set", "-net_raw", "--inh-caps", "-net_raw", env!("CARGO_BIN_EXE_watari")])
        .args(["run", "--config", "d1.toml"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("lacks the capability CAP_NET_RAW"), "{said}");
    assert_eq!(lab.ip("d1", &GLOBAL), addresses_before);
    // The administrator has given the address to the interface.
    lab.ip("d1", &["address", "add", &format!("{V4}/24"), "dev", "eth0"]);
    let said = refused(&lab, &[]);
    assert!(said.contains("has 192.0.2.100 already, and not from Watari"), "{said}");
    assert!(lab.has("d1", V4));
}

#[test]
fn a_dry_run_changes_nothing() {
    if !is_inside("bad_input::a_dry_run_changes_nothing") {
        return;
    }
    let lab = Lab::new(&PLAN);
    let before = lab.ip("d1", &GLOBAL);
    let mut command = lab.command("d1", env!("CARGO_BIN_EXE_watari"));
    let output = command.args(["run", "--config", "d1.toml", "--dry-run"]).output().unwrap();
    assert!(output.status.success());
    let said = stdout(&output);
    for line in [
        "voters: a1, d1, d2; 2 of them decide",
        "192.0.2.100/24 becomes active at eth0",
        "  nft add element inet watari lease4 { 192.0.2.100 timeout 540ms }",
        "  ip address add 2001:db8::100/64 dev eth0 valid_lft 3 preferred_lft 0 nodad",
        "  send 5 unsolicited neighbour advertisements, one every 500 ms",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert_eq!(lab.ip("d1", &GLOBAL), before);
}

/// Another machine has the addresses, outside the cluster.
#[test]
fn an_address_in_use_stays_there() {
    if !is_inside("bad_input::an_address_in_use_stays_there") {
        return;
    }
    let lab = Lab::new(&PLAN);
    lab.ip("x1", &["address", "add", &format!("{V4}/24"), "dev", "eth0"]);
    lab.ip("x1", &["address", "add", &format!("{V6}/64"), "dev", "eth0", "nodad"]);
    for node in ["a1", "d1"] {
        lab.start_node(node);
    }
    for address in [V4, V6] {
        let in_use = format!("in use at {}", lab.mac("x1"));
        until("d1 notices", || lab.address("d1", address).is_some_and(|shown| shown["why"] == in_use));
        assert!(!lab.has("d1", address));
    }
    lab.ip("x1", &["address", "del", &format!("{V4}/24"), "dev", "eth0"]);
    lab.ip("x1", &["address", "del", &format!("{V6}/64"), "dev", "eth0"]);
    lab.until_owner("d1");
}
