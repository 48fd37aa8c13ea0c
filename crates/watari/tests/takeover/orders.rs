//! Planned changes of the owner.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;
use watari_test_origins::namespace::is_inside;

use crate::lab::{Lab, PLAN, Plan, V4, V6, dispatcher_tables, stdout, until};

/// An operator's switch, from either node, by every form of the command.
#[test]
fn switched() {
    if !is_inside("orders::switched") {
        return;
    }
    // d1 would take the addresses back, were it not for the order.
    let lab = Lab::start(&Plan { keys: "preempt = true", ..PLAN });
    // d2 can serve clients when it has a link to the agent.
    until("the switch is possible", || lab.ctl("d1", &["switch", "d2"]).status.success());
    lab.assert_owner("d2", V4);
    for (asked, arguments, owner) in [
        ("d1", &["switch"][..], "d1"),
        ("d2", &["switch", "d2"], "d2"),
        ("d2", &["switch", V4, "d1"], "d1"),
        ("d2", &["switch", V6, "d1"], "d1"),
    ] {
        let output = lab.ctl(asked, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        let address = if arguments.contains(&V6) { V6 } else { V4 };
        lab.assert_owner(owner, address);
    }
    lab.until_owner("d1");
    for (arguments, error) in [
        (&["switch", "d1"][..], ""),
        (&["switch", V4, "d1"], "d1 has the address already"),
        (&["switch", V4, "a1"], "a1 is no candidate for the address"),
        (&["switch", "192.0.2.77"], "this node is no candidate for 192.0.2.77"),
        (&["switch", "d1", "d2"], "the first argument is the ADDRESS"),
    ] {
        let output = lab.ctl("d1", arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), error.is_empty(), "{arguments:?}: {said}");
        assert!(said.contains(error), "{arguments:?}: {said}");
    }
    lab.end();
}

/// A node with a higher priority takes the addresses over when it comes, and others get them when it ends.
#[test]
fn preempted_and_ended() {
    if !is_inside("orders::preempted_and_ended") {
        return;
    }
    // No busy machine is late by as much as this lease.
    let lab = Lab::start(&Plan { priorities: [100, 150], keys: "preempt = true\nlease = \"3s\"", ..PLAN });
    lab.until_owner("d2");
    let shown = lab.address("d2", V4).unwrap();
    assert_eq!(shown["why"], "d1 has left it to this node");
    let shown = lab.address("d1", V4).unwrap();
    assert_eq!((&shown["role"], &shown["why"]), (&Value::from("standby"), &Value::from("d2 has a higher priority")));
    lab.signal("d2", Signal::TERM);
    lab.until_owner("d1");
    until("nothing is left at d2", || !lab.has("d2", V4) && !lab.has("d2", V6));
    assert_eq!(lab.address("d1", V4).unwrap()["why"], "d2 has left it to this node");
    lab.end();
}

/// New processes of both nodes: the addresses and the client's connection stay, and `notify` does not run.
#[test]
fn upgraded() {
    if !is_inside("orders::upgraded") {
        return;
    }
    // No busy machine is late by as much as this lease.
    let lab = Lab::start(&Plan { keys: "preempt = false\nlease = \"3s\"\nnotify = \"notify\"", ..PLAN });
    let bytes: Vec<u8> = (0..2_u32 << 20).flat_map(u32::to_le_bytes).collect();
    fs::write(lab.dir().join("www/large"), &bytes).unwrap();
    let mut download = lab.download(V4, "large", "1M");
    for node in ["d1", "d1", "d2", "d1"] {
        lab.upgrade(node);
        for address in [V4, V6] {
            lab.assert_owner("d1", address);
        }
        until("the other node knows the owner", || {
            ["d1", "d2"].iter().all(|name| lab.address(name, V4).is_some_and(|shown| shown["owner"] == "d1"))
        });
    }
    assert!(download.wait().unwrap().success());
    assert!(fs::read(lab.dir().join("downloaded")).unwrap() == bytes, "other bytes");
    let notified = fs::read_to_string(lab.dir().join("notified")).unwrap();
    let mut notified: Vec<_> = notified.lines().collect();
    notified.sort_unstable();
    assert_eq!(notified, ["active 192.0.2.100 eth0", "active 2001:db8::100 eth0"]);
    assert!(!lab.log("d2").contains("role=\"active\""), "d2 had an address");
    // The new process has the whole candidate.
    let terms = dispatcher_tables(150, "eth0", "preempt = false\nlease = \"2s\"");
    lab.write_config("d1", &terms);
    let refused = lab.ctl("d1", &["upgrade"]);
    assert!(!refused.status.success());
    until("the log has the reason", || lab.log("d1").contains("lease of dispatcher.takeover cannot change"));
    lab.assert_owner("d1", V4);
    lab.kill("d1");
    lab.until_owner("d2");
    lab.upgrade("d2");
    lab.until_owner("d2");
    lab.end();
}

/// The program of `notify` runs at each change, in their order. The status and the metrics show the role.
#[test]
fn reported() {
    if !is_inside("orders::reported") {
        return;
    }
    let lab = Lab::new(&Plan { keys: "notify = \"notify\"", ..PLAN });
    let notified = |line: &str| {
        let lines = fs::read_to_string(lab.dir().join("notified")).unwrap_or_default();
        lines.lines().last() == Some(line)
    };
    for node in ["a1", "d1"] {
        lab.start_node(node);
    }
    lab.until_owner("d1");
    until("the program has run", || {
        fs::read_to_string(lab.dir().join("notified")).is_ok_and(|lines| lines.lines().count() == 2)
    });
    let status: Value = serde_json::from_slice(&lab.ctl("d1", &["--json", "status"]).stdout).unwrap();
    let shown = &status["addresses"][0];
    assert_eq!((&shown["role"], &shown["owner"]), (&Value::from("active"), &Value::from("d1")), "{status}");
    assert!(shown["lease_ms"].as_u64().is_some_and(|left| left <= 600), "{status}");
    let text = stdout(&lab.ctl("d1", &["status"]));
    assert!(text.contains("192.0.2.100/24") && text.contains("no other candidate had the address"), "{text}");
    let metrics =
        stdout(&lab.command("d1", "curl").args(["--silent", "http://127.0.0.1:9001/metrics"]).output().unwrap());
    for line in [
        "watari_address_role{address=\"192.0.2.100\",role=\"active\"} 1",
        "watari_address_role{address=\"192.0.2.100\",role=\"standby\"} 0",
        "watari_address_activations_total{address=\"2001:db8::100\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    lab.start_node("d2");
    until("d2 stands by", || {
        lab.address("d2", V4).is_some_and(|shown| shown["owner"] == "d1" && shown["ready"] == true)
    });
    // d1 learns a little later that d2 is ready.
    until("the switch is possible", || lab.ctl("d1", &["switch", V4, "d2"]).status.success());
    until("the program has run at both", || {
        notified("active 192.0.2.100 eth0") || notified("standby 192.0.2.100 eth0")
    });
    until("there are four lines", || {
        fs::read_to_string(lab.dir().join("notified")).is_ok_and(|lines| lines.lines().count() == 4)
    });
}
