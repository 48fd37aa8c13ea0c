//! Each ending from each side in each phase, in both families. `watari watch` must report what the script did, of whole
//! captures and of damaged ones.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::tempdir;
use watari_packets::{Flags, Timestamp, build};

use crate::capture::{Capture, Captured, frames, write};
use crate::namespace::{is_inside, program, run};
use crate::rows::{Row, connections};
use crate::script::Side::{Client, Server};
use crate::script::{Known, Scene, TIMEOUT, bare};
use crate::{others, spoiled};

/// The ending of a connection, its phase, the side that ended it, the number of its requests, and the script that
/// causes it.
type Case = (&'static str, &'static str, Option<&'static str>, u64, fn(&mut Scene));

const BY_CLIENT: Option<&str> = Some("client");
const BY_SERVER: Option<&str> = Some("server");

/// All possible cases. A FIN ends no handshake. A system resets no connection between its answer to the SYN and the end
/// of the handshake; for that case see [`made`].
#[rustfmt::skip]
const CASES: &[Case] = &[
    ("S_NORMAL", "before_request", BY_SERVER, 0, |it| { it.connect(); it.close(Server); }),
    ("S_NORMAL", "before_answer", BY_SERVER, 1, |it| { it.connect(); it.ask(); it.close(Server); }),
    ("S_NORMAL", "in_answer", BY_SERVER, 1, |it| { it.connect(); it.ask(); it.begin_answer(); it.close(Server); }),
    ("S_NORMAL", "after_answer", BY_SERVER, 1, |it| { it.connect(); it.ask(); it.answer(); it.close(Server); }),
    ("S_NORMAL", "idle", BY_SERVER, 1, |it| { it.connect(); it.ask(); it.answer(); it.idle(); it.close(Server); }),
    ("C_NORMAL", "before_request", BY_CLIENT, 0, |it| { it.connect(); it.close(Client); }),
    ("C_NORMAL", "before_answer", BY_CLIENT, 1, |it| { it.connect(); it.ask(); it.close(Client); }),
    ("C_NORMAL", "in_answer", BY_CLIENT, 1, |it| { it.connect(); it.ask(); it.begin_answer(); it.close(Client); }),
    ("C_NORMAL", "after_answer", BY_CLIENT, 1, |it| { it.connect(); it.ask(); it.answer(); it.close(Client); }),
    ("C_NORMAL", "idle", BY_CLIENT, 1, |it| { it.connect(); it.ask(); it.answer(); it.idle(); it.close(Client); }),
    ("C_RESET", "before_request", BY_CLIENT, 0, |it| { it.connect(); it.reset(Client); }),
    ("C_RESET", "before_answer", BY_CLIENT, 1, |it| { it.connect(); it.ask(); it.reset(Client); }),
    ("C_RESET", "in_answer", BY_CLIENT, 1, |it| { it.connect(); it.ask(); it.begin_answer(); it.reset(Client); }),
    ("C_RESET", "after_answer", BY_CLIENT, 1, |it| { it.connect(); it.ask(); it.answer(); it.reset(Client); }),
    ("C_RESET", "idle", BY_CLIENT, 1, |it| { it.connect(); it.ask(); it.answer(); it.idle(); it.reset(Client); }),
    ("S_RESET", "before_request", BY_SERVER, 0, |it| { it.connect(); it.reset(Server); }),
    ("S_RESET", "before_answer", BY_SERVER, 1, |it| { it.connect(); it.ask(); it.reset(Server); }),
    ("S_RESET", "in_answer", BY_SERVER, 1, |it| { it.connect(); it.ask(); it.begin_answer(); it.reset(Server); }),
    ("S_RESET", "after_answer", BY_SERVER, 1, |it| { it.connect(); it.ask(); it.answer(); it.reset(Server); }),
    ("S_RESET", "idle", BY_SERVER, 1, |it| { it.connect(); it.ask(); it.answer(); it.idle(); it.reset(Server); }),
    // No side closes.
    ("TIMEOUT", "before_request", None, 0, |it| { it.connect(); it.hello(); it.time_out(); }),
    ("TIMEOUT", "before_answer", None, 1, |it| { it.connect(); it.ask(); it.time_out(); }),
    ("TIMEOUT", "in_answer", None, 1, |it| { it.connect(); it.ask(); it.begin_answer(); it.time_out(); }),
    // In an unknown protocol, the analysis cannot see whether the answer is complete.
    ("TIMEOUT", "idle", None, 1, |it| { it.connect(); it.send(Client, b"question"); it.send(Server, b"reply"); it.time_out(); }),
    ("OPEN", "before_request", None, 0, Scene::connect),
    ("OPEN", "idle", None, 1, |it| { it.connect(); it.ask(); it.answer(); it.time_out(); }),
    // The handshake.
    ("REFUSED", "before_handshake", BY_SERVER, 0, Scene::refuse),
    ("NO_ANSWER", "before_handshake", None, 0, |it| { it.knock(); it.idle(); }),
    ("C_RESET", "before_handshake", BY_CLIENT, 0, Scene::knock_and_forget),
    ("BACKSCATTER", "before_handshake", None, 0, |it| it.leave_unanswered(Flags::SYN.with(Flags::ACK))),
    ("BACKSCATTER", "before_handshake", None, 0, |it| it.leave_unanswered(Flags::RST.with(Flags::ACK))),
    ("C_NORMAL", "after_answer", BY_CLIENT, 1, |it| {
        it.knock(); it.let_in(); it.ask(); it.answer(); it.close(Client);
    }),
    // A browser's stop button during the answer: a FIN, then RSTs for later segments.
    ("C_NORMAL", "in_answer", BY_CLIENT, 1, |it| {
        it.connect(); it.ask(); it.begin_answer(); it.leave(Client); it.send_unread(Server, b"56789"); it.leave(Server);
    }),
    // A side that closes before it has read everything resets.
    ("C_RESET", "in_answer", BY_CLIENT, 1, |it| {
        it.connect(); it.ask(); it.begin_answer(); it.send_unread(Server, b"5"); it.close(Client);
    }),
    ("S_RESET", "before_answer", BY_SERVER, 1, |it| { it.connect(); it.send_unread(Client, b"GET / "); it.close(Server); }),
    // The client has no more requests, and waits for its answer.
    ("C_NORMAL", "before_answer", BY_CLIENT, 1, |it| {
        it.connect(); it.ask(); it.close_half(Client); it.answer(); it.close(Server);
    }),
    // Several requests.
    ("C_NORMAL", "after_answer", BY_CLIENT, 3, |it| {
        it.connect(); it.ask(); it.answer(); it.ask(); it.answer(); it.ask(); it.answer(); it.close(Client);
    }),
    ("S_RESET", "before_answer", BY_SERVER, 2, |it| {
        it.connect(); it.ask(); it.answer(); it.ask(); it.reset(Server);
    }),
    ("C_NORMAL", "idle", BY_CLIENT, 1, |it| { it.connect(); it.ask(); it.answer(); it.keep_alive(); it.close(Client); }),
    // A TLS handshake is not a request.
    ("S_NORMAL", "before_request", BY_SERVER, 0, |it| { it.connect(); it.hello(); it.close(Server); }),
    ("S_RESET", "before_request", BY_SERVER, 0, |it| { it.connect(); it.hello(); it.reset(Server); }),
    ("C_NORMAL", "before_request", BY_CLIENT, 0, |it| { it.connect(); it.hello(); it.close(Client); }),
    // An answer in an unknown protocol counts as complete.
    ("S_NORMAL", "after_answer", BY_SERVER, 1, |it| {
        it.connect(); it.send(Client, b"question"); it.send(Server, b"reply"); it.close(Server);
    }),
    ("C_RESET", "before_answer", BY_CLIENT, 1, |it| { it.connect(); it.send(Client, b"question"); it.reset(Client); }),
    // The same port, twice.
    ("S_NORMAL", "after_answer", BY_SERVER, 1, |it| {
        it.connect_from_fixed_port(); it.ask(); it.reset(Client); it.again("C_RESET", "before_answer");
        it.ask(); it.answer(); it.close(Server);
    }),
];

/// Connections that have not ended and are within their timeout when the capture ends.
#[rustfmt::skip]
const LATE: &[Case] = &[
    ("OPEN", "before_handshake", None, 0, Scene::knock),
    ("OPEN", "before_answer", None, 1, |it| { it.connect(); it.ask(); }),
    ("OPEN", "in_answer", None, 1, |it| { it.connect(); it.ask(); it.begin_answer(); }),
];

/// A connection, and its expected row.
#[derive(Debug)]
struct Expected {
    /// One of these.
    endings: Vec<&'static str>,
    /// One of these.
    phases: Vec<&'static str>,
    closed_by: Option<&'static str>,
    /// `None`: the row has no number of requests.
    requests: Option<u64>,
    known: Known,
}

#[test]
fn each_from_each_side_in_each_phase() {
    if !is_inside("endings::each_from_each_side_in_each_phase", &["dumpcap", "editcap", "mergecap"]) {
        return;
    }
    let dir = tempdir().unwrap();
    let (all, rows) = known_rows(dir.path());
    spoiled::say_the_same(dir.path(), &all, &OPTIONS, &rows);
}

#[test]
fn tshark_and_tcptrace_agree() {
    if !is_inside("endings::tshark_and_tcptrace_agree", &["dumpcap", "tshark", "tcptrace"]) {
        return;
    }
    let dir = tempdir().unwrap();
    let (all, rows) = known_rows(dir.path());
    others::tshark_agrees(&all, &rows);
    others::tcptrace_agrees(dir.path(), &all, &rows);
}

const OPTIONS: [&str; 2] = ["--timeout", TIMEOUT];

/// A capture with all cases, and its rows, which match the scripts.
fn known_rows(dir: &Path) -> (PathBuf, Vec<Row>) {
    let (real, more, all) = (dir.join("real.pcapng"), dir.join("made.pcap"), dir.join("all.pcapng"));
    let mut expected = record(&real);
    let (frames, made) = made(frames(&real)[0].time);
    write(&more, &frames);
    expected.extend(made);
    run(program("mergecap").arg("-w").args([&all, &real, &more]));

    let rows = connections(std::slice::from_ref(&all), &OPTIONS);
    assert_are(&rows, &expected);
    assert_eq!(connections(&[real, more], &OPTIONS), rows, "two files");
    (all, rows)
}

/// Captures all scripts in both families.
fn record(file: &Path) -> Vec<Expected> {
    let capture = Capture::start(file, "tcp");
    let early = play(CASES);
    let began = Instant::now();
    let late = play(LATE);
    capture.stop();
    let mut expected: Vec<_> = early.iter().chain(&late).flat_map(|(case, scene)| expected(case, scene)).collect();
    if began.elapsed() > Duration::from_millis(900) {
        // The client may have repeated the unanswered SYN meanwhile.
        let knocks = expected.iter_mut().filter(|expected| expected.phases == ["before_handshake"]);
        knocks.filter(|knock| knock.endings == ["OPEN"]).for_each(|knock| knock.endings.push("NO_ANSWER"));
    }
    expected
}

/// All scripts at once, each in a thread.
fn play(cases: &'static [Case]) -> Vec<(&'static Case, Scene)> {
    let families = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let all = families.into_iter().flat_map(|ip| cases.iter().map(move |case| (ip, case)));
    let threads: Vec<_> = all
        .map(|(ip, case)| {
            thread::spawn(move || {
                let mut scene = Scene::new(ip);
                (case.4)(&mut scene);
                (case, scene)
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn expected((ending, phase, closed_by, requests, _): &Case, scene: &Scene) -> Vec<Expected> {
    let mut phases = vec![*phase];
    if *phase == "after_answer" && !scene.known.closed_at_once() {
        phases.push("idle");
    }
    let closed_by = *closed_by;
    let mut all =
        vec![Expected { endings: vec![ending], phases, closed_by, requests: Some(*requests), known: scene.known }];
    all.extend(scene.others.iter().map(|(ending, phase, known)| Expected {
        endings: vec![ending],
        phases: vec![phase],
        closed_by: if ending.starts_with("C_") { BY_CLIENT } else { None },
        requests: None,
        known: *known,
    }));
    all
}

/// A case that no system causes, but a middlebox can: the server resets a connection that is not established yet.
fn made(begin: Timestamp) -> (Vec<Captured>, Vec<Expected>) {
    let (mut frames, mut expected) = (Vec::new(), Vec::new());
    for (client, server) in [("192.0.2.1:40000", "198.51.100.1:80"), ("[2001:db8::1]:40000", "[2001:db8::2]:80")] {
        let (client, server): (SocketAddr, SocketAddr) = (client.parse().unwrap(), server.parse().unwrap());
        let reset = watari_packets::Segment { sequence: 1_000_001, ..bare(begin, server, client, Flags::RST) };
        let syn_ack = bare(begin, server, client, Flags::SYN.with(Flags::ACK));
        for segment in [bare(begin, client, server, Flags::SYN), syn_ack, reset] {
            let data = build::ethernet(&segment);
            frames.push(Captured { time: begin, len: data.len() as u32, data });
        }
        let known = Known::new(client, server);
        let (endings, phases) = (vec!["S_RESET"], vec!["before_handshake"]);
        expected.push(Expected { endings, phases, closed_by: BY_SERVER, requests: Some(0), known });
    }
    (frames, expected)
}

/// Each expected connection has its row, and there are no other rows.
fn assert_are(rows: &[Row], expected: &[Expected]) {
    let mut left: BTreeMap<SocketAddr, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        left.entry(row.client).or_default().push(row);
    }
    let mut wrong = Vec::new();
    for expected in expected {
        let of_client = left.entry(expected.known.client).or_default();
        match of_client.iter().position(|row| is(row, expected)) {
            Some(found) => drop(of_client.remove(found)),
            None => wrong.push(expected),
        }
    }
    left.retain(|_, rows| !rows.is_empty());
    assert!(wrong.is_empty() && left.is_empty(), "expected: {wrong:#?}\nsaid: {left:#?}");
    println!("{} connections are as their scripts know", expected.len());
}

fn is(row: &Row, expected: &Expected) -> bool {
    row.server == expected.known.server
        && expected.endings.contains(&row.ending.as_str())
        && expected.phases.contains(&row.phase.as_str())
        && row.closed_by.as_deref() == expected.closed_by
        && expected.requests.is_none_or(|requests| row.requests == requests)
        && (row.bytes_to_client, row.bytes_to_server) == (expected.known.to_client, expected.known.to_server)
}
