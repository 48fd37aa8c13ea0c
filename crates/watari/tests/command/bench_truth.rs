//! The reports of `watari bench http` match the log of a server, and the packets on the wire.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::tempdir;

use super::nginx::{self, Nginx};
use super::support::watari;

fn bench(directory: &Path, arguments: &str) -> Value {
    let mut all = vec!["bench", "http"];
    all.extend(arguments.split_whitespace());
    all.push("--json");
    serde_json::from_str(&watari(directory, &all).done()).unwrap()
}

#[test]
fn totals_are_those_of_the_servers_log() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("a.html"), vec![b'a'; 1000]).unwrap();
    fs::write(dir.path().join("b.bin"), vec![b'b'; 20_000]).unwrap();
    let nginx = Nginx::start(dir.path(), "");
    let list =
        "127.0.0.2 /a.html 0 weight=5\n127.0.0.3 /b.bin 1 weight=2\n127.0.0.4 /missing.png 0 weight=3 status=404\n";
    fs::write(dir.path().join("list"), list).unwrap();
    let run = bench(
        dir.path(),
        &format!(
            "http://{} https://{} --list list -n 1000 -c 20 -t 2 --requests-per-connection 1",
            nginx.plain, nginx.tls
        ),
    );
    let logged = nginx.requests();
    assert_eq!((run["requests"].as_u64(), logged.len()), (Some(1000), 1000));
    assert_eq!(run["endings"]["NORMAL"], 1000);
    let count = |wanted: &dyn Fn(&nginx::Logged) -> bool| logged.iter().filter(|line| wanted(line)).count() as u64;
    for (class, uri, source) in
        [(".html", "/a.html", "127.0.0.2"), (".bin", "/b.bin", "127.0.0.3"), (".png", "/missing.png", "127.0.0.4")]
    {
        let requests = run["by_class"][class]["requests"].as_u64();
        assert_eq!(requests, Some(count(&|line| line.uri == uri && line.client == source)), "{class}");
    }
    for status in [200, 404] {
        assert_eq!(run["status"][status.to_string()].as_u64(), Some(count(&|line| line.status == status)), "{status}");
    }
    assert_eq!(run["body_bytes"].as_u64(), Some(logged.iter().map(|line| line.body_bytes).sum()));
    assert_eq!(run["tls"]["full"].as_u64(), Some(count(&|line| line.version == "TLSv1.3")));
    assert_eq!(run["by_class"][".bin"]["requests"], 200);
}

#[test]
fn connections_that_stay_are_as_many_as_the_server_saw() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("a.html"), "a").unwrap();
    let nginx = Nginx::start(dir.path(), "keepalive_requests 50;");
    let run = bench(dir.path(), &format!("https://{}/a.html -n 1000 -c 8", nginx.tls));
    let logged = nginx.requests();
    let connections: std::collections::BTreeSet<_> = logged.iter().map(|line| line.connection).collect();
    assert_eq!((run["endings"]["NORMAL"].as_u64(), logged.len()), (Some(1000), 1000));
    assert_eq!(run["connections"]["opened"].as_u64(), Some(connections.len() as u64));
    assert_eq!(run["tls"]["full"].as_u64(), Some(connections.len() as u64));
}

#[test]
fn handshakes_are_those_that_the_server_saw() {
    let cache = "ssl_session_cache shared:s:1m;";
    for (options, more) in [
        ("--tls 1.2 --session-ids --resume reuse", format!("{cache} ssl_session_tickets off;")),
        ("--tls 1.2 --resume reuse", String::new()),
        ("--tls 1.3 --resume reuse", String::new()),
        ("--tls 1.3 --resume mixed:30", String::new()),
        ("--tls 1.2 --resume full", cache.to_owned()),
    ] {
        let dir = tempdir().unwrap();
        fs::write(dir.path().join("a.html"), "a").unwrap();
        let nginx = Nginx::start(dir.path(), &more);
        let url = format!("https://{}/a.html", nginx.tls);
        let run = bench(dir.path(), &format!("{url} -n 100 -c 1 --requests-per-connection 1 {options}"));
        let logged = nginx.requests();
        let resumed = logged.iter().filter(|line| line.resumed).count() as u64;
        assert_eq!(run["tls"]["resumed"].as_u64(), Some(resumed), "{options}");
        assert_eq!(run["tls"]["full"].as_u64(), Some(100 - resumed), "{options}");
        let expected = match options.rsplit(' ').next() {
            Some("reuse") => 99,
            Some("mixed:30") => 30,
            _ => 0,
        };
        assert_eq!(resumed, expected, "{options}");
    }
}

