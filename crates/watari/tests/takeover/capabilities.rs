//! The capabilities of nodes that root has started.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use watari_test_origins::namespace::is_inside;

use crate::lab::{HOST, Lab, PLAN, V4, dispatcher_tables, stdout, until};

/// Their numbers (linux/capability.h).
const DAC_OVERRIDE: u64 = 1 << 1;
const NET_BIND_SERVICE: u64 = 1 << 10;
const NET_ADMIN: u64 = 1 << 12;
const NET_RAW: u64 = 1 << 13;
const SYS_RESOURCE: u64 = 1 << 24;

const OF_AGENTS: u64 = NET_BIND_SERVICE | DAC_OVERRIDE;
const OF_CANDIDATES: u64 = OF_AGENTS | SYS_RESOURCE | NET_ADMIN | NET_RAW;

/// Root's nodes drop what they do not need. They still bind ports of root, read files of other owners, and start new
/// processes.
#[test]
fn a_node_of_root_keeps_what_it_needs() {
    if !is_inside("capabilities::a_node_of_root_keeps_what_it_needs") {
        return;
    }
    let lab = Lab::start(&PLAN);
    for (node, wanted) in [("d1", OF_CANDIDATES), ("d2", OF_CANDIDATES), ("a1", OF_AGENTS)] {
        assert_capabilities(&lab, node, wanted, 0);
    }
    // The file is as one of another owner to this user: only the capability reads it.
    fs::set_permissions(lab.dir().join("site.key"), Permissions::from_mode(0o000)).unwrap();
    reload(&lab, "a1");
    // A second privileged port.
    lab.write_config(
        "d1",
        &dispatcher_tables(150, "eth0", PLAN.keys).replacen("listen = [", "listen = [\"192.0.2.1:444\", ", 1),
    );
    reload(&lab, "d1");
    let output = lab
        .command("a1", "curl")
        .args(["--silent", "--cacert", "site.pem", "--connect-to", &format!("{HOST}:443:192.0.2.1:444")])
        .arg(format!("https://{HOST}/"))
        .output()
        .unwrap();
    assert_eq!(stdout(&output), "hello\n");
    for (node, wanted) in [("a1", OF_AGENTS), ("d1", OF_CANDIDATES)] {
        lab.upgrade(node);
        assert_capabilities(&lab, node, wanted, 0);
    }
    lab.until_owner("d1");
    lab.end();
}

/// logrotate has created the next access log for another user.
#[test]
fn a_node_of_root_opens_a_log_of_another_user() {
    if !is_inside("capabilities::a_node_of_root_opens_a_log_of_another_user") {
        return;
    }
    let lab = Lab::new(&PLAN);
    lab.write_config(
        "a1",
        "[agent]\nlegs = \"192.0.2.3:7101\"\n[[agent.certificate]]\nchain = \"site.pem\"\nkey = \"site.key\"\n\
         default = true\n[agent.proxy]\norigins = [\"http://192.0.2.9:80\"]\n\
         access_log = { file = \"access.log\", format = \"json\" }\n",
    );
    lab.start_node("a1");
    let log = lab.dir().join("access.log");
    until("the log is there", || log.exists() && lab.log("a1").contains("ready"));
    fs::rename(&log, lab.dir().join("access.log.1")).unwrap();
    fs::write(&log, "").unwrap();
    fs::set_permissions(&log, Permissions::from_mode(0o000)).unwrap();
    lab.signal("a1", Signal::USR1);
    until("the log is opened again", || lab.log("a1").contains("log files are opened again"));
}

/// A node that got capabilities as from systemd's `AmbientCapabilities=`, without being root.
#[test]
fn ambient_capabilities_are_kept_if_they_are_needed() {
    if !is_inside("capabilities::ambient_capabilities_are_kept_if_they_are_needed") {
        return;
    }
    let lab = Lab::new(&PLAN);
    let given = "-all,+net_admin,+net_bind_service,+net_raw,+sys_time";
    // Root without its privileges: programs that it runs get nothing but ambient capabilities.
    let as_user = ["setpriv", "--securebits", "+noroot,+noroot_locked", "--inh-caps", given, "--ambient-caps", given];
    for node in ["a1", "d1"] {
        lab.start_node_by(node, &as_user);
    }
    lab.until_owner("d1");
    for (node, wanted) in [("a1", NET_BIND_SERVICE), ("d1", NET_BIND_SERVICE | NET_ADMIN | NET_RAW)] {
        assert_capabilities(&lab, node, wanted, wanted);
        lab.upgrade(node);
        assert_capabilities(&lab, node, wanted, wanted);
    }
    lab.until_owner("d1");
    assert!(lab.request(V4));
}

fn reload(lab: &Lab, node: &str) {
    let output = lab.ctl(node, &["reload"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Checks all threads of a node.
fn assert_capabilities(lab: &Lab, node: &str, wanted: u64, ambient: u64) {
    let threads = fs::read_dir(format!("/proc/{}/task", lab.pid(node).unwrap().as_raw_nonzero())).unwrap();
    let mut count = 0;
    for thread in threads {
        let Ok(status) = fs::read_to_string(thread.unwrap().path().join("status")) else { continue };
        let of = |set: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(set)).unwrap();
            u64::from_str_radix(value.trim(), 16).unwrap()
        };
        let sets = ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"].map(of);
        assert_eq!(sets, [wanted, wanted, ambient, ambient], "{node}: {status}");
        count += 1;
    }
    assert!(count > 1, "{node} has {count} threads");
}
