//! Users of several workers that run a flow.

use std::collections::BTreeMap;
use std::fs;

use watari_bench_engine::ending::EndingKind;
use watari_bench_engine::plan::{Pace, Plan, Work};
use watari_bench_engine::schedule::{Rate, Schedule, Spacing};

use crate::server::Server;
use crate::support::{cluster, fleet, plan, requests, run, workers};

/// Every user requests its own path twice, with a think time between. Then it requests the path that it took from the
/// response.
const FLOW: &str = "\
[[step]]
name = 'own'
uri = '/own/${user}'
repeat = 2
think = { shares = ['1ms', '5ms'] }
take.word = { regex = '(o.)' }
[[step]]
name = 'send'
uri = '/${word}'
body_file = 'body'
";

/// As a controller reads it. The files are removed before the run.
fn of_file(server: &Server, text: &str) -> Work {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("flow.toml");
    fs::write(&file, text).unwrap();
    fs::write(dir.path().join("body"), "").unwrap();
    Work::flow(&file, &format!("http://{}/", server.address), 7).unwrap()
}

fn plan_of(server: &Server, text: &str, users: u64) -> Plan {
    Plan { work: of_file(server, text), ..plan(server, "- / 0\n", 6, requests(users)) }
}

/// The number of requests for each path with `users` users, however they are distributed.
fn expected(users: u64) -> BTreeMap<String, u64> {
    let own = (0..users).map(|user| (format!("/own/{user}"), 2));
    own.chain([("/ok".to_owned(), users)]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_are_dealt_out_as_one_process_would_have_them() {
    for count in [1, 3] {
        let (dir, server) = (cluster(), Server::start());
        let workers = workers(dir.path(), count).await;
        let finished = run(&fleet(dir.path(), "lead", &workers), plan_of(&server, FLOW, 41)).await;
        assert_eq!(server.requests(), expected(41));
        let total = finished.load.tally.total();
        assert_eq!((total.requests, total.endings.of(EndingKind::Normal)), (123, 123));
        assert_eq!([0, 1].map(|step| finished.load.tally.by_class(step).requests), [82, 41]);
        let flows = finished.load.tally.flows();
        assert_eq!((flows.done.count(), flows.failed), (41, 0));
        assert_eq!((finished.load.causes, finished.load.tally.given_up()), (BTreeMap::new(), 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_of_an_open_loop_are_dealt_out_too() {
    let (dir, server) = (cluster(), Server::start());
    let workers = workers(dir.path(), 2).await;
    let schedule = Schedule::new(Rate::constant(500.0).unwrap(), Spacing::Even);
    let plan = Plan { pace: Pace::Open { schedule, connections_max: 10 }, ..plan_of(&server, FLOW, 31) };
    let finished = run(&fleet(dir.path(), "lead", &workers), plan).await;
    assert_eq!(server.requests(), expected(31));
    assert_eq!(finished.load.tally.total().requests, 93);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_users_cannot_go_on_is_told_of_all_workers() {
    let (dir, server) = (cluster(), Server::start());
    let workers = workers(dir.path(), 2).await;
    let stuck = FLOW.replace("(o.)", "(x)");
    let finished = run(&fleet(dir.path(), "lead", &workers), plan_of(&server, &stuck, 9)).await;
    let why = "step own: no value for \"word\": the response does not contain it".to_owned();
    assert_eq!((finished.load.causes, finished.load.tally.flows().failed), (BTreeMap::from([(why, 9)]), 9));
    assert_eq!((server.total(), finished.load.tally.total().endings.of(EndingKind::Local)), (9, 9));
}
