//! The paper's experiment (ANMA paper, chapter 2): a file of 4 KB, and a load that rises until the server saturates.
//! Then the server is killed while clients still connect, and at last there are no clients. The shares of endings move,
//! the states follow, and silence counts as stopped. A sensor listens meanwhile. Its judge is killed with the server
//! and restarted. Both must report the same as an analysis of the capture.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::tempdir;

use crate::capture::Capture;
use crate::live::{Change, METRICS, Receiver, Watching, certificates, get};
use crate::namespace::{POLL, Running, WAIT_MAX, is_inside, wait_for};
use crate::rows::{Shares, SpanRow, spans};

const SERVER: &str = "127.0.0.1:8080";
const JUDGE: &str = "127.0.0.1:7400";
const PAGE: &str = "127.0.0.1:8484";

/// The lab's profile, with shorter times.
const PROFILE: &str = "base = \"lab\"\nspan_s = 4\nstopped_span_s = 3\nhold_s = 1\n";
/// The time without requests at the end: longer than the spans and the time that a change must last.
const SILENCE: Duration = Duration::from_secs(7);

/// The server serves 50 requests a second, even on the fastest machine. Further requests wait in its queue. Clients
/// wait less than half a second.
const LOAD: &str = "-r 10..110/10s -d 18s --requests-per-connection 1 --timeout 400ms --connect-timeout 400ms --json";

/// The number of clients that have given up when the server is killed.
const ABORTS: usize = 400;

#[test]
fn the_cloud_moves_and_the_states_follow() {
    if !is_inside("lab::the_cloud_moves_and_the_states_follow", &["dumpcap", "nginx"]) {
        return;
    }
    let dir = tempdir().unwrap();
    let file = dir.path().join("capture.pcapng");
    let profile = dir.path().join("profile.toml");
    fs::write(&profile, PROFILE).unwrap();
    let mut nginx = serve(dir.path());
    let live = Live::start(dir.path());
    let capture = Capture::start(&file, "tcp port 8080 or tcp port 9 or udp");
    let load = load(dir.path());
    wait_for_aborts(dir.path());
    nginx.kill();
    let live = live.lose_judge(dir.path());
    assert!(load.wait_with_output().unwrap().status.success());
    pass_time();
    capture.stop();
    let spans = spans(&file, server(), &["--profile", profile.to_str().unwrap()]);
    moved(&spans);
    live.followed(&spans);
}

/// A sensor that reports to a judge, and a receiver of alerts.
struct Live {
    sensor: Watching,
    judge: Watching,
    receiver: Receiver,
}

impl Live {
    fn start(dir: &Path) -> Self {
        certificates(dir);
        let receiver = Receiver::start();
        let tell = format!("journal = 'alerts.json'\n[[receiver]]\ntype = 'webhook'\nurl = '{}'\n", receiver.url);
        fs::write(dir.join("watch.toml"), tell).unwrap();
        let judge = judge(dir, "judge");
        let sensor = format!("live -i lo --port 8080 --states --profile profile.toml --report-to {JUDGE} --node s1");
        let arguments: Vec<_> = sensor.split(' ').chain(["--config", "watch.toml", "--metrics", METRICS]).collect();
        let sensor = Watching::start(dir, "sensor", &arguments);
        sensor.wait_until_logged("connected to the judge");
        Self { sensor, judge, receiver }
    }

    /// Kills the judge and starts another, which has none of the first one's data.
    fn lose_judge(self, dir: &Path) -> Self {
        self.judge.kill();
        Self { judge: judge(dir, "next-judge"), ..self }
    }

