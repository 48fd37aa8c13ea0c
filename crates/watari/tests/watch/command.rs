//! Invalid requests to `watari watch`, and the addresses that it prints.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::tempdir;
use watari_packets::build::ethernet;
use watari_packets::{Flags, Segment, Timestamp};

use crate::capture::{Captured, write};
use crate::live::certificates;
use crate::namespace::{POLL, Running, WAIT_MAX, is_inside};
use crate::rows::{connections, spans};

/// Exit status and error message.
fn refused(dir: &Path, arguments: &str) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_watari"));
    command.arg("watch").args(arguments.split(' ')).current_dir(dir).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.stdout.is_empty(), "{arguments}: {output:?}");
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn what_cannot_be_done_is_said() {
    if !is_inside("command::what_cannot_be_done_is_said", &[]) {
        return;
    }
    let dir = tempdir().unwrap();
    let dir = dir.path();
    certificates(dir);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    fs::write(dir.join("none.toml"), "[[receiver]]\ntype = 'webhook'\n").unwrap();
    fs::write(dir.join("lost.toml"), "journal = 'nowhere/alerts'\n[[receiver]]\ntype = 'syslog'\n").unwrap();
    fs::write(dir.join("open.key"), "00").unwrap();
    fs::set_permissions(dir.join("open.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let judge = "judge --listen 127.0.0.1:0 --user root";
    for (arguments, status, part) in [
        ("live -i nowhere0".to_owned(), 1, "nowhere0"),
        ("live -i lo --filter nonsense".to_owned(), 1, "nonsense"),
        ("live -i lo --report-to 127.0.0.1:1".to_owned(), 2, "--node <NAME>"),
        ("live -i lo --node s1".to_owned(), 2, "--report-to <HOST:PORT>"),
        ("live -i lo --report-to 127.0.0.1:1 --node s9".to_owned(), 1, "s9.pem"),
        ("live -i lo --report-to 127.0.0.1:1 --node j1 --user root".to_owned(), 1, "j1 does not allow the role sensor"),
        // The namespace has no other user.
        ("live -i lo".to_owned(), 1, "(os error 1); set --user"),
        (format!("{judge} --node s1"), 1, "s1 does not allow the role judge"),
        (format!("judge --listen {taken} --node j1"), 1, &format!("cannot listen on {taken}: Address already in use")),
        (format!("{judge} --node j1 --page {taken}"), 1, &format!("cannot listen on {taken}")),
        (format!("{judge} --node j1 --page-host a.example"), 2, "--page <ADDRESS:PORT>"),
        (format!("{judge} --node j1 --config none.toml"), 2, "none.toml: the [[receiver]] webhook needs url"),
        (format!("{judge} --node j1 --config lost.toml"), 1, "nowhere"),
        (format!("{judge} --node j1 --profile nowhere.toml"), 2, "cannot read the profile nowhere.toml"),
        ("pcap --anonymize-key open.key -".to_owned(), 2, "--anonymize <WHOSE>"),
        ("pcap --anonymize all --anonymize-key open.key -".to_owned(), 2, "open.key is readable by all users"),
        ("pcap --timeout 0s nowhere.pcap".to_owned(), 2, "0s is less than 1s"),
        ("pcap nowhere.pcap".to_owned(), 1, "nowhere.pcap"),
        ("pcap --requests nowhere.pcap".to_owned(), 1, "nowhere.pcap"),
    ] {
        let (code, said) = refused(dir, &arguments);
        let last = said.trim_end().lines().last().unwrap_or_default();
        assert!(code == status && said.contains(part) && !last.is_empty(), "{arguments}: {code}: {said}");
        assert!(!said.contains("panicked"), "{arguments}: {said}");
    }
}

#[test]
fn addresses_can_be_others() {
    let dir = tempdir().unwrap();
    let (file, key) = (dir.path().join("capture.pcap"), dir.path().join("key"));
    write(&file, &knock("10.1.2.3:4000".parse().unwrap(), "10.1.2.9:80".parse().unwrap()));
    fs::write(&key, "5a".repeat(16) + &"a5".repeat(16)).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let key = ["--anonymize-key", key.to_str().unwrap()];
    let ends = |whose: &str, key: &[&str]| {
        let options = [&["--server", "10.1.2.9:80", "--anonymize", whose], key].concat();
        let rows = connections(std::slice::from_ref(&file), &options);
        assert!(rows.len() == 1 && rows[0].ending == "REFUSED", "{rows:?}");
        [rows[0].client, rows[0].server].map(|it| it.to_string())
    };
    let [client, server] = ends("clients", &key);
    assert!(client.ends_with(":4000") && client != "10.1.2.3:4000" && server == "10.1.2.9:80", "{client} {server}");
    let [client_of_all, server] = ends("all", &key);
    let network = |address: &str| address.rsplit_once('.').unwrap().0.to_owned();
    // The addresses were in one network.
    assert!(client_of_all == client && network(&server) == network(&client) && !server.starts_with("10.1.2."));
    assert_ne!(ends("clients", &[])[0], client);
}

/// A SYN that is refused.
pub(crate) fn knock(client: SocketAddr, server: SocketAddr) -> Vec<Captured> {
    let syn = Segment {
        time: Timestamp(1_700_000_000_000_000_000),
        source: client,
        destination: server,
        sequence: 7,
        acknowledgment: 0,
        flags: Flags::SYN,
        window: 9,
        len: 0,
        data: &[],
    };
    let (source, destination, flags) = (server, client, Flags::RST.with(Flags::ACK));
    let reset = Segment { source, destination, flags, sequence: 0, acknowledgment: 8, ..syn };
    let captured = |segment: Segment<'_>| {
        let data = ethernet(&segment);
        Captured { time: segment.time, len: data.len() as u32, data }
    };
    [syn, reset].map(captured).into()
}

/// Results of a capture that is still being written are printed soon, not only when a buffer is full.
#[test]
fn what_is_fed_is_said_soon() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("capture.pcap");
    let server = "10.1.2.9:80".parse().unwrap();
    let knocks: Vec<_> = (0..2).flat_map(|number| later(number, knock(([10, 1, 2, 3], 4000).into(), server))).collect();
    write(&file, &knocks);
    let capture = fs::read(&file).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_watari"));
    command.args(["watch", "pcap", "--json", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut watching = Running(command.spawn().unwrap());
    let mut input = watching.0.stdin.take().unwrap();
    // The end of the first connection is certain when the time of the second is reached. The result is printed with the
    // next frame.
    let second = 24 + (capture.len() - 24) / 2;
    input.write_all(&capture).unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(watching.0.stdout.take().unwrap());
    let reading = thread::spawn(move || {
        output.read_line(&mut line).unwrap();
        line
    });
    let deadline = Instant::now() + WAIT_MAX;
    // Frames without new information.
    while !reading.is_finished() {
        assert!(Instant::now() < deadline, "nothing is said");
        input.write_all(&capture[second..]).unwrap();
        thread::sleep(POLL);
    }
    assert!(reading.join().unwrap().contains("REFUSED"));
}

/// A packet with a wrong timestamp does not hide the packets after it.
#[test]
fn a_packet_of_the_future_is_a_stray() {
    let dir = tempdir().unwrap();
    let server: SocketAddr = "10.1.2.9:80".parse().unwrap();
    let refused = |number: u16| {
        let client = SocketAddr::from(([10, 1, 2, 3], 4000 + number));
        let mut frames = knock(client, server);
        for frame in &mut frames {
            frame.time = frame.time + Duration::from_millis(500) * number.into();
        }
        frames
    };
    let all: Vec<_> = (0..400).flat_map(refused).collect();
    let mut odd = all.clone();
    odd[9].time = odd[9].time + Duration::from_hours(365 * 24);
    // After a pause of days, the analysis continues.
    let paused = |mut frames: Vec<Captured>| {
        let again: Vec<_> = later(3 * 24 * 60, all.clone());
        frames.extend(again);
        frames
    };
    let said = |name: &str, frames: &[Captured]| {
        let file = dir.path().join(name);
        write(&file, frames);
        let mut command = Command::new(env!("CARGO_BIN_EXE_watari"));
        let output = command.args(["watch", "pcap", "--json", "--states"]).arg(&file).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap())
    };
    let stray = "watari: 1 packet is dated hours ahead of the packets around: it is counted at the time of the packets before\n";
    for (name, one, other) in
        [("all.pcap", all.clone(), odd.clone()), ("paused.pcap", paused(all.clone()), paused(odd.clone()))]
    {
        let ([spans, nothing], [spans_of_odd, warning]) = (said(name, &one), said(name, &other));
        assert_eq!((&*nothing, &*warning), ("", stray));
        assert_eq!(spans, spans_of_odd);
        assert!(spans.contains("\"stopped\"") && !spans.is_empty(), "{spans}");
    }
}

/// Time advances even where no packet was captured.
#[test]
fn a_pause_is_idle() {
    let dir = tempdir().unwrap();
    let server: SocketAddr = "10.1.2.9:80".parse().unwrap();
    let refused: Vec<_> = (0..30_u16)
        .flat_map(|number| {
            let mut frames = knock(SocketAddr::from(([10, 1, 2, 3], 4000 + number)), server);
            for frame in &mut frames {
                frame.time = frame.time + Duration::from_secs(1) * number.into();
            }
            frames
        })
        .collect();
    let file = dir.path().join("paused.pcap");
    write(&file, &[refused.clone(), later(120, refused)].concat());
    let spans = spans(&file, server, &["--profile", "lab"]);
    let states: Vec<_> = spans.iter().map(|span| span.state.as_str()).collect();
    assert_eq!(states, ["stopped", "idle", "stopped"], "{spans:#?}");
    assert!((35.0..50.0).contains(&(spans[1].from - spans[0].from)), "{spans:#?}");
    assert!((7_200.0..7_205.0).contains(&(spans[2].from - spans[0].from)), "{spans:#?}");
}

/// The frames, `minutes` later.
fn later(minutes: u64, mut frames: Vec<Captured>) -> Vec<Captured> {
    for frame in &mut frames {
        frame.time = frame.time + Duration::from_mins(minutes);
    }
    frames
}
