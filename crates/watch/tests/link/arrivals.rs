//! Reports of sensors reach the board.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use watari_endings::{Profile, ServerState, Tally};
use watari_packets::Timestamp;
use watari_watch::board::Board;
use watari_watch::link::{Clock, Judge, Options, Reporter};
use watari_watch::report::Report;

use crate::support::{
    NOW_S, Watching, all_taken, anywhere, clock_at, cluster, identity, new_judge, options, report, report_of, server,
    start, wait_until,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_sensors_have_one_board() {
    let dir = cluster();
    let watching = Watching::start(dir.path());
    let (first, second) = (start(dir.path(), "s1", watching.address), start(dir.path(), "s2", watching.address));
    // Both sensors watch the same server. One has two capture threads.
    first.report(0, &report(NOW_S - 2, 3));
    first.report(1, &report(NOW_S - 2, 4));
    first.report(0, &report(NOW_S - 1, 5));
    second.report(0, &report(NOW_S - 1, 9));
    all_taken(&first).await;
    all_taken(&second).await;
    assert_eq!(watching.opened("s1"), [(NOW_S - 2, 7), (NOW_S - 1, 5)]);
    assert_eq!(watching.opened("s2"), [(NOW_S - 1, 9)]);
    let counts = watching.judge.counts();
    assert_eq!((counts.connected, counts.reports, counts.tallies, counts.refused), (2, 4, 4, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sensor_that_ends_sends_the_rest_and_is_away() {
    let dir = cluster();
    let watching = Watching::start(dir.path());
    let reporter = start(dir.path(), "s1", watching.address);
    reporter.report(0, &report(NOW_S - 1, 3));
    let counts = reporter.finish(Duration::from_mins(1)).await;
    assert_eq!((counts.is_untaken, counts.reported, counts.lost), (false, 1, 0));
    wait_until("the sensor is away", || watching.sensor("s1")["away"] == true).await;
    assert_eq!(watching.opened("s1"), [(NOW_S - 1, 3)], "its servers are as they were");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_without_a_judge_takes_no_longer_than_it_may() {
    let dir = cluster();
    let mut watching = Watching::start(dir.path());
    watching.stop().await;
    let reporter = start(dir.path(), "s1", watching.address);
    reporter.report(0, &report(NOW_S, 3));
    assert!(reporter.finish(Duration::from_millis(50)).await.is_untaken);
    // Without reports there is nothing to wait for.
    let reporter = start(dir.path(), "s1", watching.address);
    assert!(!reporter.finish(Duration::from_hours(1)).await.is_untaken);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_report_shows_that_the_sensor_runs() {
    let dir = cluster();
    let watching = Watching::start(dir.path());
    let reporter = start(dir.path(), "s1", watching.address);
    let at = Timestamp(NOW_S * 1_000_000_000);
    reporter.report(0, &Report { tallies: Vec::new(), at, ..report(NOW_S, 0) });
    all_taken(&reporter).await;
    let sensor = watching.sensor("s1");
    assert_eq!((&sensor["last_report"], &sensor["away"]), (&seconds(NOW_S), &false.into()));
}

fn seconds(at_s: u64) -> serde_json::Value {
    format!("{at_s}.0").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_that_are_apart_are_shown() {
    let dir = cluster();
    let watching = Watching::start(dir.path());
    let ahead = Options { clock: clock_at(NOW_S + 5), ..options() };
    let identity = identity(dir.path(), "s1");
    let _reporter = Reporter::start(watching.address.to_string(), identity, ahead).unwrap();
    // The error is at most half of the shortest round trip.
    let offset = || watching.sensor("s1")["clock_offset_s"].as_f64();
    wait_until("the offset is known", || offset().is_some_and(|offset| (offset - 5.0).abs() < 0.5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_that_cannot_be_are_refused_and_counted() {
    let dir = cluster();
    let watching = Watching::start(dir.path());
    let reporter = start(dir.path(), "s1", watching.address);
    let mut odd = report(NOW_S, 1);
    for second in [0, 1, NOW_S - 100_000, NOW_S + 61, u64::MAX] {
        odd.tallies.push((server(), second, odd.tallies[0].2));
    }
    odd.at = Timestamp(u64::MAX);
    reporter.report(0, &odd);
    all_taken(&reporter).await;
    assert_eq!(watching.opened("s1"), [(NOW_S, 1)]);
    let sensor = watching.sensor("s1");
    assert_eq!(sensor["refused"], 5);
    assert_eq!(sensor["last_report"], seconds(NOW_S + 60));
    assert_eq!(watching.sensor("s1")["refused"], 5);
}

/// Seconds while the judge was away are judged as they would have been in time, and reported with their own times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_late_is_judged_second_by_second() {
    let dir = cluster();
    let mut watching = Watching::start(dir.path());
    let reporter = start(dir.path(), "s1", watching.address);
    watching.stop().await;
    let normal =
        Tally { opened: 10, endings: [10, 0, 0, 0, 0, 0, 0, 0, 0], s_normal: 10, answered: 10, ..Tally::default() };
    let stopped = Tally { unanswered: 50, ..Tally::default() };
    for back in (0..300).rev() {
        let tally = if (100..200).contains(&back) { stopped } else { normal };
        reporter.report(0, &report_of(NOW_S - 1 - back, tally));
    }
    let watching = Watching::start_at(dir.path(), watching.address, new_judge());
    all_taken(&reporter).await;
    let mut board = watching.board();
    let changes: Vec<_> = std::iter::from_fn(|| board.poll()).map(|(_, change)| change.verdict).collect();
    let states: Vec<_> = changes.iter().map(|verdict| verdict.state).collect();
    assert_eq!(states, [ServerState::Normal, ServerState::Stopped, ServerState::Normal]);
    let since_s = |at: usize| changes[at].since.0 / 1_000_000_000;
    assert!((NOW_S - 200..NOW_S - 160).contains(&since_s(1)), "{changes:?}");
    assert!((NOW_S - 100..NOW_S - 60).contains(&since_s(2)), "{changes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_judge_with_the_clock_of_the_system_takes_what_is_now() {
    let dir = cluster();
    let board = Arc::new(Mutex::new(Board::new(Profile::lab())));
    let judge = Judge::new(Arc::clone(&board), Clock::system());
    let watching = Watching::start_at(dir.path(), anywhere(), (judge, board));
    let reporter = start(dir.path(), "s1", watching.address);
    let now_s = Clock::system().now().0 / 1_000_000_000;
    reporter.report(0, &report(now_s, 2));
    all_taken(&reporter).await;
    assert_eq!(watching.opened("s1"), [(now_s, 2)]);
}
