//! Other servers under `watari bench http`: `watari watch` must report of each connection what the generator reports
//! and what nginx logs.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde::Deserialize;
use serde_json::Value;
use tempfile::tempdir;

use crate::capture::Capture;
use crate::namespace::{Running, is_inside, wait_for};
use crate::others;
use crate::rows::{Row, connections};

/// The port of the first server, in both families. The second has the next port. Servers with TLS have ports higher by
/// ten.
const PORT: u16 = 8080;
const HOSTS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Octets of the requested file.
const FILE_LEN: usize = 4096;
/// The packets to capture.
const FILTER: &str = "tcp portrange 8080-8091 or tcp port 9";

/// A line of the generator's CSV.
#[derive(Debug, Deserialize)]
struct Reported {
    /// `None` for refused connections.
    local: Option<SocketAddr>,
    remote: SocketAddr,
    requests: u64,
    bytes_read: u64,
    bytes_written: u64,
    ending: String,
    phase: String,
    side: String,
    handshake: Option<String>,
}

#[test]
fn connections_end_as_the_generator_reports() {
    let programs = ["dumpcap", "tshark", "nginx", "haproxy"];
    if !is_inside("servers::connections_end_as_the_generator_reports", &programs) {
        return;
    }
    let dir = tempdir().unwrap();
    let file = dir.path().join("capture.pcapng");
    let mut servers = start(dir.path());
    let capture = Capture::start(&file, FILTER);
    let reported: Vec<_> = loads().iter().flat_map(|load| bench(dir.path(), load)).collect();
    capture.stop();
    servers.nginx.quit();
    let rows = connections(std::slice::from_ref(&file), &[]);
    println!("{} connections: {:?}", rows.len(), counts(&rows));
    generator_agrees(&reported, &rows);
    nginx_agrees(dir.path(), &rows);
    others::tshark_agrees(&file, &rows);
}

/// The loads, as arguments of the generator.
fn loads() -> Vec<String> {
    let mut loads = Vec::new();
    for host in ["127.0.0.1", "[::1]"] {
        for server in [PORT, PORT + 1] {
            for (scheme, port) in [("http", server), ("https", server + 10)] {
                let url = format!("{scheme}://{host}:{port}");
                // Kept alive, and closed by the client in the end; as many requests as the server allows; one request
                // each.
                loads.push(format!("{url}/file -n 40 -c 4"));
                loads.push(format!("{url}/few -n 40 -c 4"));
                loads.push(format!("{url}/file -n 40 -c 4 --requests-per-connection 1"));
                if scheme == "https" {
                    loads.push(format!("{url}/file -n 20 -c 2 --requests-per-connection 1 --resume reuse --tls 1.2"));
                }
            }
        }
        let nginx = format!("http://{host}:{PORT}");
        loads.push(format!("{nginx}/reset -n 10 -c 2"));
        loads.push(format!("{nginx}/close -n 10 -c 2"));
        loads.push(format!("{nginx}/slow -n 4 -c 4 --timeout 300ms"));
        loads.push(format!("http://{host}:{}/ -n 4 -c 2", PORT + 5));
        // A server that accepts connections and sends nothing.
        loads.push(format!("http://{host}:{}/ -n 4 -c 4 --timeout 300ms", PORT + 2));
    }
    loads
}

