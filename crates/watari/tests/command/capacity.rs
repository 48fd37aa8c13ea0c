//! `watari bench capacity`.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::tempdir;

use super::support::{Ended, Running, command, watari};

/// A server that serves six connections at a time, and closes further ones at once. Its thread ends with the process.
fn server_for_six() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let connections = Arc::clone(&connections);
            thread::spawn(move || {
                if connections.fetch_add(1, Ordering::SeqCst) < 6 {
                    // The connection ends with an error, or when the client closes it.
                    let _ = answer(&stream);
                }
                connections.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    address
}

fn answer(mut stream: &TcpStream) -> io::Result<()> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    while lines.by_ref().take_while(|line| !line.is_empty()).count() > 0 {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")?;
        // Without it, clients in a closed loop would use a whole CPU.
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn capacity(dir: &Path, arguments: &[&str]) -> Ended {
    watari(dir, &[&["bench", "capacity"], arguments].concat())
}

fn json(dir: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&capacity(dir, &[arguments, &["--json"]].concat()).done()).unwrap()
}

const LOG: &str = "\
::1 - - [22/Nov/2026:14:00:00 +0900] \"GET / HTTP/1.1\" 200 600\n\
::1 - - [22/Nov/2026:14:00:00 +0900] \"GET / HTTP/1.1\" 200 600\n\
::1 - - [22/Nov/2026:14:00:09 +0900] \"GET / HTTP/1.1\" 200 600\n";

#[test]
fn the_load_that_a_server_bears_is_found() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("access.log"), LOG).unwrap();
    let url = format!("http://{}/", server_for_six());
    let by_connections = [
        "--by",
        "connections",
        "--from",
        "2",
        "--to",
        "16",
        "--warmup",
        "300ms",
        "-d",
        "200ms",
        "--expect",
        "failures=0",
    ];
    let files = ["--html", "curve.html", "--log", "access.log"];
    let told = json(dir.path(), &[&[url.as_str()], &by_connections[..], &files].concat());

    let search = &told["search"];
    assert_eq!((&search["unit"], &search["expect"][0]), (&"connections".into(), &"failures=0".into()));
    let finding = &search["finding"];
    assert_eq!((&finding["level"], &finding["missed"]), (&6.into(), &7.into()), "{search}");
    assert_eq!((&finding["ended"], &finding["confirmed"]), (&"found".into(), &true.into()));
    let point = search["points"].as_array().unwrap().iter().find(|point| point["outcome"] == "missed").unwrap();
    assert!(point["missed"][0].as_str().unwrap().starts_with("not met: failures=0 ("), "{point}");
    let throughput_per_s = search["throughput_per_s"].as_f64().unwrap();
    assert!(throughput_per_s > 0.0);

    // The prediction uses seven tenths of the measured capacity.
    let usable_per_s = told["prediction"]["usable_per_s"].as_f64().unwrap();
    assert!((usable_per_s - 0.7 * throughput_per_s).abs() < 1e-6, "{told}");
    assert_eq!(told["prediction"]["peak_per_s"], 2.0);
    let page = fs::read_to_string(dir.path().join("curve.html")).unwrap();
    assert!(page.contains(">6 connections meet the conditions; 7 do not.") && page.contains("</svg>"), "{page}");
}

/// A server with a capacity of one request at a time. Two at a time leave it with a backlog, and then it answers the
/// next four single requests late.
fn server_with_backlog() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (in_progress, backlog) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (in_progress, backlog) = (Arc::clone(&in_progress), Arc::clone(&backlog));
            // The connection ends with an error, or when the client closes it.
            thread::spawn(move || answer_late(&stream, &in_progress, &backlog));
        }
    });
    address
}

fn answer_late(mut stream: &TcpStream, in_progress: &AtomicUsize, backlog: &AtomicUsize) -> io::Result<()> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    while lines.by_ref().take_while(|line| !line.is_empty()).count() > 0 {
        let status = if in_progress.fetch_add(1, Ordering::SeqCst) > 0 {
            backlog.store(4, Ordering::SeqCst);
            503
        } else {
            let late = backlog.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
            thread::sleep(Duration::from_millis(if late { 400 } else { 2 }));
            200
        };
        in_progress.fetch_sub(1, Ordering::SeqCst);
        stream.write_all(format!("HTTP/1.1 {status} .\r\ncontent-length: 2\r\n\r\nok").as_bytes())?;
    }
    Ok(())
}

