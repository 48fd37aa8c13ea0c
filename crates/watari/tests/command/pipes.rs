//! Readers that close the output early, as `head` does.

use std::io;
use std::path::Path;
use std::process::{Output, Stdio};

use rustix::process::Signal;

use crate::support::{Running, agent, command, next_notification, service_manager, watari};

/// Runs a command whose output is closed at once.
fn unread(dir: &Path, arguments: &[&str]) -> Output {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    command(dir, arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap()
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let dir = agent();
    let _node = Running::node(dir.path(), "n1.toml");
    let cases: [&[&str]; 19] = [
        &["--help"],
        &["--version"],
        &["run", "--help"],
        &["ctl", "--help"],
        &["bench", "http", "--help"],
        &["watch", "live", "--help"],
        &["run", "--config", "n1.toml", "--check"],
        &["pki", "show"],
        &["pki", "show", "--json"],
        &["pki", "issue", "n9", "--role", "agent"],
        &["ctl", "--admin", "n1.sock", "status"],
        &["ctl", "--admin", "n1.sock", "--json", "status"],
        &["ctl", "--admin", "n1.sock", "nodes"],
        &["ctl", "--admin", "n1.sock", "connections"],
        &["ctl", "--admin", "n1.sock", "sessions"],
        &["ctl", "--admin", "n1.sock", "reload"],
        &["ctl", "--admin", "n1.sock", "keys", "rotate"],
        &["bench", "http", "--make-list", "--uri", "/a"],
        &["bench", "capacity", "--capacity", "1200", "--profile", "day.toml"],
    ];
    std::fs::write(dir.path().join("day.toml"), format!("requests_per_hour = [{}]\n", vec!["3600"; 24].join(", ")))
        .unwrap();
    for arguments in cases {
        let ended = unread(dir.path(), arguments);
        let error = String::from_utf8(ended.stderr).unwrap();
        assert_eq!((ended.status.code(), error.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn what_a_command_found_counts_without_a_reader() {
    let dir = tempfile::tempdir().unwrap();
    let unbound = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{unbound}/");
    for arguments in [&["bench", "http", &url, "-n", "3"][..], &["bench", "http", &url, "-n", "3", "--json"]] {
        assert_eq!(unread(dir.path(), arguments).status.code(), Some(1), "{arguments:?}");
    }
}

#[test]
fn errors_without_a_reader_are_no_panic() {
    let dir = agent();
    let cases: [(&[&str], i32); 5] = [
        (&["ctl", "--admin", "none", "status"], 1),
        (&["run", "--config", "none"], 2),
        (&["weather"], 2),
        (&["bench", "http", "--make-list", "--from-log", "list"], 0),
        (&["bench", "http", "http://127.0.0.1:9/", "-n", "1", "--expect", "failed=0"], 1),
    ];
    std::fs::write(dir.path().join("list"), "no line of a log\n").unwrap();
    for (arguments, status) in cases {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let ended = command(dir.path(), arguments).stdout(Stdio::null()).stderr(writer).status().unwrap();
        assert!(ended.code().is_some_and(|code| code == status || code == 1 || code == 2), "{arguments:?}: {ended:?}");
    }
}

#[test]
fn a_node_whose_log_has_no_reader_goes_on() {
    let dir = agent();
    let (socket, manager) = service_manager(dir.path(), "n1");
    let (reader, writer) = io::pipe().unwrap();
    let child = command(dir.path(), &["run", "--with-parent", "--config", "n1.toml"])
        .env("NOTIFY_SOCKET", socket)
        .stderr(writer)
        .spawn()
        .unwrap();
    let mut node = Running(child);
    assert_eq!(next_notification(&manager), "READY=1");
    drop(reader);
    for _ in 0..3 {
        // Each reload is logged.
        watari(dir.path(), &["ctl", "--admin", "n1.sock", "reload"]).done();
    }
    node.signal(Signal::TERM);
    assert_eq!(node.wait().code(), Some(0));
}
