#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::Value;
use watari_endings::{Ending, Histogram, Profile, ServerState, Tally};
use watari_packets::Timestamp;

use super::state::{LATEST_S, SENSORS_MAX};
use super::*;
use crate::report::{Health, Report};

const FIRST_S: u64 = 1_000;

fn server() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 443))
}

fn report(at_s: u64, second: u64) -> Report {
    let tally = Tally { opened: 1, ..Tally::default() };
    Report { at: at(at_s), tallies: vec![(server(), second, tally)], health: Health::default() }
}

fn at(second: u64) -> Timestamp {
    Timestamp(second * 1_000_000_000)
}

/// The seconds of the server in the view.
fn shown(board: &Board) -> Vec<u64> {
    let view = serde_json::to_value(board.view()).unwrap();
    view["servers"][0]["rows"].as_array().unwrap().iter().map(|row| row[0].as_u64().unwrap()).collect()
}

fn sensor(board: &Board) -> Value {
    serde_json::to_value(board.view()).unwrap()["sensors"][0].clone()
}

#[test]
fn a_row_has_what_its_columns_say() {
    let mut tally = Tally { opened: 5, answered: 3, unanswered: 2, tls_full: 1, tls_resumed: 4, ..Tally::default() };
    (tally.s_normal, tally.client_abort, tally.timeout, tally.failed, tally.evicted) = (6, 7, 8, 9, 10);
    tally.endings = std::array::from_fn(|at| 20 + at as u32);
    tally.responses.0 = std::array::from_fn(|at| 40 + at as u32);
    tally.response_max_us = 60_000_000;
    let mut board = Board::new(Profile::lab());
    let report = Report { tallies: vec![(server(), FIRST_S, tally)], ..report(FIRST_S, FIRST_S) };
    board.take("here", 0, &Report { at: at(FIRST_S - 1), tallies: Vec::new(), health: Health::default() });
    board.take("here", 0, &report);
    // A second is repeated until it is complete, and while it is one of the latest.
    let later = FIRST_S + 2;
    board.take("here", 0, &Report { at: at(later), tallies: Vec::new(), health: Health::default() });
    board.advance(at(later));
    let view = serde_json::to_value(board.view()).unwrap();
    let shown = &view["servers"][0];
    let (columns, row) = (view["columns"].as_array().unwrap(), shown["rows"][0].as_array().unwrap());
    assert_eq!(columns.len(), row.len());
    let of = |name: &str| row[columns.iter().position(|it| it == name).unwrap()].as_u64().unwrap();
    assert_eq!(["t", "x", "y", "z", "failed", "evicted"].map(of), [FIRST_S, 6, 7, 8, 9, 10]);
    assert_eq!(["opened", "answered", "unanswered", "tls_full", "tls_resumed"].map(of), [5, 3, 2, 1, 4]);
    for (at, ending) in Ending::ALL.into_iter().enumerate() {
        assert_eq!(of(ending.as_str()), 20 + at as u64);
    }
    for bucket in 0..Histogram::BUCKETS as u64 {
        assert_eq!(of(&format!("response_{bucket}")), 40 + bucket);
    }
    let bounds_ms = view["response_bounds_ms"].as_array().unwrap();
    assert_eq!((bounds_ms.len(), bounds_ms[3].as_f64()), (Histogram::BUCKETS - 1, Some(1.0)));
    let spans = shown["spans"].as_array().unwrap();
    let times = |name: &str| spans.iter().map(|span| span[name].as_f64().unwrap()).collect::<Vec<_>>();
    assert!(times("response_p99_ms").iter().all(|ms| (50_000.0..60_000.0).contains(ms)));
    assert!(times("response_p50_ms").iter().all(|ms| (100.0..200.0).contains(ms)));
}

#[test]
fn seconds_that_change_late_are_shown_for_a_while() {
    let mut board = Board::new(Profile::lab());
    for second in FIRST_S..=FIRST_S + 60 {
        assert!(board.take("here", 0, &report(second, second)));
        board.advance(at(second));
    }
    let now = FIRST_S + 61;
    board.take("here", 0, &report(now, FIRST_S + 7));
    board.advance(at(now));
    let latest: Vec<_> = (now - LATEST_S..now).collect();
    assert_eq!(shown(&board), [&[FIRST_S + 7], &latest[..]].concat());
    let later = now + LATEST_S + 1;
    board.take("here", 0, &report(later, later));
    board.advance(at(later));
    assert_eq!(shown(&board), [later]);
}

