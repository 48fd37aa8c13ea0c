//! Users with several requests, against a server that stores sessions.

use std::sync::Arc;
use std::time::Duration;

use watari_bench_engine::ending::{Ending, EndingKind, Phase, Side};
use watari_bench_engine::list::AccessList;
use watari_bench_engine::load::{Finished, Load};
use watari_bench_engine::plan::{Pace, Plan, Protocol, Stop, Timeouts};
use watari_bench_engine::requests::{Requests, Sites};
use watari_bench_engine::sample::HandshakeKind::{Full, Resumed};
use watari_bench_engine::shares::Shares;
use watari_bench_engine::site::Site;
use watari_bench_engine::tls::{Resume, TlsOptions};
use watari_bench_engine::users::{Count, Settings};

use crate::server::Server;

const DURATION: Duration = Duration::from_millis(500);

fn run(server: &Server, count: Count, resume: Resume, connections_max: usize) -> Finished {
    Load::start(plan(server, count, resume, connections_max), None).unwrap().finish()
}

fn plan(server: &Server, count: Count, resume: Resume, connections_max: usize) -> Plan {
    let site = Arc::new(Site::resolve(&format!("https://{}/", server.address)).unwrap().0);
    let list = AccessList::parse("list", "- / 1\n", |_| unreachable!("no line names a file")).unwrap();
    let requests = Requests::prepare(&list, &Sites { plain: None, tls: Some(site) }).unwrap();
    let waits = Shares::new(vec![Duration::from_millis(20), Duration::from_millis(60)], 1).unwrap();
    Plan {
        work: requests.into(),
        sources: None,
        pace: Pace::Users { settings: Settings::new(100.0, count, DURATION, 3, waits).unwrap(), connections_max },
        stop: Stop::default(),
        protocol: Protocol::Http1 { requests_per_connection: Some(1), pipeline: 1 },
        tls: TlsOptions { resume, ..TlsOptions::default() },
        timeouts: Timeouts::default(),
        threads: 2,
    }
}

fn server() -> Server {
    Server::tls(|_| (200, String::new(), "hello".to_owned()))
}

#[test]
fn users_come_three_times_and_resume_their_own_session() {
    let server = server();
    let finished = run(&server, Count::Users, Resume::Reuse, 100);
    let total = finished.tally.total();
    assert_eq!((total.requests, total.endings.of(EndingKind::Normal)), (150, 150));
    assert_eq!((total.connections.handshakes(Full), total.connections.handshakes(Resumed)), (50, 100));
    assert_eq!(server.asked().len(), 150);
    assert_eq!(finished.tally.lags().count(), 150);
}

#[test]
fn returning_users_take_the_place_of_new_ones() {
    let finished = run(&server(), Count::Requests, Resume::Reuse, 100);
    let total = finished.tally.total();
    let users = total.connections.handshakes(Full);
    assert_eq!((total.requests, total.connections.handshakes(Resumed)), (3 * users, 2 * users));
    // Of the 50 requests that begin within the time, at least those of the first 20 ms are from new users.
    assert!((2..50).contains(&users), "{users}");
}

#[test]
fn users_may_begin_anew_each_time() {
    let total = run(&server(), Count::Users, Resume::Full, 100).tally.total();
    assert_eq!((total.connections.handshakes(Full), total.connections.handshakes(Resumed)), (150, 0));
}

#[test]
fn users_wait_where_there_are_too_few_connections() {
    let finished = run(&server(), Count::Users, Resume::Reuse, 2);
    assert_eq!(finished.tally.total().endings.of(EndingKind::Normal), 150);
}

#[test]
fn users_without_a_connection_time_out_and_return() {
    // Accepts connections, and sends nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server { address: silent.local_addr().unwrap(), ..server() };
    let timeout = Duration::from_millis(50);
    let timeouts = Timeouts { connect: timeout, response: timeout };
    let plan = Plan { timeouts, ..plan(&server, Count::Users, Resume::Reuse, 2) };
    let finished = Load::start(plan, None).unwrap().finish();
    let endings = &finished.tally.total().endings;
    assert_eq!((finished.tally.total().requests, endings.of(EndingKind::Timeout)), (150, 150));
    let given_up = Ending::new(EndingKind::Timeout, Phase::Connect, Side::Client);
    let count = endings.iter().find(|(ending, _)| *ending == given_up).map_or(0, |(_, count)| count);
    assert!(count > 0 && count < 150, "{count}");
}

#[test]
fn a_user_whom_nobody_answers_comes_back_all_the_same() {
    let refusing = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server { address: refusing.local_addr().unwrap(), ..server() };
    drop(refusing);
    let total = run(&server, Count::Users, Resume::Reuse, 100).tally.total();
    assert_eq!((total.requests, total.endings.of(EndingKind::Refused)), (150, 150));
}
