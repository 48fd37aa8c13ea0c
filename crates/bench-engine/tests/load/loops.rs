//! Closed and open loops: number, source addresses and times of requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use watari_bench_engine::ending::{Ending, EndingKind, Phase, Side};
use watari_bench_engine::load::{Load, StartError};
use watari_bench_engine::plan::{Pace, Plan, PlanError, Protocol, Stop};
use watari_bench_engine::sample::Family;
use watari_bench_engine::schedule::{Rate, Schedule, Spacing};

use crate::harness::{ANSWERED, Kept, OK, Server, Step, endings, impatient, of_list, one_each, plan, run};
use Step::{Again, Await, Request, Say, Stall};

fn server() -> Server {
    Server::start(&[Request, Say(OK), Again])
}

/// The same for a load of so many connections: none is answered before all have come, so that none is left without a
/// request.
fn server_of(connections: usize) -> Server {
    Server::start(&[Await(connections), Request, Say(OK), Again])
}

#[test]
fn requests_are_as_many_as_asked_for_on_any_number_of_threads() {
    for threads in [1, 3] {
        let server = server_of(7);
        let finished = run(Plan { threads, ..plan(&server.url(), 1000, 7) });
        assert_eq!((endings(&finished), server.requests()), (vec![(ANSWERED, 1000)], 1000));
        assert_eq!(server.clients.lock().unwrap().len(), 7);
        assert_eq!(finished.tally.total().connections.opened, 7);
        assert_eq!(finished.tally.total().body_bytes, 6000);
    }
}

#[test]
fn what_was_taken_is_not_counted_again() {
    let server = server();
    let mut load = Load::start(plan(&server.url(), 1000, 7), None).unwrap();
    let mut taken = 0;
    while !load.is_finished() {
        taken += load.take().total().requests;
    }
    taken += load.take().total().requests;
    let finished = load.finish();
    assert_eq!((taken, finished.tally.total().requests), (1000, 0));
    assert_eq!((finished.tally.given_up(), server.requests()), (0, 1000));
}

#[test]
fn connections_carry_as_many_requests_as_they_are_to() {
    let server = server();
    let protocol = Protocol::Http1 { requests_per_connection: Some(4), pipeline: 1 };
    // This server does not close the connection, so the close has a short timeout.
    let finished = run(impatient(Plan { protocol, ..plan(&server.url(), 40, 5) }));
    assert_eq!((endings(&finished), server.requests()), (vec![(ANSWERED, 40)], 40));
    assert_eq!(server.clients.lock().unwrap().len(), 10);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = server_of(3);
    let protocol = Protocol::Http1 { requests_per_connection: None, pipeline: 8 };
    let finished = run(Plan { protocol, ..plan(&server.url(), 100, 3) });
    assert_eq!((endings(&finished), server.requests()), (vec![(ANSWERED, 100)], 100));
    assert_eq!(server.clients.lock().unwrap().len(), 3);
}

#[test]
fn a_pipeline_goes_no_further_than_its_connection() {
    let server = server();
    let protocol = Protocol::Http1 { requests_per_connection: Some(5), pipeline: 3 };
    let finished = run(impatient(Plan { protocol, ..plan(&server.url(), 20, 1) }));
    assert_eq!((endings(&finished), server.requests()), (vec![(ANSWERED, 20)], 20));
    assert_eq!(server.clients.lock().unwrap().len(), 4);
}

#[test]
fn pipelined_requests_go_to_the_sites_and_from_the_addresses_of_their_lines() {
    let servers = [server(), server()];
    let line = |source: &str, server: &Server| format!("{source} {} 0\n", server.url()).repeat(2);
    let list = line("127.0.0.5", &servers[0]) + &line("127.0.0.6", &servers[0]) + &line("-", &servers[1]);
    let protocol = Protocol::Http1 { requests_per_connection: None, pipeline: 4 };
    let finished = run(Plan { protocol, ..of_list(&list, &[], 60, 1) });
    assert_eq!(endings(&finished), [(ANSWERED, 60)]);
    assert_eq!((servers[0].requests(), servers[1].requests()), (40, 20));
    let came_from = |server: &Server, ip: &str| {
        server.clients.lock().unwrap().iter().filter(|client| client.ip().to_string() == ip).count()
    };
    assert!(came_from(&servers[0], "127.0.0.5") > 0 && came_from(&servers[0], "127.0.0.6") > 0);
    assert_eq!(came_from(&servers[0], "127.0.0.1"), 0);
}