fn bench(dir: &Path, load: &str) -> Vec<Reported> {
    let arguments = load.split_whitespace().chain(["--json", "--csv", "connections.csv"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_watari"));
    let output = command.args(["bench", "http"]).args(arguments).current_dir(dir).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let run: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{load}: {error}: {output:?}"));
    let mut lines = csv::Reader::from_path(dir.join("connections.csv")).unwrap();
    let lines: Vec<Reported> = lines.deserialize().map(Result::unwrap).collect();
    assert_eq!(run["connections"]["opened"].as_u64(), Some(lines.len() as u64), "{load}: {run}");
    lines
}

/// Each connection of the generator was captured, and no other one. A port may have been reused: its connections have
/// the same order in both lists.
fn generator_agrees(reported: &[Reported], rows: &[Row]) {
    let mut of_ends: BTreeMap<_, VecDeque<_>> = BTreeMap::new();
    for row in rows {
        of_ends.entry((Some(row.client), row.server)).or_default().push_back(row);
    }
    assert_eq!(rows.len(), reported.len(), "connections");
    let (refused, tried): (Vec<_>, Vec<_>) = reported.iter().partition(|line| line.ending == "REFUSED");
    assert_eq!(rows.iter().filter(|row| row.ending == "REFUSED").count(), refused.len());
    let mut row_of = |line: &Reported| of_ends.get_mut(&(line.local, line.remote))?.pop_front();
    let pairs = tried.into_iter().map(|line| (line, row_of(line)));
    let wrong: Vec<_> = pairs.filter(|(line, row)| row.is_none_or(|row| !agrees(row, line))).collect();
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), rows.len());
}

/// Whether both agree on a connection.
fn agrees(row: &Row, reported: &Reported) -> bool {
    let is_normal = reported.ending == "NORMAL";
    // The generator does not count a request with an incomplete response.
    let requests = reported.requests + u64::from(!is_normal);
    let is_resumed = reported.handshake.as_ref().map(|handshake| handshake == "resumed");
    ended_so(row, reported)
        && (row.requests, row.delivered) == (requests, is_normal)
        && (row.tls_version.is_some(), row.tls_resumed) == (is_tls(row), is_resumed)
        // Octets of HTTP, not of TLS.
        && (is_tls(row) || (row.bytes_to_client, row.bytes_to_server) == (reported.bytes_read, reported.bytes_written))
}

/// Whether the ending in the generator's words matches the monitor's.
fn ended_so(row: &Row, reported: &Reported) -> bool {
    let (ending, phase) = (row.ending.as_str(), row.phase.as_str());
    let is_after = matches!(phase, "after_answer" | "idle");
    match (reported.ending.as_str(), reported.phase.as_str(), reported.side.as_str()) {
        ("NORMAL", "close", "client") => ending == "C_NORMAL" && is_after,
        // With TLS, a server announces its close before its FIN. The generator sees that, and its own FIN may be the
        // first.
        ("NORMAL", "close", _) => (ending == "S_NORMAL" || ending == "C_NORMAL" && is_tls(row)) && is_after,
        ("RESET", "wait", _) => (ending, phase) == ("S_RESET", "before_answer"),
        // A client whose timeout is over closes.
        ("TIMEOUT", "wait", _) => (ending, phase) == ("C_NORMAL", "before_answer"),
        ("TIMEOUT", "response", _) => (ending, phase) == ("C_NORMAL", "in_answer"),
        _ => false,
    }
}

fn is_tls(row: &Row) -> bool {
    row.server.port() >= PORT + 10
}

/// Each connection to nginx has the number of requests that nginx logged, and the octets if they are not encrypted.
fn nginx_agrees(dir: &Path, rows: &[Row]) {
    // By client, port of the server and connection: a client's port may have been reused, also for another server.
    let mut logged: BTreeMap<(SocketAddr, u16, u64), (u64, u64, u64)> = BTreeMap::new();
    for line in fs::read_to_string(dir.join("access.log")).unwrap().lines() {
        let [ip, port, at, connection, sent, length] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let client = SocketAddr::new(ip.parse().unwrap(), port.parse().unwrap());
        let connection = (client, at.parse().unwrap(), connection.parse().unwrap());
        let (requests, to_client, to_server) = logged.entry(connection).or_default();
        *requests += 1;
        *to_client += sent.parse::<u64>().unwrap();
        *to_server += length.parse::<u64>().unwrap();
    }
    for row in rows.iter().filter(|row| [PORT, PORT + 10].contains(&row.server.port())) {
        let (client, at) = (row.client, row.server.port());
        let first = logged.range((client, at, 0)..=(client, at, u64::MAX)).next().map(|(key, _)| *key);
        let (requests, to_client, to_server) = logged.remove(&first.unwrap_or_else(|| panic!("{row:?}"))).unwrap();
        let is_same = (row.bytes_to_client, row.bytes_to_server) == (to_client, to_server);
        let said = format!("{row:#?} {requests} {to_client} {to_server}");
        assert!(row.requests == requests && (is_same || is_tls(row)), "{said}");
    }
    assert!(logged.is_empty(), "{logged:?}");
}

