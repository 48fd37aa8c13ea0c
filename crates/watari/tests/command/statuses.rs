//! Statuses in the figures of `watari bench`.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use serde_json::{Value, json};
use tempfile::tempdir;

use super::support::{Ended, watari};

/// A server that responds to `/N` with the status N, for as long as the test runs.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || converse(&stream.unwrap()));
        }
    });
    address
}

/// Responds until the client closes the connection.
fn converse(mut stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    loop {
        let request = lines.next()?.ok()?;
        while !lines.next()?.ok()?.is_empty() {}
        let status = request.split(['/', ' ']).nth(2)?;
        let answer = format!("HTTP/1.1 {status} Whatever\r\nContent-Length: 2\r\n\r\nok");
        stream.write_all(answer.as_bytes()).ok()?;
    }
}

fn bench(arguments: &[&str]) -> Ended {
    watari(tempdir().unwrap().path(), &[&["bench"], arguments].concat())
}

fn run(arguments: &[&str]) -> (Option<i32>, Value) {
    let ended = bench(&[arguments, &["--json"]].concat());
    (ended.status, serde_json::from_str(&ended.out).unwrap_or_else(|_| panic!("{}", ended.error)))
}

#[test]
fn a_status_of_400_or_more_is_a_failure() {
    let url = |path: &str| format!("http://{}{path}", server());
    for status in ["404", "400", "500"] {
        let (code, figures) = run(&["http", &url(&format!("/{status}")), "-n", "20", "-c", "2"]);
        assert_eq!(code, Some(1), "no request succeeded");
        assert_eq!((&figures["endings"]["NORMAL"], &figures["status"][status]), (&json!(20), &json!(20)));
        let failures = (&figures["failures"], &figures["failed"], &figures["error_statuses"]);
        assert_eq!(failures, (&json!(1.0), &json!(20), &json!(20)));
        assert_eq!(figures["requests_per_s"], json!(0.0));
    }
    let text = bench(&["http", &url("/404"), "-n", "20"]);
    let lines: Vec<_> = text.out.lines().take(3).collect();
    assert!(lines[0].starts_with("20 requests in ") && lines[0].contains(": 0.0/s succeeded"), "{lines:?}");
    assert_eq!(lines[1..], ["status: 404 20", "failed: 20 (100.000%): status 20"]);
    assert!(text.error.starts_with("watari: no request succeeded: "), "{}", text.error);
    for status in ["200", "204", "302"] {
        let (code, figures) = run(&["http", &url(&format!("/{status}")), "-n", "5"]);
        assert_eq!((code, &figures["failed"]), (Some(0), &json!(0)), "{status}");
    }
}

#[test]
fn what_is_success_can_be_said() {
    let server = server();
    let url = format!("http://{server}/404");
    let (code, figures) = run(&["http", &url, "-n", "5", "--ok-status", "200-399,404"]);
    assert_eq!((code, &figures["failed"], &figures["status"]), (Some(0), &json!(0), &json!({"404": 5})));
    let (code, figures) = run(&["http", &format!("http://{server}/200"), "-n", "5", "--ok-status", "404"]);
    assert_eq!((code, &figures["failed"]), (Some(1), &json!(5)));
    let wrong = bench(&["http", &url, "--ok-status", "4xx"]);
    assert_eq!(wrong.status, Some(2));
    assert!(wrong.error.contains("is not a list of statuses"), "{}", wrong.error);
    // A line that expects a status defines success by itself.
    let dir = tempdir().unwrap();
    std::fs::write(dir.path().join("list"), "- /404 0 status=404\n- /200 0\n").unwrap();
    let ended =
        watari(dir.path(), &["bench", "http", &format!("http://{server}/"), "--list", "list", "-n", "4", "--json"]);
    let figures: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((ended.status, &figures["failed"]), (Some(0), &json!(0)), "{figures}");
}

#[test]
fn conditions_and_processes_count_statuses_too() {
    let server = server();
    let dir = tempdir().unwrap();
    std::fs::write(dir.path().join("list"), "- /404 0\n- /200 0\n- /200 0\n- /200 0\n").unwrap();
    let url = format!("http://{server}/");
    let some = ["bench", "http", &url, "--list", "list", "-n", "40", "--json", "--expect", "failures<1%"];
    for more in [&[][..], &["--processes", "2"]] {
        let ended = watari(dir.path(), &[&some[..], more].concat());
        let figures: Value = serde_json::from_str(&ended.out).unwrap_or_else(|_| panic!("{}", ended.error));
        assert_eq!((&figures["failed"], &figures["failures"]), (&json!(10), &json!(0.25)), "{figures}");
        assert_eq!(ended.status, Some(1));
        assert!(ended.error.contains("failures<1%"), "{}", ended.error);
    }
    let (code, figures) =
        run(&["users", &format!("http://{server}/404"), "-r", "20", "-d", "1s", "--requests", "1", "--waits", "1s"]);
    assert_eq!((code, &figures["failures"]), (Some(1), &json!(1.0)));
}

#[test]
fn http2_without_a_server_for_it_says_why() {
    let url = format!("http://{}/200", server());
    let (code, figures) = run(&["http", &url, "-n", "2", "--http2"]);
    assert_eq!(code, Some(1));
    let causes: Vec<_> = figures["causes"].as_object().unwrap().keys().collect();
    assert!(causes.iter().any(|cause| cause.starts_with("HTTP/2: the server ")), "{causes:?}");
}
