//! Judges that restart, backlogs that overflow, and connections that are replaced.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use watari_link::encode;
use watari_watch::link::wire::{FromJudge, Taken};
use watari_watch::link::{Backoff, Limits, Options, Reporter};

use crate::support::{
    NOW_S, Watching, all_taken, cluster, identity, new_judge, options, report, start, trouble, wait_until,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_cut_costs_nothing() {
    let dir = cluster();
    let mut watching = Watching::start(dir.path());
    let reporter = start(dir.path(), "s1", watching.address);
    let mut expected = Vec::new();
    // The judge is stopped at any point, and the sensor reports meanwhile.
    for round in 0..5 {
        for second in 0..50 {
            let at_s = NOW_S - 250 + round * 50 + second;
            reporter.report(0, &report(at_s, 1));
            expected.push((at_s, 1));
        }
        watching.stop().await;
        let judge = (watching.judge.clone(), Arc::clone(&watching.board));
        watching = Watching::start_at(dir.path(), watching.address, judge);
        wait_until("it is back", || reporter.counts().is_connected).await;
    }
    all_taken(&reporter).await;
    assert_eq!(watching.opened("s1"), expected);
    let (counts, sent) = (watching.judge.counts(), reporter.counts());
    assert_eq!((counts.reports, counts.tallies), (250, 250));
    assert_eq!(watching.sensor("s1")["lost"], 0);
    assert_eq!((sent.reported, sent.lost, sent.judges), (250, 0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_judge_that_is_new_gets_the_past() {
    let dir = cluster();
    let mut watching = Watching::start(dir.path());
    let reporter = start(dir.path(), "s1", watching.address);
    for back in (10..100).rev() {
        reporter.report(0, &report(NOW_S - back, 1));
    }
    all_taken(&reporter).await;
    watching.stop().await;
    for back in (0..10).rev() {
        reporter.report(0, &report(NOW_S - back, 1));
    }
    let watching = Watching::start_at(dir.path(), watching.address, new_judge());
    wait_until("another judge is there", || reporter.counts().judges == 2).await;
    all_taken(&reporter).await;
    let expected: Vec<_> = (0..100).rev().map(|back| (NOW_S - back, 1)).collect();
    assert_eq!(watching.opened("s1"), expected);
    assert_eq!(reporter.counts().lost, 0);
    assert_eq!(watching.sensor("s1")["lost"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_full_backlog_drops_is_counted_on_both_sides() {
    let dir = cluster();
    let mut watching = Watching::start(dir.path());
    watching.stop().await;
    let limits = Limits { len: 4_000, ..Limits::default() };
    let options = Options { limits, ..options() };
    let reporter = Reporter::start(watching.address.to_string(), identity(dir.path(), "s1"), options).unwrap();
    for back in (0..200).rev() {
        reporter.report(0, &report(NOW_S - back, 1));
    }
    let held = reporter.counts();
    assert!(held.lost > 100 && held.lost < 200 && held.held_len <= 4_000, "{held:?}");
    let watching = Watching::start_at(dir.path(), watching.address, new_judge());
    all_taken(&reporter).await;
    let lost = reporter.counts().lost;
    assert_eq!(lost, held.lost);
    let expected: Vec<_> = (0..200 - lost).rev().map(|back| (NOW_S - back, 1)).collect();
    assert_eq!(watching.opened("s1"), expected);
    assert_eq!(watching.sensor("s1")["lost"], lost);
    assert_eq!(watching.sensor("s1")["lost"], lost);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_connection_of_a_sensor_takes_the_place_of_the_first() {
    let dir = cluster();
    let watching = Watching::start(dir.path());
    // Its backoff is longer than this test.
    let backoff = Backoff { first: Duration::from_hours(1), max: Duration::from_hours(1) };
    let address = watching.address.to_string();
    let first = Reporter::start(address, identity(dir.path(), "s1"), Options { backoff, ..options() }).unwrap();
    wait_until("the first is there", || first.counts().is_connected).await;
    let second = start(dir.path(), "s1", watching.address);
    trouble(&first, "another sensor has connected as s1").await;
    second.report(0, &report(NOW_S, 1));
    all_taken(&second).await;
    let counts = watching.judge.counts();
    assert_eq!((counts.connected, counts.replaced, counts.welcomed), (1, 1, 2));
    assert_eq!(watching.sensor("s1")["away"], false);
}

/// If a judge takes nothing, a sensor stores reports up to its limits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_judge_that_is_slow_costs_no_memory() {
    let dir = cluster();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::clone(identity(dir.path(), "j1").server_config()));
    let judge = tokio::spawn(async move {
        let mut stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
        crate::refusals::greet(&mut stream).await;
        let welcome = FromJudge::Welcome { run: 1, taken: Taken::default() };
        crate::refusals::write(&mut stream, &encode(&welcome).unwrap()).await;
        // It reads the hello, and then nothing more.
        stream.read_exact(&mut [0; 8]).await.unwrap();
        std::future::pending::<()>().await;
    });
    let limits = Limits { len: 1 << 20, ..Limits::default() };
    let reporter = Reporter::start(address.to_string(), identity(dir.path(), "s1"), Options { limits, ..options() });
    let reporter = reporter.unwrap();
    wait_until("it is welcome", || reporter.counts().is_connected).await;
    let mut long = report(NOW_S, 1);
    long.tallies = vec![long.tallies[0]; 1_000];
    for _ in 0..1_000 {
        reporter.report(0, &long);
        assert!(reporter.counts().held_len <= 1 << 20);
    }
    let counts = reporter.counts();
    assert!(counts.is_untaken && counts.lost > 900_000, "{counts:?}");
    judge.abort();
}
