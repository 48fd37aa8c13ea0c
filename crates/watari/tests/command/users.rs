//! `watari bench users`, and `watari bench http --flow`

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use serde_json::Value;
use watari_test_origins::LoopbackAddresses;

use crate::nginx::Nginx;
use crate::support::watari;

/// Responds to every request with a token, until the test's process ends.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer(&stream));
        }
    });
    address
}

fn answer(mut stream: &TcpStream) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    while lines.by_ref().take_while(|line| !line.is_empty()).count() > 0 {
        if stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 7\r\n\r\ntoken=1").is_err() {
            return;
        }
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
}

#[test]
fn users_come_as_often_as_they_should() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("http://{}/", server());
    let users = |more: &[&str]| {
        let few = ["bench", "users", &url, "-r", "100", "--count", "users", "-d", "100ms", "--waits", "10ms,30ms"];
        watari(dir.path(), &[&few, more].concat())
    };
    let json: Value = serde_json::from_str(&users(&["--json"]).done()).unwrap();
    assert_eq!((&json["requests"], &json["endings"]["NORMAL"]), (&30.into(), &30.into()));
    let text = users(&["--requests", "2"]).done();
    assert!(text.starts_with("second  begun  NORMAL  failed  full  resumed"), "{text}");
    assert!(text.contains("\n20 requests in "), "{text}");
    assert_eq!(users(&["--requests", "0"]).refused(2), "watari: a user makes 1 to 10000 requests");
    assert_eq!(users(&["--expect", "requests=30"]).status, Some(0));
    assert_eq!(users(&["--expect", "requests=31"]).status, Some(1));
}

#[test]
fn users_speak_http_2_over_a_connection_for_each_visit() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.html"), "a").unwrap();
    let http2 = LoopbackAddresses::draw().take();
    let nginx = Nginx::start(dir.path(), &format!("listen {http2} ssl http2;"));
    let url = format!("https://{http2}/a.html");
    let few =
        ["bench", "users", &url, "--http2", "-r", "100", "--count", "users", "-d", "100ms", "--waits", "10ms,30ms"];
    let json: Value = serde_json::from_str(&watari(dir.path(), &[&few[..], &["--json"]].concat()).done()).unwrap();
    let logged = nginx.requests();
    let connections: std::collections::BTreeSet<_> = logged.iter().map(|line| line.connection).collect();
    assert_eq!((json["endings"]["NORMAL"].as_u64(), logged.len(), connections.len()), (Some(30), 30, 30));
    let resumed = logged.iter().filter(|line| line.resumed).count() as u64;
    assert_eq!((&json["tls"]["full"], &json["tls"]["resumed"]), (&10.into(), &20.into()));
    assert_eq!(resumed, 20);
    // Options that make no sense for a single request on a connection of its own.
    for more in
        [&["--streams", "2"][..], &["--pipeline", "2"], &["--requests-per-connection", "2"], &["--stagger", "1s"]]
    {
        assert_eq!(watari(dir.path(), &[&few[..], more].concat()).status, Some(2), "{more:?}");
    }
}

#[test]
fn flows_are_gone_through() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("http://{}/", server());
    let flow =
        "[[step]]\nname = 'a'\nuri = '/'\ntake.t = { regex = 'token=(.)' }\n[[step]]\nname = 'b'\nuri = '/${t}'\n";
    fs::write(dir.path().join("good.toml"), flow).unwrap();
    fs::write(dir.path().join("bad.toml"), flow.replace("${t}", "${x}")).unwrap();
    let http = |more: &[&str]| watari(dir.path(), &[&["bench", "http", &url, "-n", "5", "-c", "2"], more].concat());
    let json: Value = serde_json::from_str(&http(&["--flow", "good.toml", "--json"]).done()).unwrap();
    assert_eq!((&json["requests"], &json["endings"]["NORMAL"]), (&10.into(), &10.into()));
    assert_eq!(json["by_class"]["b"]["requests"], 5);
    let shared = http(&["--flow", "good.toml", "--json", "--processes", "2"]).done();
    let shared: Value = serde_json::from_str(&shared).unwrap();
    assert_eq!((&shared["requests"], &shared["by_class"]["b"]["endings"]["NORMAL"]), (&10.into(), &5.into()));
    let refused = http(&["--flow", "bad.toml"]).refused(2);
    assert!(refused.starts_with("watari: bad.toml:7: \"x\" has no value: "), "{refused}");
    assert_eq!(http(&["--flow", "good.toml", "--pipeline", "2"]).status, Some(2));
}