#[test]
fn what_a_level_leaves_behind_is_not_measured_with_the_next() {
    let dir = tempdir().unwrap();
    let url = format!("http://{}/", server_with_backlog());
    let levels = ["--by", "connections", "--from", "2", "--to", "2", "--repeats", "1", "--warmup", "10ms", "-d", "1s"];
    let conditions = ["--expect", "p99<300ms", "--expect", "status.503=0"];
    let search = [&[url.as_str()], &levels[..], &conditions[..]].concat();
    let told = json(dir.path(), &search);
    let (finding, points) = (&told["search"]["finding"], &told["search"]["points"]);
    assert_eq!((&finding["level"], &finding["missed"]), (&1.into(), &2.into()), "{told}");
    assert_eq!((&points[0]["idle"], &points[1]["idle"]), (&true.into(), &true.into()), "{points}");

    // Shorter than the server needs to become idle.
    let ended = capacity(dir.path(), &[&search[..], &["--settle", "50ms"]].concat());
    assert!(ended.out.contains("\n     the server was not idle before\n"), "{}", ended.out);
    assert!(ended.out.contains(" Before 1 the server was not idle, "), "{}", ended.out);
}

#[test]
fn processes_search_together() {
    let dir = tempdir().unwrap();
    let url = format!("http://{}/", server_for_six());
    let searched = |more: &[&str]| {
        let brief = ["--by", "connections", "--from", "3", "--to", "16", "--warmup", "300ms", "-d", "200ms"];
        capacity(dir.path(), &[&[url.as_str(), "--expect", "failures=0", "--json"], &brief[..], more].concat())
    };
    let told: Value = serde_json::from_str(&searched(&["--processes", "3"]).done()).unwrap();
    let finding = &told["search"]["finding"];
    assert_eq!((&finding["level"], &finding["missed"]), (&6.into(), &7.into()), "{told}");
    let too_few = searched(&["--processes", "4"]).refused(2);
    assert_eq!(too_few, "watari: 3 connections cannot be shared out among 4 workers or processes");
    // All workers have to be measured over the same time.
    let staggered = searched(&["--stagger", "1s", "--workers", "127.0.0.1:9", "--node", "lead"]);
    assert_eq!(staggered.status, Some(2));
    assert!(staggered.error.starts_with("error: unexpected argument '--stagger' found"), "{}", staggered.error);
}

#[test]
fn servers_are_counted_without_a_search() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("access.log"), LOG.to_owned() + "bad\n").unwrap();
    let of_log = |more: &[&str]| capacity(dir.path(), &[&["--capacity", "1", "--log", "access.log"], more].concat());
    let ended = of_log(&["--growth", "3", "--headroom", "0.5", "--redundancy", "2"]);
    assert_eq!(ended.status, Some(0), "{}", ended.error);
    // Two requests in the busiest second, times three, at a capacity of half a request each.
    assert!(ended.out.contains("\nServers: 14\n  12 for 6.0 requests/s at 0.5 each, 2 spare\n"), "{}", ended.out);
    assert!(ended.out.contains("3, and 1 bad lines skipped"), "{}", ended.out);
    assert!(ended.error.starts_with("skipped: access.log:4: "), "{}", ended.error);

    let hours = format!("requests_per_hour = [{}36_000_000]\n", "0, ".repeat(23));
    fs::write(dir.path().join("day.toml"), hours).unwrap();
    let told =
        json(dir.path(), &["--capacity", "100", "--profile", "day.toml", "--peak", "hour", "--handshake-share", "0.1"]);
    // 10,000 requests per second on average, and hardly more by chance: 142.9 servers at 70 each.
    assert_eq!((&told["search"], &told["prediction"]["serving"]), (&Value::Null, &143.into()), "{told}");
    let handshakes_per_s = told["prediction"]["handshakes_per_s"].as_f64().unwrap();
    assert!((handshakes_per_s - 1000.0).abs() < 1.0, "{told}");
}

