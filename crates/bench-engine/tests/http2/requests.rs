//! How requests end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_lc_rs::digest;
use bytes::Bytes;
use h2::Reason;
use watari_bench_engine::load::Load;
use watari_bench_engine::plan::{Pace, Plan, Stop, Timeouts};
use watari_bench_engine::schedule::{Schedule, Spacing};

use crate::run::{all, endings, plan, run, shown};
use crate::server::{Reply, Server};

const NORMAL: &str = "NORMAL (response, server)";

/// A server that gives all requests the same response.
fn always(reply: Reply) -> Server {
    Server::plain(move |_, _, _| reply.clone())
}

/// The endings of `requests` requests to such a server.
fn ended(reply: Reply, requests: u64) -> Vec<(String, u64)> {
    shown(&run(plan(always(reply).address, false, "- / 0\n", 1, 2, requests)).total.endings)
}

#[test]
fn everything_asked_is_answered_and_counted() {
    for tls in [false, true] {
        let reply = |_, _, _: &_| Reply::Joined(3, Bytes::from_static(b"hello"));
        let server = if tls { Server::tls(&["h2"], reply) } else { Server::plain(reply) };
        let ran = run(Plan { threads: 2, ..plan(server.address, tls, &format!("- / {}\n", u8::from(tls)), 3, 8, 500) });
        assert_eq!(shown(&ran.total.endings), all(NORMAL, 500));
        assert_eq!((server.asked().len(), server.asked().iter().sum::<usize>()), (3, 500));
        assert_eq!((ran.total.body_bytes, ran.total.statuses[&200]), (2500, 500));
        assert_eq!(endings(&ran.connections), ["NORMAL (close, client)"; 3]);
        assert_eq!(ran.connections.iter().map(|sample| sample.requests).sum::<u64>(), 500);
        assert!(ran.connections.iter().all(|sample| sample.tr().is_some() && sample.bytes_read > sample.requests * 5));
        let alpn = ran.connections.iter().map(|sample| sample.tls.as_ref().and_then(|tls| tls.alpn.as_deref()));
        assert!(alpn.into_iter().all(|alpn| alpn == tls.then_some("h2")));
    }
}

#[test]
fn so_many_are_on_their_way_at_once() {
    let server = always(Reply::Together(7));
    assert_eq!(shown(&run(plan(server.address, false, "- / 0\n", 1, 7, 7)).total.endings), all(NORMAL, 7));
    assert_eq!(server.asked(), [7]);
}

#[test]
fn an_open_loop_shares_connections_as_well() {
    let server = always(Reply::With(204, Bytes::new()));
    let schedule = Schedule::new("2000".parse().unwrap(), Spacing::Even);
    let plan = plan(server.address, false, "- / 0\n", 1, 4, 100);
    let ran = run(Plan { pace: Pace::Open { schedule, connections_max: 1 }, ..plan });
    assert_eq!((shown(&ran.total.endings), server.asked()), (all(NORMAL, 100), vec![100]));
}

#[test]
fn bodies_go_there_and_come_back() {
    // More than the server's window. The server increases the window as it reads.
    let body: Vec<u8> = (0..300_000u32).map(|at| (at % 251) as u8).collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, &body).unwrap();
    let digest = digest::digest(&digest::SHA256, &body);
    // The notation in lists: hexadecimal digits.
    let sha256 = format!("{digest:?}").rsplit_once(':').unwrap().1.to_owned();
    let line = format!("- / 0 method=POST body={} sha256={sha256}\n", file.path().display());
    let ran = run(plan(always(Reply::Echo).address, false, &line, 1, 3, 6));
    assert_eq!((shown(&ran.total.endings), ran.total.body_bytes), (all(NORMAL, 6), 6 * 300_000));
    let ran = run(plan(always(Reply::With(200, Bytes::new())).address, false, &line, 1, 1, 1));
    assert_eq!(shown(&ran.total.endings), all("MISMATCH (response, server)", 1));
}

#[test]
fn another_status_is_a_mismatch() {
    let server = always(Reply::With(404, Bytes::new()));
    let ran = run(plan(server.address, false, "- / 0 status=200\n", 1, 1, 3));
    assert_eq!(shown(&ran.total.endings), all("MISMATCH (response, server)", 3));
}

#[test]
fn a_stream_that_is_taken_back_is_a_reset() {
    assert_eq!(ended(Reply::Reset(Reason::INTERNAL_ERROR), 4), all("RESET (wait, server)", 4));
    assert_eq!(ended(Reply::Break(Reason::CANCEL), 4), all("RESET (response, server)", 4));
}

#[test]
fn a_refused_stream_is_sent_once_more() {
    assert_eq!(ended(Reply::Reset(Reason::REFUSED_STREAM), 4), all("RESET (wait, server)", 4));
    let server = Server::plain(|_, request, _| {
        if request % 2 == 0 { Reply::Reset(Reason::REFUSED_STREAM) } else { Reply::With(200, Bytes::new()) }
    });
    let ran = run(plan(server.address, false, "- / 0\n", 1, 1, 5));
    assert_eq!((shown(&ran.total.endings), server.asked()), (all(NORMAL, 5), vec![10]));
}

#[test]
fn a_body_shorter_than_announced_breaks_the_protocol() {
    assert_eq!(ended(Reply::Short, 4), all("PROTOCOL (response, server)", 4));
}

#[test]
fn one_request_that_stalls_leaves_the_others_alone() {
    let server =
        Server::plain(|_, request, _| if request == 0 { Reply::Stall } else { Reply::With(200, Bytes::new()) });
    let plan = plan(server.address, false, "- / 0\n", 1, 2, 0);
    let ran = run(Plan {
        stop: Stop { requests: None, after: Some(Duration::from_millis(300)) },
        timeouts: Timeouts { response: Duration::from_millis(1500), ..plan.timeouts },
        ..plan
    });
    let mut endings = shown(&ran.total.endings);
    endings.retain(|(ending, _)| ending != NORMAL);
    assert_eq!(endings, all("TIMEOUT (wait, server)", 1));
    assert_eq!(server.asked(), [usize::try_from(ran.total.requests).unwrap()]);
    assert_eq!(crate::run::endings(&ran.connections), ["NORMAL (close, client)"]);
}

#[test]
fn what_is_cut_off_is_unfinished() {
    static ASKED: AtomicBool = AtomicBool::new(false);
    let server = Server::plain(|_, request, _| {
        ASKED.store(request == 4, Ordering::Relaxed);
        Reply::Stall
    });
    let load = Load::start(plan(server.address, false, "- / 0\n", 1, 5, 100), None).unwrap();
    while !ASKED.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    load.cut();
    let finished = load.finish();
    let total = finished.tally.total();
    assert_eq!((total.requests, finished.tally.given_up()), (0, 5));
    // The sample of the connection is recorded like any other.
    assert_eq!((total.connections.opened, total.connections.endings.failed()), (1, 0));
}
