#![allow(clippy::unwrap_used)]

use std::net::{Ipv6Addr, SocketAddr};

use watari_endings::{Counts, Ending, Histogram, Tally};
use watari_link::{decode, encode};
use watari_packets::{Other, Timestamp};

use super::*;
use crate::analysis::FrameCounts;
use crate::report::{Health, Report};

fn health(count: u64) -> Health {
    Health {
        frames: FrameCounts { segments: count, others: [count; Other::ALL.len()] },
        counts: Counts { evicted: count, untracked: count, stray: count },
        dropped: count,
        dropped_by_interface: count,
        uncounted: count,
    }
}

/// Each field has another value, counted from `first`.
fn tally(first: u32) -> Tally {
    let mut count = first;
    let mut next = || {
        count = count.saturating_add(1);
        count
    };
    Tally {
        opened: next(),
        endings: [(); Ending::ALL.len()].map(|()| next()),
        evicted: next(),
        s_normal: next(),
        client_abort: next(),
        timeout: next(),
        failed: next(),
        answered: next(),
        unanswered: next(),
        unanswered_wait_s: next(),
        responses: Histogram([(); Histogram::BUCKETS].map(|()| next())),
        response_us: u64::from(next()) << 32,
        response_max_us: next(),
        tls_full: next(),
        tls_resumed: next(),
        tls_handshakes: next(),
        tls_handshake_us: u64::from(next()) << 32,
        bytes_to_client: u64::from(next()) << 32,
    }
}

fn server() -> SocketAddr {
    (Ipv6Addr::LOCALHOST, 443).into()
}

fn message(report: &Report) -> FromSensor {
    let report = WireReport::of(7, report.at, &report.health, &report.tallies);
    FromSensor::Report { number: 1, before: 2, report: Box::new(report) }
}

#[test]
fn reports_come_as_they_went() {
    let tallies = vec![(server(), 5, tally(0)), (([192, 0, 2, 1], 80).into(), u64::MAX, tally(100))];
    let report = Report { at: Timestamp(6), tallies, health: health(9) };
    let bytes = encode(&message(&report)).unwrap();
    let FromSensor::Report { number: 1, before: 2, report: read } = decode(&bytes[4..]).unwrap() else { panic!() };
    assert_eq!(read.part(), 7);
    assert_eq!(read.into_report().unwrap(), report);
}

#[test]
fn the_fullest_report_fits_and_a_fuller_one_is_refused() {
    let fullest = Tally { response_us: u64::MAX, ..tally(u32::MAX) };
    let mut report = Report { at: Timestamp(u64::MAX), tallies: Vec::new(), health: health(u64::MAX) };
    report.tallies = vec![(server(), u64::MAX, fullest); TALLIES_MAX];
    assert!(encode(&message(&report)).is_ok());
    report.tallies = vec![(server(), 0, Tally::default()); TALLIES_MAX + 1];
    let FromSensor::Report { report, .. } = message(&report) else { panic!() };
    assert_eq!(report.into_report(), Err(BadReport(TALLIES_MAX + 1)));
}

#[test]
fn counts_of_a_sensor_can_be_added_whatever_they_are() {
    let report = Report { at: Timestamp(0), tallies: Vec::new(), health: health(u64::MAX) };
    let FromSensor::Report { report, .. } = message(&report) else { panic!() };
    let mut all = Health::default();
    for _ in 0..256 {
        all += report.clone().into_report().unwrap().health;
    }
    assert!(all.frames.all() > 0);
}

/// A change of one of these bytes needs another version of [`PROTOCOL`].
#[test]
fn the_layout_of_version_3_is_pinned() {
    let report = Report { at: Timestamp(300), tallies: vec![(server(), 5, tally(0))], health: health(9) };
    let layout = hex(&encode(&message(&report)).unwrap());
    assert_eq!(layout, LAYOUT);
    let welcome = FromJudge::Welcome { run: 300, taken: Taken { number: 1, reported: 2, missed: 3 } };
    assert_eq!(hex(&encode(&welcome).unwrap()), "0000000600ac02010203");
    let hello = FromSensor::Hello { run: 300, taken: Taken { number: 1, reported: 2, missed: 3 } };
    assert_eq!(hex(&encode(&hello).unwrap()), "0000000600ac02010203");
    assert_eq!(hex(&encode(&FromJudge::Taken(Taken::default())).unwrap()), "0000000402000000");
    assert_eq!(hex(&encode(&FromJudge::Beat { at_ns: 1 }).unwrap()), "000000020301");
    assert_eq!(hex(&encode(&FromSensor::Beat { clock_offset_ns: Some(-1) }).unwrap()), "00000003020101");
    assert_eq!(hex(&encode(&FromJudge::Refused { why: "x".to_owned() }).unwrap()), "00000003010178");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// Length; message type, number, tallies before; thread, time; health; one tally with its server and its second.
const LAYOUT: &str = concat!(
    "00000065",
    "010102",
    "07ac02",
    "090909090909090909090909090909",
    "01",
    "0100000000000000000000000000000001bb0305",
    "0102030405060708090a0b0c0d0e0f1011",
    "12",
    "131415161718191a1b1c1d1e1f202122232425",
    "80808080e004",
    "27",
    "28292a",
    "80808080b005",
    "80808080c005",
);