#[test]
fn what_cannot_be_is_refused_before_it_takes_long() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("bad.log"), "x\n").unwrap();
    fs::write(dir.path().join("bad.toml"), "requests_per_hour = [1]\n").unwrap();
    let refused = |arguments: &[&str]| capacity(dir.path(), arguments).refused(2);
    let searched = |more: &[&str]| refused(&[&["http://127.0.0.1:9/", "--expect", "p99<1s"], more].concat());
    assert_eq!(
        refused(&["http://127.0.0.1:9/"]),
        "watari: --expect is needed: it states what the server must meet under a load"
    );
    assert_eq!(
        searched(&["--repeats", "2"]),
        "watari: the number of repeats must be odd, so that there is a majority; 2 is even"
    );
    assert_eq!(searched(&["--to", "100000000"]), "watari: a rate is from 0.001 to 10000000 a second");
    assert_eq!(searched(&["--headroom", "1"]), "watari: headroom is a share from 0 to under 1, such as 0.3, not 1");
    assert!(searched(&["--log", "bad.log"]).starts_with("watari: no usable line: bad.log:1: "));
    assert!(searched(&["--html", "none/x"]).starts_with("watari: cannot write none/x: "));
    let given = |more: &[&str]| refused(&[&["--capacity", "1"], more].concat());
    assert_eq!(given(&[]), "watari: --capacity needs a --log or a --profile to predict from");
    assert!(given(&["--profile", "bad.toml"]).starts_with("watari: bad.toml:1: 24 numbers are needed"));
    assert!(given(&["--log", "none"]).starts_with("watari: cannot read none: "));
}

#[test]
fn a_server_without_capacity_is_reported() {
    let dir = tempdir().unwrap();
    let url = format!("http://{}/", server_for_six());
    let brief =
        ["--from", "1", "--to", "2", "--repeats", "1", "--warmup", "10ms", "-d", "100ms", "--by", "connections"];
    let ended = capacity(dir.path(), &[&[url.as_str()], &brief[..], &["--expect", "p99<1us"]].concat());
    assert_eq!((ended.status, ended.error.as_str()), (Some(1), "watari: a condition is not met\n"), "{}", ended.out);
    assert!(ended.out.ends_with("\nNot even 1 connections meet the conditions.\n"), "{}", ended.out);
    // No process listens there any more.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{closed}/");
    let of_nobody = |more: &[&str]| {
        let ended = capacity(dir.path(), &[&[url.as_str(), "--expect", "p99<1s"], &brief[..], more].concat());
        assert_eq!(ended.status, Some(1), "{}", ended.out);
        assert_eq!(
            ended.error,
            "watari: no request succeeded: the summary has their statuses and endings (--ok-status sets the statuses that are success)\n"
        );
        ended.out
    };
    let sentence = "3 single requests: REFUSED (connect, server)\n\
                    The server does not respond correctly, not even to single requests.\n";
    assert!(of_nobody(&[]).ends_with(sentence));
    let told: Value = serde_json::from_str(&of_nobody(&["--json"])).unwrap();
    let search = &told["search"];
    assert_eq!(
        (&search["finding"]["ended"], &search["unloaded"]["endings_at"][0]["count"]),
        (&"unanswered".into(), &3.into())
    );
}

#[test]
fn an_interrupted_search_reports_its_results() {
    let dir = tempdir().unwrap();
    let url = format!("http://{}/", server_for_six());
    // The first measurement is short enough, and the search long enough.
    let arguments = ["bench", "capacity", &url, "--by", "connections", "--from", "1", "--to", "6", "--step", "+1"];
    let times = ["--repeats", "3", "--warmup", "10ms", "-d", "1s", "--expect", "requests_per_s>0"];
    let mut child = command(dir.path(), &[&arguments[..], &times].concat()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut running = Running(child);
    let mut first = String::new();
    output.read_line(&mut first).unwrap();
    assert!(first.starts_with("  1. 1 connections: "), "{first}");
    running.signal(Signal::INT);
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(running.wait().success(), "{rest}");
    assert!(rest.contains("The search ended early."), "{rest}");
}
