//! `watari run`

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::tempdir;

use crate::support::{Running, agent, command, next_notification, service_manager, watari};

#[test]
fn a_good_configuration_passes_the_check() {
    let dir = agent();
    let checked = watari(dir.path(), &["run", "--config", "n1.toml", "--check"]).done();
    assert_eq!(checked, "n1.toml is valid: node n1, agent; peers 0, certificates 0\n");
    let checked = watari(dir.path(), &["run", "--config", "n1.toml", "--check", "--json"]).done();
    let expected =
        serde_json::json!({"config": "n1.toml", "node": "n1", "roles": ["agent"], "peers": 0, "certificates": 0});
    assert_eq!(serde_json::from_str::<Value>(&checked).unwrap(), expected);
    assert!(!dir.path().join("n1.sock").exists());
}

#[test]
fn a_wrong_configuration_is_refused_with_file_and_line() {
    let dir = agent();
    let path = dir.path().join("n1.toml");
    let good = fs::read_to_string(&path).unwrap();
    fs::write(&path, good.replace("root =", "rot =")).unwrap();
    let refused = watari(dir.path(), &["run", "--config", "n1.toml"]).refused(2);
    assert_eq!(refused, "watari: n1.toml:10: [agent.files] has no key \"rot\": did you mean \"root\"?");
    fs::write(&path, good.replace("legs", "lgs").replace("[agent.files]", "[agent.fils]")).unwrap();
    let ended = watari(dir.path(), &["run", "--config", "n1.toml", "--check"]);
    assert_eq!(ended.status, Some(2));
    let expected = "watari: n1.toml:8: [agent] has no key \"lgs\": did you mean \"legs\"?\n\
                    watari: n1.toml:9: [agent] has no key \"fils\": did you mean \"files\"?\n";
    assert_eq!(ended.error, expected, "all mistakes are shown");
    fs::write(&path, good.replace("n1\"", "n2\"")).unwrap();
    let refused = watari(dir.path(), &["run", "--config", "n1.toml", "--check"]).refused(2);
    assert_eq!(
        refused,
        "watari: n1.toml:3: pki/n2.pem: No such file or directory (os error 2) (`watari pki init` makes an authority, and `watari pki issue` a node's certificate and key)"
    );
    let refused = watari(dir.path(), &["run", "--config", "gone.toml"]).refused(2);
    assert_eq!(refused, "watari: gone.toml: No such file or directory (os error 2)");
}

#[test]
fn a_missing_directory_of_the_admin_socket_is_named_with_its_key() {
    let dir = agent();
    let path = dir.path().join("n1.toml");
    let config = fs::read_to_string(&path).unwrap().replace("n1.sock", "gone/n1.sock");
    fs::write(&path, config).unwrap();
    let expected = "watari: n1.toml:5: cannot make the admin socket gone/n1.sock: there is no directory gone; make it \
                    (systemd: RuntimeDirectory=watari), or set admin in [node]";
    for arguments in [&["run", "--config", "n1.toml", "--check"][..], &["run", "--config", "n1.toml"]] {
        assert_eq!(watari(dir.path(), arguments).refused(2), expected);
    }
}

#[test]
fn an_address_in_use_is_named() {
    let dir = agent();
    let config = fs::read_to_string(dir.path().join("n1.toml")).unwrap();
    let address = config.lines().find_map(|line| line.strip_prefix("legs = ")).unwrap().trim_matches('"').to_owned();
    let _taken = TcpListener::bind(&address).unwrap();
    let refused = watari(dir.path(), &["run", "--config", "n1.toml"]).refused(1);
    assert_eq!(refused, format!("watari: cannot listen on {address} for legs: Address already in use (os error 98)"));
    assert!(!dir.path().join("n1.sock").exists());
}

#[test]
fn a_node_is_ready_answers_and_ends() {
    let dir = agent();
    for signal in [Signal::TERM, Signal::INT] {
        let mut node = Running::node(dir.path(), "n1.toml");
        let status = watari(dir.path(), &["ctl", "--admin", "n1.sock", "--json", "status"]).done();
        let status: Value = serde_json::from_str(&status).unwrap();
        assert_eq!(status["node"], "n1");
        assert_eq!(status["roles"], serde_json::json!(["agent"]));
        assert_eq!(status["pid"], node.0.id());
        assert_eq!((&status["connections"], &status["peers"]), (&0.into(), &0.into()));
        node.signal(signal);
        assert_eq!(node.0.wait().unwrap().code(), Some(0));
        assert!(!dir.path().join("n1.sock").exists());
        fs::remove_file(dir.path().join("n1.toml.notify")).unwrap();
    }
}

#[test]
fn a_second_node_does_not_take_the_first_ones_place() {
    let dir = agent();
    let _node = Running::node(dir.path(), "n1.toml");
    let refused = watari(dir.path(), &["run", "--config", "n1.toml"]).refused(1);
    assert!(refused.contains("Address already in use"), "{refused}");
    watari(dir.path(), &["ctl", "--admin", "n1.sock", "status"]).done();
}

#[test]
fn log_lines_are_json_where_that_is_asked_for() {
    let dir = agent();
    let path = dir.path().join("n1.toml");
    let config = fs::read_to_string(&path).unwrap() + "[log]\nformat = \"json\"\n";
    fs::write(&path, config).unwrap();
    let (socket, manager) = service_manager(dir.path(), "n1");
    let child = command(dir.path(), &["run", "--with-parent", "--config", "n1.toml"])
        .env("NOTIFY_SOCKET", socket)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut node = Running(child);
    assert_eq!(next_notification(&manager), "READY=1");
    node.signal(Signal::TERM);
    assert_eq!(next_notification(&manager), "STOPPING=1");
    let mut log = String::new();
    std::io::Read::read_to_string(&mut node.0.stderr.take().unwrap(), &mut log).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ready = lines.iter().filter(|line| line["fields"]["message"] == "ready").count();
    assert_eq!(ready, 1, "{log}");
}

/// A node that reads its configuration has no runtime yet.
#[test]
fn signals_do_not_end_a_node_that_starts() {
    let dir = tempdir().unwrap();
    let fifo = dir.path().join("node.toml");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for signal in [Signal::USR1, Signal::HUP, Signal::USR2] {
        let mut node = Running(command(dir.path(), &["run", "--config", "node.toml"]).spawn().unwrap());
        // Waits until the node opens the file.
        let mut file = OpenOptions::new().write(true).open(&fifo).unwrap();
        node.signal(signal);
        file.write_all(b"[none]\n").unwrap();
        drop(file);
        assert_eq!(node.wait().code(), Some(2), "{signal:?}: the configuration is refused");
    }
}
