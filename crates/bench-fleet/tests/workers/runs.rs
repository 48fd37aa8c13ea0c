//! Loads of several workers.

use std::time::Duration;

use watari_bench_engine::ending::EndingKind;
use watari_bench_engine::plan::{Pace, Plan, Stop};
use watari_bench_engine::schedule::{Rate, Schedule, Spacing};
use watari_bench_fleet::fleet::Fleet;

use crate::server::Server;
use crate::support::{cluster, finish, fleet, plan, requests, run, start, wait_until, workers};

const LIST: &str = "- /a 0 weight=3\n- /b 0\n";

/// Longer than any test.
const ENDLESS: Stop = Stop { requests: None, after: Some(Duration::from_hours(1)) };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_together_ask_for_what_the_list_says() {
    for count in [1, 2, 3] {
        let (dir, server) = (cluster(), Server::start());
        let workers = workers(dir.path(), count).await;
        let finished = run(&fleet(dir.path(), "lead", &workers), plan(&server, LIST, 7, requests(1003))).await;
        // In any prefix of the requests, each line has its share to within one. 1,003 requests are 250 rounds and
        // three.
        let asked = server.requests();
        assert_eq!((asked["/a"] + asked["/b"], asked["/b"].abs_diff(251)), (1003, 0), "{asked:?}");
        let total = finished.load.tally.total();
        assert_eq!((total.requests, total.endings.of(EndingKind::Normal)), (1003, 1003));
        assert_eq!((total.latency.count(), total.connections.opened), (1003, 7));
        assert_eq!(finished.load.tally.given_up(), 0);
        let each: Vec<_> = finished.workers.iter().map(|worker| worker.requests).collect();
        assert_eq!((each.len(), each.iter().sum::<u64>()), (count, 1003));
        assert!(each.iter().all(|requests| (1003 / count as u64..=1003 / count as u64 + 1).contains(requests)));
        assert!(finished.workers.iter().all(|worker| worker.lost.is_none()), "{:?}", finished.workers);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_loop_is_shared_out_and_remains_one_schedule() {
    let (dir, server) = (cluster(), Server::start());
    let workers = workers(dir.path(), 3).await;
    let schedule = Schedule::new(Rate::constant(1000.0).unwrap(), Spacing::Poisson { seed: 7 });
    let due: Vec<_> = schedule.times().take(500).collect();
    let pace = Pace::Open { schedule, connections_max: 30 };
    let finished =
        run(&fleet(dir.path(), "lead", &workers), Plan { pace, ..plan(&server, LIST, 1, requests(500)) }).await;
    assert_eq!((server.total(), finished.load.tally.total().requests), (500, 500));
    assert_eq!(finished.load.tally.lags().count(), 500);
    assert!(finished.load.elapsed >= due[499]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn staggered_workers_begin_one_after_the_other() {
    let (dir, server) = (cluster(), Server::start());
    let workers = workers(dir.path(), 2).await;
    let Fleet::Workers { addresses, identity, .. } = fleet(dir.path(), "lead", &workers) else { unreachable!() };
    let fleet = Fleet::Workers { addresses, identity, stagger: Duration::from_secs(1) };
    let stop = Stop { requests: None, after: Some(Duration::from_millis(1200)) };
    let finished = run(&fleet, plan(&server, LIST, 4, stop)).await;
    let points = finished.load.tally.series().points();
    // The second worker makes no connection in the first second.
    assert!(points[0].opened <= 2, "{}", points[0].opened);
    assert_eq!(points.iter().map(|point| point.opened).sum::<u64>(), 4);
    assert_eq!(finished.workers.iter().map(|worker| worker.after.as_secs()).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(server.total(), finished.load.tally.total().requests);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_cut_is_told() {
    let (dir, server) = (cluster(), Server::start());
    let workers = workers(dir.path(), 2).await;
    let running = start(&fleet(dir.path(), "lead", &workers), plan(&server, LIST, 4, ENDLESS)).await.unwrap();
    // The run shows the workers' tallies while it is in progress.
    wait_until("no worker reports", || running.tally().total().requests > 0).await;
    running.cut();
    let finished = finish(running).await;
    assert!(finished.workers.iter().all(|worker| worker.lost.is_none()), "{:?}", finished.workers);
    let told = finished.load.tally.total().requests;
    assert!(told <= server.total() && server.total() <= told + finished.load.tally.given_up(), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_lost_does_not_end_the_run() {
    let (dir, server) = (cluster(), Server::start());
    let mut workers = workers(dir.path(), 2).await;
    let running = start(&fleet(dir.path(), "lead", &workers), plan(&server, LIST, 4, ENDLESS)).await.unwrap();
    wait_until("no worker reports", || running.tally().total().requests > 0).await;
    drop(workers.pop());
    let before = running.tally().total().requests;
    wait_until("the other goes on", || running.tally().total().requests > before + 100).await;
    running.cut();
    let finished = finish(running).await;
    let lost: Vec<_> = finished.workers.iter().map(|worker| worker.lost.as_deref()).collect();
    assert_eq!(lost, [None, Some("the connection was closed")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_drops_the_load_of_a_controller_that_goes_away() {
    let (dir, server) = (cluster(), Server::start());
    let workers = workers(dir.path(), 1).await;
    let fleet = fleet(dir.path(), "lead", &workers);
    let running = start(&fleet, plan(&server, LIST, 4, ENDLESS)).await.unwrap();
    wait_until("nothing is asked", || server.total() > 0).await;
    let busy = start(&fleet, plan(&server, LIST, 4, requests(1))).await.unwrap_err().to_string();
    assert!(busy.ends_with(": it is busy with the load of another controller"), "{busy}");
    drop(running);
    // The worker is free again, and nothing of the other load is left.
    let mut free = None;
    while free.is_none() {
        free = start(&fleet, plan(&server, "- /c 0\n", 1, requests(10))).await.ok();
    }
    let finished = finish(free.unwrap()).await;
    assert_eq!((finished.load.tally.total().requests, server.requests()["/c"]), (10, 10));
}