/// A capture in a network of its own begins before the load and ends after it. `unshare` makes the namespaces that it
/// needs.
const CAPTURED: &str = r#"
set -eu
ip link set lo up
/usr/sbin/nginx -p . -c nginx.conf -e error.log &
nginx=$!
dumpcap -q -i lo -f 'tcp port 8080' -w capture.pcap 2>capture.log &
capture=$!
trap 'kill $nginx $capture 2>/dev/null || true' EXIT
tries=0
until [ -s capture.pcap ] && grep -q . pid 2>/dev/null; do
    tries=$((tries + 1)); [ $tries -lt 600 ] || { cat capture.log error.log >&2; exit 1; }
    sleep 0.1
done
"$WATARI" bench http http://127.0.0.1:8080/a.html -n 200 -c 1 --requests-per-connection 1 --csv connections.csv --json >run.json
tries=0
until [ "$(tshark -r capture.pcap -Y 'tcp.flags.fin == 1' 2>/dev/null | wc -l)" -ge 400 ]; do
    tries=$((tries + 1)); [ $tries -lt 100 ] || break
    sleep 0.1
done
kill -INT $capture; wait $capture || true
kill -QUIT $nginx; wait $nginx || true
trap - EXIT
tshark -r capture.pcap -T fields -e frame.time_epoch -e tcp.srcport -e tcp.dstport -e tcp.flags.syn -e tcp.flags.fin -e tcp.len >packets 2>/dev/null
"#;

/// The times at which a client's connection began, sent its request, and closed, in seconds of the capture's clock.
#[derive(Debug, Default)]
struct Seen {
    syn: Option<f64>,
    request: Option<f64>,
    fin: Option<f64>,
}

/// anma-enma, section 2: Tr from `connect` to the request's `write`, Tc from `connect` to `close`.
#[test]
fn tr_and_tc_are_those_on_the_wire() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("a.html"), vec![b'a'; 4096]).unwrap();
    nginx::configure(dir.path(), "127.0.0.1:8080".parse().unwrap(), "127.0.0.1:8443".parse().unwrap(), "");
    let output = Command::new("unshare")
        .args(["--map-root-user", "--net", "--", "sh", "-c", CAPTURED])
        .env("WATARI", env!("CARGO_BIN_EXE_watari"))
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen = packets(&fs::read_to_string(dir.path().join("packets")).unwrap());
    let told = parse_times(&fs::read_to_string(dir.path().join("connections.csv")).unwrap());
    assert_eq!((seen.len(), told.len()), (200, 200));
    let (mut tr, mut tc) = (Vec::new(), Vec::new());
    for (port, (told_tr, told_tc)) in told {
        let seen = &seen[&port];
        let begun = seen.syn.unwrap();
        tr.push((told_tr - (seen.request.unwrap() - begun) * 1e3).abs());
        tc.push((told_tc - (seen.fin.unwrap() - begun) * 1e3).abs());
    }
    // A packet is captured within the system call that sends it. Interruptions of the process between the two clocks
    // affect few.
    assert!(median(&mut tr) < 2.0 && median(&mut tc) < 2.0, "{} {} ms", median(&mut tr), median(&mut tc));
    assert_eq!(nginx::logged(dir.path()).len(), 200);
}

fn packets(text: &str) -> HashMap<u16, Seen> {
    let mut connections: HashMap<u16, Seen> = HashMap::new();
    for line in text.lines() {
        let fields: Vec<_> = line.split('\t').collect();
        let [time, from, to, syn, fin, length] = fields[..] else { panic!("{line}") };
        let (time, is) = (time.parse().unwrap(), |flag: &str| matches!(flag, "1" | "True"));
        if to != "8080" {
            continue;
        }
        let seen = connections.entry(from.parse().unwrap()).or_default();
        if is(syn) {
            seen.syn.get_or_insert(time);
        } else if length != "0" {
            seen.request.get_or_insert(time);
        } else if is(fin) {
            seen.fin.get_or_insert(time);
        }
    }
    connections
}

/// Tr and Tc in milliseconds, by the client's port.
fn parse_times(text: &str) -> BTreeMap<u16, (f64, f64)> {
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let at = |name: &str| names.iter().position(|known| *known == name).unwrap();
    let ms = |seconds: &str| seconds.parse::<f64>().unwrap() * 1e3;
    let (local, tr, tc) = (at("local"), at("tr_s"), at("tc_s"));
    lines
        .map(|line| {
            let port = line[local].rsplit_once(':').unwrap().1.parse().unwrap();
            (port, (ms(line[tr]), ms(line[tc])))
        })
        .collect()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
