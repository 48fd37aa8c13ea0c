//! `watari demo`

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use serde_json::Value;

use crate::support::{Demo, command, wait, watari};

#[test]
fn the_scenario_passes_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let output = command(dir.path(), &["demo", "--once"]).env("TMPDIR", dir.path()).output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), error.as_str()), (Some(0), ""), "{out}");
    assert!(out.ends_with("\n9 passed, 0 failed\n"), "{out}");
    let connections = out.lines().filter(|line| line.starts_with("TLS 1.")).map(|line| {
        let cells: Vec<_> = line.split_whitespace().collect();
        assert_eq!(cells.last(), Some(&"0"), "{out}");
        cells[3].parse::<usize>().unwrap()
    });
    assert_eq!(connections.collect::<Vec<_>>(), [100, 100, 100, 100]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn it_stays_up_until_it_is_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(dir.path());
    let curl = demo.guide.iter().find(|line| line.trim_start().starts_with("curl ")).unwrap();
    let page = std::process::Command::new("sh").args(["-c", &format!("{curl} -sS")]).output().unwrap();
    assert!(String::from_utf8_lossy(&page.stdout).contains("<title>Watari</title>"), "{page:?}");
    demo.process.signal(Signal::INT);
    assert_eq!(demo.process.0.wait().unwrap().code(), Some(0));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn its_processes_end_with_it_even_when_it_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(dir.path());
    let nodes = ["d1", "a1", "a2", "a3"].map(|node| process(&demo.files(), node));
    demo.process.0.kill().unwrap();
    demo.process.0.wait().unwrap();
    for node in nodes {
        wait(&node);
    }
}

/// The process of a node.
fn process(place: &Path, node: &str) -> OwnedFd {
    let socket = place.join(format!("{node}.sock"));
    let status = watari(place, &["ctl", "--admin", socket.to_str().unwrap(), "--json", "status"]).done();
    let status: Value = serde_json::from_str(&status).unwrap();
    let pid = Pid::from_raw(i32::try_from(status["pid"].as_i64().unwrap()).unwrap()).unwrap();
    pidfd_open(pid, PidfdFlags::NONBLOCK).unwrap()
}