    /// The live reports match the capture.
    fn followed(self, spans: &[SpanRow]) {
        let Self { sensor, judge, receiver } = self;
        for (watching, name) in [(&sensor, "here"), (&judge, "s1")] {
            watching.wait_until_in(server(), "idle");
            let changes = watching.changes(server());
            let states: Vec<_> = changes.iter().map(|change| change.state.as_str()).collect();
            assert_eq!(states, ["normal", "saturated", "stopped", "idle"], "{changes:#?}");
            assert!(changes.iter().all(|change| change.sensor == name), "{changes:#?}");
            for (change, span) in changes.iter().zip(spans).skip(1) {
                // Reports come once a second.
                assert!((change.since - span.from).abs() < 2.5, "{change:?} {span:?}");
            }
        }
        let seen = get(METRICS, "/metrics", "localhost");
        for line in [
            "watari_watch_judge_connected 1\n",
            "watari_watch_judge_connections_total 2\n",
            "watari_watch_server_seconds_lost_total 0\n",
            "watari_watch_server_state{sensor=\"here\",server=\"127.0.0.1:8080\",state=\"idle\"} 1\n",
            "watari_watch_notices_told_total{receiver=\"webhook\"} 4\n",
        ] {
            assert!(seen.contains(line), "{line}{seen}");
        }
        let page = get(PAGE, "/api/board", "watch.example");
        assert!(
            page.starts_with("HTTP/1.1 200 ")
                && page.contains(r#""sensor":"s1","server":"127.0.0.1:8080","state":"idle""#)
        );
        assert!(get(PAGE, "/", "other.example").starts_with("HTTP/1.1 421 "));
        sensor.end::<Change>();
        judge.end::<Change>();
        let notices = receiver.received();
        let notices: Vec<_> = notices.iter().map(|(status, state)| (status.as_str(), state.as_str())).collect();
        let both = |state| [("firing", state), ("resolved", state)];
        let of = |state| notices.iter().copied().filter(|(_, of)| *of == state).collect::<Vec<_>>();
        assert_eq!(
            (of("saturated"), of("stopped"), notices.len()),
            (both("saturated").into(), both("stopped").into(), 4)
        );
    }
}

fn judge(dir: &Path, name: &str) -> Watching {
    let arguments =
        format!("judge --listen {JUDGE} --node j1 --profile profile.toml --page {PAGE} --page-host watch.example");
    Watching::start(dir, name, &arguments.split(' ').collect::<Vec<_>>())
}

fn server() -> SocketAddr {
    SERVER.parse().unwrap()
}

/// Checks the states of the server.
fn moved(spans: &[SpanRow]) {
    let states: Vec<_> = spans.iter().map(|span| span.state.as_str()).collect();
    assert_eq!(states, ["normal", "saturated", "stopped", "idle"], "{spans:#?}");
    let [normal, saturated, stopped, idle] = spans else { unreachable!() };
    let cut = |shares: Shares| shares.client_abort + shares.timeout;
    let (before, then) = (normal.shares.unwrap(), saturated.shares.unwrap());
    // The shares cross the limit after they have begun to move, but the time until then counts as normal.
    assert!(before.s_normal > 0.5 && cut(then) > 0.5 && before.s_normal > then.s_normal + 0.2, "{spans:#?}");
    assert!(stopped.endings["REFUSED"] > 100 && idle.endings.is_empty(), "{spans:#?}");
    for (one, next) in spans.iter().zip(&spans[1..]) {
        assert!(one.from < one.to && (one.to - next.from).abs() < 1e-6, "{spans:#?}");
    }
    println!("{spans:#?}");
}

fn serve(dir: &Path) -> Running {
    let root = dir.display();
    let config = format!(
        "daemon off; master_process off; user root; pid {root}/pid; events {{ worker_connections 4000; }}\n\
         http {{\n\
         limit_req_zone $server_port zone=all:1m rate=50r/s;\n\
         log_format told '$status'; access_log {root}/access.log told; root {root};\n\
         client_body_temp_path {root}/a; proxy_temp_path {root}/b; fastcgi_temp_path {root}/c;\n\
         uwsgi_temp_path {root}/d; scgi_temp_path {root}/e;\n\
         server {{ listen {SERVER}; limit_req zone=all burst=4000; }}\n\
         }}\n"
    );
    fs::write(dir.join("nginx.conf"), config).unwrap();
    fs::write(dir.join("file"), vec![b'a'; 4096]).unwrap();
    let nginx = Running::start(dir, "nginx", &["-p", ".", "-c", "nginx.conf", "-e", "nginx.log"]);
    wait_for(server());
    nginx
}

fn load(dir: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_watari"));
    command.args(["bench", "http", &format!("http://{SERVER}/file")]).args(LOAD.split(' ')).current_dir(dir);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits until many clients have given up: nginx logs 499 for each.
fn wait_for_aborts(dir: &Path) {
    let deadline = Instant::now() + WAIT_MAX;
    let aborts = || fs::read_to_string(dir.join("access.log")).unwrap().lines().filter(|line| *line == "499").count();
    while aborts() < ABORTS {
        assert!(Instant::now() < deadline, "{} clients gave up", aborts());
        thread::sleep(POLL);
    }
}

/// Sends packets, because time advances with their timestamps.
fn pass_time() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let nowhere: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let end = Instant::now() + SILENCE;
    while Instant::now() < end {
        let _ = socket.send_to(b"tick", nowhere);
        thread::sleep(Duration::from_millis(200));
    }
}
