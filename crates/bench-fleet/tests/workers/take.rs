//! Taking tallies from a running load.

use std::time::Duration;

use tokio::task::block_in_place;
use watari_bench_engine::ending::EndingKind;
use watari_bench_engine::plan::{Plan, Stop, Timeouts};
use watari_bench_fleet::fleet::Fleet;

use crate::server::Server;
use crate::support::{cluster, finish, fleet, plan, requests, start, wait_until, workers};

/// A plan that runs, and waits for responses, longer than any test.
fn patient(server: &Server) -> Plan {
    let long = Duration::from_hours(1);
    let stop = Stop { requests: None, after: Some(long) };
    Plan { timeouts: Timeouts { connect: long, response: long }, ..plan(server, "- /a 0\n", 6, stop) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_taken_once() {
    let (dir, server) = (cluster(), Server::answering(5000));
    let workers = workers(dir.path(), 3).await;
    for fleet in [fleet(dir.path(), "lead", &workers), Fleet::Here] {
        let server = if matches!(fleet, Fleet::Here) { &Server::answering(5000) } else { &server };
        let mut running = start(&fleet, patient(server)).await.unwrap();
        let (mut all, mut before) = (0, Duration::ZERO);
        wait_until("not all is taken", || {
            let taken = block_in_place(|| running.take()).unwrap();
            let total = taken.tally.total();
            assert_eq!(total.requests, total.endings.of(EndingKind::Normal));
            // Zero before the common start.
            assert!(taken.at > before || taken.at.is_zero());
            (all, before) = (all + total.requests, taken.at);
            all >= 5000
        })
        .await;
        wait_until("not all connections wait", || server.total() == 5006).await;
        assert_eq!((all, block_in_place(|| running.take()).unwrap().tally.total().requests), (5000, 0));
        running.cut();
        let finished = finish(running).await;
        assert_eq!((finished.load.tally.total().requests, finished.load.tally.given_up()), (0, 6));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_load_that_lost_a_worker_nothing_is_taken() {
    let (dir, server) = (cluster(), Server::start());
    let mut workers = workers(dir.path(), 2).await;
    let second = workers[1].address;
    let mut running = start(&fleet(dir.path(), "lead", &workers), patient(&server)).await.unwrap();
    block_in_place(|| running.take()).unwrap();
    drop(workers.pop());
    let mut noticed = None;
    wait_until("no loss is reported", || {
        noticed = block_in_place(|| running.take()).err();
        noticed.is_some()
    })
    .await;
    let lost = noticed.unwrap();
    assert_eq!(lost.to_string(), format!("w2 ({second}) was lost: the connection was closed"));
    // Later calls return the same error, although the other worker continues.
    assert_eq!(block_in_place(|| running.take()).unwrap_err(), lost);
    running.cut();
    finish(running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_load_that_is_over_nothing_is_taken() {
    let (dir, server) = (cluster(), Server::start());
    let workers = workers(dir.path(), 1).await;
    let plan = plan(&server, "- /a 0\n", 2, requests(10));
    let mut running = start(&fleet(dir.path(), "lead", &workers), plan).await.unwrap();
    wait_until("it goes on", || running.is_finished()).await;
    let lost = block_in_place(|| running.take()).unwrap_err();
    assert_eq!(lost.why, "it sends no results");
    assert_eq!(finish(running).await.load.tally.total().requests, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_done_is_free_at_once() {
    let (dir, server) = (cluster(), Server::start());
    let workers = workers(dir.path(), 2).await;
    let fleet = fleet(dir.path(), "lead", &workers);
    for _ in 0..20 {
        let running = start(&fleet, plan(&server, "- /a 0\n", 2, requests(10))).await.unwrap();
        assert_eq!(finish(running).await.load.tally.total().requests, 10);
    }
    assert_eq!(server.total(), 200);
}