#[test]
fn time_goes_on_as_far_as_all_threads_have_come() {
    let mut board = Board::new(Profile::lab());
    let last_report = |board: &Board| sensor(board)["last_report"].as_f64().unwrap();
    for part in [0, 1] {
        board.take("here", part, &report(FIRST_S, FIRST_S));
    }
    board.take("here", 1, &report(FIRST_S + 8, FIRST_S + 8));
    assert_eq!((last_report(&board), sensor(&board)["hanging"].as_u64()), (1_000.0, Some(0)));
    // This thread hangs.
    board.take("here", 1, &report(FIRST_S + 11, FIRST_S + 11));
    assert_eq!((last_report(&board), sensor(&board)["hanging"].as_u64()), (1_011.0, Some(1)));
    board.take("here", 0, &report(FIRST_S + 11, FIRST_S + 11));
    assert_eq!(sensor(&board)["hanging"].as_u64(), Some(0));
    // After a restart the sensor has one other thread.
    board.renew("here");
    board.take("here", 0, &report(FIRST_S + 12, FIRST_S + 12));
    assert_eq!((last_report(&board), sensor(&board)["hanging"].as_u64()), (1_012.0, Some(0)));
}

/// Two threads. One of them sees the new clock first.
#[test]
fn servers_are_judged_after_a_clock_is_set_back() {
    let mut board = Board::new(Profile::lab());
    let good = Tally { opened: 9, answered: 9, s_normal: 9, ..Tally::default() };
    let bad = Tally { opened: 9, unanswered: 9, ..Tally::default() };
    let mut pass = |seconds: std::ops::Range<u64>, parts: &[u8], tally: Tally| {
        for second in seconds {
            for part in parts {
                let tallies = vec![(server(), second, tally)];
                board.take("here", *part, &Report { at: at(second), tallies, health: Health::default() });
            }
            board.advance(at(second + 1));
        }
        let states: Vec<_> = std::iter::from_fn(|| board.poll()).map(|(_, change)| change.verdict.state).collect();
        (states, sensor(&board)["last_report"].as_f64().unwrap())
    };
    assert_eq!(pass(5_000..5_060, &[0, 1], good), (vec![ServerState::Normal], 5_059.0));
    assert_eq!(pass(1_400..1_401, &[0], good), (vec![], 5_059.0));
    assert_eq!(pass(1_401..1_403, &[0, 1], good), (vec![], 1_402.0));
    assert_eq!(pass(1_403..1_420, &[0, 1], bad), (vec![ServerState::Stopped], 1_419.0));
    assert_eq!(pass(1_420..1_440, &[0, 1], good), (vec![ServerState::Normal], 1_439.0));
    // A delay within the limit for threads sets nothing back.
    assert_eq!(pass(1_430..1_431, &[0], good), (vec![], 1_439.0));
}

/// Offsets below the limit for refusals.
#[test]
fn clocks_that_are_apart_change_nothing() {
    for (now, last_report) in [(1_000, 1_050), (1_050, 1_000)] {
        let mut board = Board::new(Profile::lab());
        let good = Tally { opened: 9, answered: 9, s_normal: 9, ..Tally::default() };
        for second in 0..20 {
            let tallies = vec![(server(), last_report + second, good)];
            board.take("there", 0, &Report { at: at(last_report + second), tallies, health: Health::default() });
            board.advance(at(now + second));
        }
        assert_eq!(board.poll().map(|(_, change)| change.verdict.state), Some(ServerState::Normal), "{last_report}");
        assert_eq!(shown(&board), (last_report + 14..last_report + 20).collect::<Vec<_>>());
    }
}

#[test]
fn a_thread_that_has_ended_is_not_waited_for() {
    let mut board = Board::new(Profile::lab());
    for part in [0, 1] {
        board.take("here", part, &report(FIRST_S, FIRST_S));
    }
    board.leave("here", 1);
    board.take("here", 0, &report(FIRST_S + 1, FIRST_S + 1));
    let entry = sensor(&board);
    assert_eq!((entry["last_report"].as_f64(), entry["hanging"].as_u64()), (Some(1_001.0), Some(0)));
    let open = |board: &Board| board.entries().map(|entry| entry.server.open()).sum::<u32>();
    assert_eq!(open(&board), 3);
    board.renew("here");
    assert_eq!(open(&board), 0, "no event shows how they end");
}

#[test]
fn a_sensor_that_is_away_gives_its_place_to_another() {
    let mut board = Board::new(Profile::lab());
    for number in 0..SENSORS_MAX as u64 {
        let name = format!("s{number}");
        board.link(&name).unwrap().is_connected = true;
        board.take(&name, 0, &report(FIRST_S + number, FIRST_S));
    }
    assert!(board.link("new").is_none());
    for name in ["s9", "s8"] {
        board.link(name).unwrap().is_connected = false;
    }
    assert!(board.link("new").is_some());
    let names: BTreeSet<_> = board.links().map(|(name, _)| name.to_owned()).collect();
    assert!(names.contains("s9") && !names.contains("s8") && names.len() == SENSORS_MAX);
}
