//! Changes of captures in transit, which must not change any result.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use watari_packets::{Decoded, Decoder, Flags, Frame, LinkType};

use crate::capture::{Captured, frames, write};
use crate::namespace::{program, run};
use crate::rows::{Row, connections, connections_of_stdin};

/// Cuts, packs, splits and disturbs the capture in every way, and analyses each copy.
pub(crate) fn say_the_same(dir: &Path, capture: &Path, options: &[&str], rows: &[Row]) {
    let said = |files: &[PathBuf]| connections(files, options);
    let all = frames(capture);
    assert_same("cut to 96 octets", &said(&[cut(dir, capture)]), rows, Same::WithoutHeads);
    assert_same("packed", &said(&[pack(dir, capture)]), rows, Same::All);
    assert_same("from the standard input", &connections_of_stdin(capture, options), rows, Same::All);
    assert_same(
        "packed, from the standard input",
        &connections_of_stdin(&pack(dir, capture), options),
        rows,
        Same::All,
    );
    assert_same("in two files", &said(&split(dir, &all)), rows, Same::All);
    assert_same("each twice", &said(&[save(dir, "twice", &twice(&all))]), rows, Same::Ends);
    for seed in SEEDS {
        let file = save(dir, "mixed", &mixed(&all, seed));
        assert_same(&format!("in another order, {seed}"), &said(&[file]), rows, Same::Ends);
        let file = cut(dir, &save(dir, "all", &mixed(&twice(&all), seed)));
        assert_same(&format!("mixed, twice, cut, {seed}"), &said(&[file]), rows, Same::WithoutHeads);
    }
}

/// The results that have to be the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Same {
    All,
    /// The ending of each connection and its octets, but not the number of packets.
    Ends,
    /// The same, except for facts that only the heads of HTTP messages show. If heads are cut off, or come out of
    /// order, the received part of an answer counts as complete. Then a silence after it counts as the server's.
    WithoutHeads,
}

impl Same {
    fn holds(self, said: &Row, row: &Row) -> bool {
        match self {
            Self::All => said == row,
            Self::Ends => ends(said) == ends(row),
            Self::WithoutHeads => ends(&without_heads(said)) == ends(&without_heads(row)),
        }
    }
}

fn ends(row: &Row) -> Row {
    Row { start: 0.0, packets_to_client: 0, packets_to_server: 0, tls_version: None, tls_resumed: None, ..row.clone() }
}

fn without_heads(row: &Row) -> Row {
    let mut row = row.clone();
    if row.requests > 0 && row.bytes_to_client > 0 {
        row.delivered = true;
        match (row.ending.as_str(), row.phase.as_str()) {
            ("TIMEOUT", "in_answer") | ("OPEN", "idle") => {
                (row.ending, row.phase) = ("TIMEOUT".to_owned(), "idle".to_owned());
            }
            (_, "in_answer") => "after_answer".clone_into(&mut row.phase),
            _ => {}
        }
    }
    row
}

fn assert_same(what: &str, said: &[Row], rows: &[Row], same: Same) {
    let differ: Vec<_> = said.iter().zip(rows).filter(|(said, row)| !same.holds(said, row)).collect();
    let lines: Vec<_> = differ.iter().map(|(said, row)| format!("{}\n  not {}", line(said), line(row))).collect();
    let lines = lines.join("\n");
    assert!(said.len() == rows.len() && differ.is_empty(), "{what}: {} of {} rows\n{lines}", said.len(), rows.len());
}

fn line(row: &Row) -> String {
    let Row { client, server, ending, phase, closed_by, delivered, requests, bytes_to_client, bytes_to_server, .. } =
        row;
    let by = closed_by.as_deref().unwrap_or("neither");
    format!("{client} {server} {ending} {phase} by {by} {delivered} {requests} {bytes_to_client}/{bytes_to_server}")
}

fn cut(dir: &Path, capture: &Path) -> PathBuf {
    let file = dir.join("cut.pcapng");
    run(program("editcap").args(["-s", "96"]).args([capture, &file]));
    file
}

fn pack(dir: &Path, capture: &Path) -> PathBuf {
    let file = dir.join("packed.gz");
    let out = File::create(&file).unwrap();
    assert!(program("gzip").arg("-c").arg(capture).stdout(Stdio::from(out)).status().unwrap().success());
    assert_eq!(fs::read(&file).unwrap()[..2], [0x1f, 0x8b]);
    file
}

/// Every other frame in each.
fn split(dir: &Path, all: &[Captured]) -> [PathBuf; 2] {
    [0, 1].map(|first| {
        let half: Vec<_> = all.iter().skip(first).step_by(2).cloned().collect();
        save(dir, ["even", "odd"][first], &half)
    })
}

/// Each frame twice, the second a little later, like the copies of a switch that mirrors packets at its input and at
/// its output.
fn twice(all: &[Captured]) -> Vec<Captured> {
    let copy = |frame: &Captured| Captured { time: frame.time + LAG, ..frame.clone() };
    let mut both: Vec<_> = all.iter().cloned().chain(all.iter().map(copy)).collect();
    both.sort_by_key(|frame| frame.time);
    both
}

/// Delays each frame by up to 0.5 ms, as several queues do that are read in turn. SYNs are not delayed, because packets
/// captured before the SYN belong to another connection.
fn mixed(all: &[Captured], seed: u64) -> Vec<Captured> {
    let mut random = seed;
    let mut delay = |frame: &Captured| {
        // A generator of Marsaglia's ("Xorshift RNGs", 2003).
        for shift in [13, -7, 17] {
            random ^= if shift > 0 { random << shift } else { random >> -shift };
        }
        if is_syn(frame) { Duration::ZERO } else { Duration::from_nanos(random % DELAY_MAX_NS) }
    };
    let mut mixed: Vec<_> =
        all.iter().map(|frame| Captured { time: frame.time + delay(frame), ..frame.clone() }).collect();
    mixed.sort_by_key(|frame| frame.time);
    mixed
}

fn is_syn(Captured { time, len, data }: &Captured) -> bool {
    let frame = Frame { time: *time, link: LinkType::ETHERNET, len: *len, data };
    let decoded = Decoder::default().decode(&frame);
    matches!(decoded, Decoded::Segment(it) if it.flags.contains(Flags::SYN) && !it.flags.contains(Flags::ACK))
}

const DELAY_MAX_NS: u64 = 500_000;
const SEEDS: [u64; 4] = [0x2545_f491, 0x9e37_79b9, 0x1234_5678, 0xb5ad_4ece];

const LAG: Duration = Duration::from_micros(30);

fn save(dir: &Path, name: &str, frames: &[Captured]) -> PathBuf {
    let file = dir.join(format!("{name}.pcap"));
    write(&file, frames);
    file
}
