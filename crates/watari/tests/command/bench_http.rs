//! `watari bench http` from its users' view: refusals, reports and endings.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::tempdir;

use super::support::{Running, command, watari};

#[test]
fn an_unreachable_server_is_reported_and_fails() {
    let dir = tempdir().unwrap();
    // Bound but not listening: connections are refused, and no other process takes the port.
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ended = watari(dir.path(), &["bench", "http", &format!("http://{unused}/"), "-n", "20", "--json"]);
    assert_eq!(ended.status, Some(1), "{}", ended.error);
    assert_eq!(
        ended.error,
        "watari: no request succeeded: the summary has their statuses and endings (--ok-status sets the statuses that are success)\n"
    );
    let run: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((&run["requests"], &run["endings"]["REFUSED"]), (&20.into(), &20.into()));
    assert_eq!(run["endings_at"][0]["phase"], "connect");
}

#[test]
fn wrong_usage_says_what_and_where() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("list"), "- /a 0\n127.0.0.1 /b maybe\n").unwrap();
    let refused = |arguments: &[&str]| watari(dir.path(), &[&["bench", "http"], arguments].concat()).refused(2);
    let list = refused(&["http://127.0.0.1/", "--list", "list"]);
    assert!(list.starts_with("watari: list:2: "), "{list}");
    assert!(refused(&["http://127.0.0.1/", "--list", "nowhere"]).contains("nowhere"));
    assert!(refused(&["ftp://127.0.0.1/"]).contains("names no http or https server"));
    assert!(refused(&["http://nowhere.invalid/"]).contains("nowhere.invalid"));
    let version = ["https://127.0.0.1/", "--tls", "1.2", "--suite", "TLS_AES_128_GCM_SHA256"];
    assert!(refused(&version).contains("no handshake is possible"));
}

#[test]
fn too_few_files_are_reported_before_anything_is_sent() {
    let dir = tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let output = Command::new("prlimit")
        .args(["--nofile=64:64", env!("CARGO_BIN_EXE_watari"), "bench", "http", "-n", "1000", "-c", "100"])
        .args([&format!("http://{}/", listener.local_addr().unwrap()), "--processes", "1"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("64"), "{error}");
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn conditions_that_are_not_met_make_it_fail() {
    let dir = tempdir().unwrap();
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{unused}/");
    let expect = |condition| watari(dir.path(), &["bench", "http", &url, "-n", "3", "--expect", condition]);
    let ended = expect("endings.REFUSED=0");
    assert_eq!(ended.status, Some(1));
    assert!(ended.error.ends_with("watari: a condition is not met\n"), "{}", ended.error);
    assert!(ended.error.contains("endings.REFUSED=0"), "{}", ended.error);
    assert_eq!(expect("p99<").status, Some(2));
}

#[test]
fn a_run_that_is_interrupted_is_summed_up() {
    let dir = tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let mut run = Running(
        command(dir.path(), &["bench", "http", &url, "-n", "100", "-c", "3", "--timeout", "10m", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let mut out = run.0.stdout.take().unwrap();
    // Three requests are in progress without a response.
    let mut waiting: Vec<_> = (0..3).map(|_| listener.accept().unwrap().0).collect();
    for client in &mut waiting {
        assert!(client.read(&mut [0; 1000]).unwrap() > 0);
    }
    run.signal(Signal::INT);
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    run.wait();
    let summary: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&summary["requests"], &summary["unfinished"]), (&0.into(), &3.into()));
}