#[test]
fn what_a_server_leaves_of_a_pipeline_when_it_says_that_it_closes_is_asked_again() {
    let server = Server::start(&[
        Request,
        Say(OK),
        Request,
        Say(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
    ]);
    let protocol = Protocol::Http1 { requests_per_connection: None, pipeline: 5 };
    let finished = run(Plan { protocol, ..plan(&server.url(), 10, 1) });
    assert_eq!(endings(&finished), [(ANSWERED, 10)]);
    // Each connection has two responses, and the last connection ends with the run.
    let connections = finished.tally.total().connections;
    assert_eq!((connections.opened, connections.endings.failed()), (5, 0));
}

#[test]
fn what_a_server_cuts_off_in_a_pipeline_is_lost() {
    let server = Server::start(&[Request, Say(OK), Request, Say(OK)]);
    let protocol = Protocol::Http1 { requests_per_connection: None, pipeline: 5 };
    let finished = run(Plan { protocol, ..plan(&server.url(), 10, 1) });
    let total = finished.tally.total();
    assert_eq!((total.requests, total.endings.failed()), (10, 6));
}

#[test]
fn an_open_loop_ends_when_it_is_to_and_not_when_the_next_would_be_due() {
    let server = server();
    for threads in [1, 2] {
        let plan = Plan { threads, ..open(&server.url(), 0.001, 1, 2) };
        let stop = Stop { requests: None, after: Some(Duration::from_millis(100)) };
        let until = run(Plan { stop, ..plan.clone() });
        assert!(until.elapsed >= Duration::from_millis(100), "{:?}", until.elapsed);
        assert_eq!((endings(&until), endings(&run(plan))), (vec![(ANSWERED, 1)], vec![(ANSWERED, 1)]));
    }
}

/// anma-enma, section 2, experiment 1: the mix of the load is exactly the mix of the list, because requests are
/// numbered before they are sent.
#[test]
fn the_mix_of_the_list_is_the_mix_of_the_load() {
    for (ipv6, ipv4) in [(5, 5), (8, 2), (2, 8), (10, 0), (0, 10)] {
        let steps = [Request, Say(OK)];
        let servers = [Server::start(&steps), Server::at("[::1]:0", &steps)];
        let line = |source: &str, server: &Server, count| format!("{source} {} 0\n", server.url()).repeat(count);
        let list = line("::1", &servers[1], ipv6) + &line("127.0.0.5", &servers[0], ipv4);
        let finished = run(one_each(of_list(&list, &[], 200, 20)));
        let count = |family| finished.tally.by_family(family).requests;
        assert_eq!((count(Family::Ipv6), count(Family::Ipv4)), (20 * ipv6 as u64, 20 * ipv4 as u64));
        assert_eq!((servers[1].requests(), servers[0].requests()), (20 * ipv6 as u64, 20 * ipv4 as u64));
        assert_eq!(endings(&finished), [(ANSWERED, 200)]);
        let v4_clients = servers[0].clients.lock().unwrap();
        assert!(v4_clients.iter().all(|client| client.ip().to_string() == "127.0.0.5"));
    }
}

#[test]
fn sources_take_turns() {
    let server = server_of(8);
    let sources = Some("127.0.0.2-127.0.0.4,127.0.1.1".parse().unwrap());
    run(Plan { sources, ..plan(&server.url(), 80, 8) });
    let mut came = BTreeMap::new();
    for client in server.clients.lock().unwrap().iter() {
        *came.entry(client.ip().to_string()).or_insert(0) += 1;
    }
    let expected = ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.1.1"].map(|ip| (ip.to_owned(), 2));
    assert_eq!(came, BTreeMap::from(expected));
}

fn open(url: &str, rate: f64, requests: u64, connections_max: usize) -> Plan {
    let schedule = Schedule::new(Rate::constant(rate).unwrap(), Spacing::Even);
    Plan { pace: Pace::Open { schedule, connections_max }, ..plan(url, requests, 1) }
}

#[test]
fn an_open_loop_sends_what_is_due() {
    let server = server();
    let finished = run(Plan { threads: 2, ..open(&server.url(), 2000.0, 400, 50) });
    assert_eq!((endings(&finished), server.requests()), (vec![(ANSWERED, 400)], 400));
    assert_eq!(finished.tally.lags().count(), 400);
    // The last of 400 requests is due after 199.5 ms.
    assert!(finished.elapsed >= Duration::from_millis(199), "{:?}", finished.elapsed);
}

#[test]
fn what_comes_at_a_rate_is_not_pipelined() {
    let protocol = Protocol::Http1 { requests_per_connection: None, pipeline: 2 };
    let started = Load::start(Plan { protocol, ..open("http://127.0.0.1/", 1.0, 1, 1) }, None);
    assert!(matches!(started, Err(StartError::Plan(PlanError::Pipeline))), "{started:?}");
}

/// Coordinated omission: requests are due although the server stalls, and their wait counts.
#[test]
fn a_stalled_server_shows_in_the_latency_of_all_that_were_due() {
    let server = Server::start(&[Request, Stall]);
    let finished = run(impatient(open(&server.url(), 1000.0, 100, 1)));
    let total = finished.tally.total();
    assert_eq!(total.requests, 100);
    assert_eq!(total.endings.failed(), 100);
    // One connection at a time, 200 ms each. Of the requests due within the first 100 ms, one was sent after that, and
    // the others timed out.
    let given_up = Ending::new(EndingKind::Timeout, Phase::Connect, Side::Client);
    let count = endings(&finished).into_iter().find(|(ending, _)| *ending == given_up).map_or(0, |(_, count)| count);
    assert!(count >= 98, "{:?}", endings(&finished));
    assert!(total.failed.quantile(0.5).unwrap() >= Duration::from_millis(190), "{:?}", total.failed.quantile(0.5));
}

#[test]
fn a_run_ends_when_its_time_is_over() {
    let server = server();
    let stop = Stop { requests: None, after: Some(Duration::from_millis(150)) };
    let finished = run(Plan { stop, ..plan(&server.url(), 1, 4) });
    let total = finished.tally.total();
    assert_eq!(total.requests, server.requests());
    assert_eq!(endings(&finished), [(ANSWERED, total.requests)]);
    assert!(finished.elapsed >= Duration::from_millis(150));
}

#[test]
fn a_run_that_is_cut_off_says_what_it_left() {
    let server = Server::start(&[Request, Stall]);
    let load = Load::start(plan(&server.url(), 100, 5), None).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while server.requests() < 5 {
        assert!(std::time::Instant::now() < deadline, "five requests never came");
        std::thread::yield_now();
    }
    load.cut();
    let finished = load.finish();
    let total = finished.tally.total();
    assert_eq!((total.requests, finished.tally.given_up()), (0, 5));
    // The samples of the connections are recorded like any other.
    assert_eq!((total.connections.opened, total.connections.endings.failed()), (5, 0));
}

#[test]
fn times_of_a_connection_are_in_order() {
    let server = Server::start(&[Request, Say(OK)]);
    let kept = Arc::new(Kept::default());
    Load::start(one_each(plan(&server.url(), 20, 4)), Some(Arc::clone(&kept) as _)).unwrap().finish();
    let samples = kept.0.lock().unwrap();
    assert_eq!(samples.len(), 20);
    for sample in samples.iter() {
        let times = [
            Some(sample.opened),
            sample.connected,
            sample.written,
            sample.first_byte,
            sample.last_byte,
            Some(sample.closed),
        ];
        assert!(times.iter().all(Option::is_some) && times.is_sorted(), "{sample:?}");
        assert_eq!(sample.tr(), sample.written.unwrap().checked_sub(sample.opened));
        assert_eq!(Some(sample.tc()), sample.closed.checked_sub(sample.opened));
        assert!(server.clients.lock().unwrap().contains(&sample.local.unwrap()));
        assert_eq!((sample.requests, sample.bytes_read), (1, OK.len() as u64));
    }
}