fn counts(rows: &[Row]) -> BTreeMap<(&str, &str), usize> {
    let mut counts = BTreeMap::new();
    for row in rows {
        *counts.entry((row.ending.as_str(), row.phase.as_str())).or_default() += 1;
    }
    counts
}

/// The running servers, and the listener that sends nothing.
struct Servers {
    nginx: Running,
    _haproxy: Running,
    _silent: [TcpListener; 2],
}

/// Starts nginx and `HAProxy`, and waits until they accept connections.
fn start(dir: &Path) -> Servers {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (chain, key) = (cert.pem(), signing_key.serialize_pem());
    for (name, content) in [("chain.pem", chain.clone()), ("key.pem", key.clone()), ("both.pem", chain + &key)] {
        fs::write(dir.join(name), content).unwrap();
    }
    fs::write(dir.join("nginx.conf"), nginx(dir)).unwrap();
    fs::write(dir.join("haproxy.cfg"), haproxy()).unwrap();
    for name in ["file", "few", "slow"] {
        fs::write(dir.join(name), vec![b'a'; FILE_LEN]).unwrap();
    }
    let nginx = Running::start(dir, "nginx", &["-p", ".", "-c", "nginx.conf", "-e", "nginx.log"]);
    let haproxy = Running::start(dir, "haproxy", &["-db", "-f", "haproxy.cfg"]);
    for host in HOSTS {
        for port in [PORT, PORT + 1, PORT + 10, PORT + 11] {
            wait_for(SocketAddr::new(host, port));
        }
    }
    let silent = HOSTS.map(|host| TcpListener::bind((host, PORT + 2)).unwrap());
    Servers { nginx, _haproxy: haproxy, _silent: silent }
}

fn nginx(dir: &Path) -> String {
    let (root, tls) = (dir.display(), PORT + 10);
    format!(
        "daemon off; master_process off; user root; pid {root}/pid; events {{ worker_connections 1000; }}\n\
         http {{\n\
         log_format told '$remote_addr $remote_port $server_port $connection $bytes_sent $request_length';\n\
         access_log {root}/access.log told; root {root}; client_body_temp_path {root}/a; proxy_temp_path {root}/b;\n\
         fastcgi_temp_path {root}/c; uwsgi_temp_path {root}/d; scgi_temp_path {root}/e;\n\
         ssl_certificate chain.pem; ssl_certificate_key key.pem; reset_timedout_connection on;\n\
         server {{\n\
         listen 127.0.0.1:{PORT}; listen [::1]:{PORT}; listen 127.0.0.1:{tls} ssl; listen [::1]:{tls} ssl;\n\
         location /few {{ keepalive_requests 5; }}\n\
         location /reset {{ return 444; }}\n\
         location /close {{ return 204; keepalive_timeout 0; }}\n\
         location /slow {{ limit_rate 100; }}\n\
         }} }}\n"
    )
}

fn haproxy() -> String {
    let (port, tls) = (PORT + 1, PORT + 11);
    format!(
        "global\n  log stderr local0\ndefaults\n  mode http\n  timeout client 30s\n  timeout connect 5s\n  timeout server 30s\n\
         frontend site\n  bind 127.0.0.1:{port}\n  bind ::1:{port}\n\
         \x20 bind 127.0.0.1:{tls} ssl crt both.pem\n  bind ::1:{tls} ssl crt both.pem\n\
         \x20 http-request return status 200 content-type text/plain string \"{}\"\n",
        "a".repeat(1000)
    )
}
