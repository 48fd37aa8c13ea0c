//! The disk for the state of a node is full: its sessions, its ticket keys, its access log. The node serves on.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use serde_json::Value;
use watari_test_origins::namespace::is_inside;

use crate::lab::{Lab, PLAN, Plan, V4, succeed, until};
use crate::pair::Pair;
use crate::standby::until_standby;
use crate::visitor::{Kind, Seen, Visitor};

const SESSIONS: &str = "mode = \"push\"\ndatabase = \"NAME.state/sessions.redb\"\nkeys_file = \"NAME.state/keys\"";
const FILES: &str = "[agent.files]\nroot = \"www\"\n";
const ORIGIN: &str = "192.0.2.9:8080";
const KEYS: [&str; 3] = ["agent.sessions.database", "agent.sessions.keys_file", "agent.proxy.access_log"];

/// The disk of the active node is full for a while.
#[test]
fn a_node_serves_while_its_disk_is_full() {
    if !is_inside("full_disk::a_node_serves_while_its_disk_is_full") {
        return;
    }
    let (mut lab, disk) = prepare();
    lab.start_nodes();
    let clients: Vec<_> = Kind::ALL.into_iter().map(|kind| Visitor::new(&lab, kind)).collect();
    assert_visits(&clients, Seen::Full);
    let keys = disk.read("keys");
    disk.fill();
    assert!(lab.ctl("d1", &["keys", "rotate"]).status.success());
    until("the log names all keys", || {
        assert_visits(&[Visitor::new(&lab, Kind::Ids)], Seen::Full);
        let log = lab.log("d1");
        KEYS.iter().all(|key| log.contains(&format!("({key})")))
    });
    assert_visits(&clients, Seen::Resumed);
    assert_eq!(disk.read("keys"), keys, "the previous keys");
    assert!(!disk.path.join("keys.new").exists());
    until("the access log has only whole lines", || has_whole_lines(&disk));
    disk.free();
    let late = Visitor::new(&lab, Kind::Ids);
    assert_visits([&late], Seen::Full);
    until("the node writes again", || {
        assert_visits(&[Visitor::new(&lab, Kind::Ids)], Seen::Full);
        lab.log("d1").contains("sessions are stored in the database again") && disk.read("keys") != keys
    });
    until("the access log has only whole lines", || has_whole_lines(&disk));
    // Nothing is damaged: the node starts again, and resumes what it has established.
    lab.kill("d1");
    lab.until_owner("d2");
    assert_visits(&clients, Seen::Resumed);
    lab.start_node("d1");
    until_standby(&lab, "d1", "d2");
    until("the switch is possible", || lab.ctl("d2", &["switch", "d1"]).status.success());
    lab.until_owner("d1");
    assert_visits(&clients, Seen::Resumed);
    lab.end();
}

/// The disk is full when the node starts.
#[test]
fn a_node_starts_with_a_full_disk() {
    if !is_inside("full_disk::a_node_starts_with_a_full_disk") {
        return;
    }
    let (mut lab, disk) = prepare();
    disk.fill();
    lab.start_nodes();
    let log = lab.log("d1");
    assert!(log.contains("No space left on device") && log.contains("(agent.sessions.database)"), "{log}");
    let clients: Vec<_> = Kind::ALL.into_iter().map(|kind| Visitor::new(&lab, kind)).collect();
    assert_visits(&clients, Seen::Full);
    assert_visits(&clients, Seen::Resumed);
    // A part of a database would be refused at the next start.
    until("nothing is left of the attempt", || disk.read("sessions.redb").is_empty());
    disk.free();
    until("the database is open", || {
        let shown: Value = serde_json::from_slice(&lab.ctl("d1", &["--json", "sessions"]).stdout).unwrap();
        assert_visits(&[Visitor::new(&lab, Kind::Ids)], Seen::Full);
        shown["stored"]["sessions"].as_u64().is_some_and(|stored| stored > 0)
    });
    lab.end();
}

/// A pair whose nodes have an origin, and a disk for the state of d1. No node runs yet.
fn prepare() -> (Lab, Disk) {
    let lab = Lab::new(&Plan { pair: Some(Pair::new(SESSIONS)), ..PLAN });
    fs::create_dir(lab.dir().join("d2.state")).unwrap();
    let disk = Disk::mount(lab.dir().join("d1.state"));
    for node in ["d1", "d2"] {
        let config = fs::read_to_string(lab.config(node)).unwrap();
        let log = format!("access_log = {{ file = \"{node}.state/access.log\", format = \"json\" }}");
        let proxy = format!("[agent.proxy]\norigins = [\"http://{ORIGIN}\"]\n{log}\n");
        assert!(config.contains(FILES));
        fs::write(lab.config(node), config.replace(FILES, &proxy)).unwrap();
    }
    let listener = TcpListener::bind(ORIGIN).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n");
            });
        }
    });
    (lab, disk)
}

fn assert_visits<'a>(visitors: impl IntoIterator<Item = &'a Visitor>, wanted: Seen) {
    for visitor in visitors {
        assert_eq!(visitor.visit().unwrap(), wanted, "{V4}");
    }
}

/// Whether the log ends with a whole line, and each line is one.
fn has_whole_lines(disk: &Disk) -> bool {
    let log = String::from_utf8(disk.read("access.log")).unwrap();
    log.ends_with('\n') && log.lines().all(|line| serde_json::from_str::<Value>(line).is_ok())
}

/// A small file system in memory.
struct Disk {
    path: PathBuf,
}

impl Disk {
    fn mount(path: PathBuf) -> Self {
        fs::create_dir(&path).unwrap();
        succeed(Command::new("mount").args(["-t", "tmpfs", "-o", "size=16m", "none"]).arg(&path));
        Self { path }
    }

    fn fill(&self) {
        let mut ballast = File::create(self.ballast()).unwrap();
        let error = loop {
            if let Err(error) = ballast.write_all(&[0; 4096]) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    }

    fn free(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }

    fn read(&self, name: impl AsRef<Path>) -> Vec<u8> {
        fs::read(self.path.join(name)).unwrap()
    }
}
