//! How connections begin and end.

use std::net::TcpListener;
use std::time::Duration;

use bytes::Bytes;
use h2::server::Builder;
use watari_bench_engine::ending::EndingKind;
use watari_bench_engine::plan::{Plan, Protocol, Timeouts};

use crate::run::{all, endings, plan, run, shown};
use crate::server::{Reply, Server};

const NORMAL: &str = "NORMAL (response, server)";

#[test]
fn a_connection_carries_so_many_requests() {
    let server = Server::plain(|_, _, _| Reply::With(200, Bytes::new()));
    let plan = plan(server.address, false, "- / 0\n", 1, 1, 20);
    let ran = run(Plan { protocol: Protocol::Http2 { streams: 1, requests_per_connection: Some(5) }, ..plan });
    assert_eq!((shown(&ran.total.endings), server.asked()), (all(NORMAL, 20), vec![5; 4]));
    assert_eq!(endings(&ran.connections), ["NORMAL (close, client)"; 4]);
}

#[test]
fn what_a_server_that_goes_away_has_not_processed_goes_elsewhere() {
    // SETTINGS, and a GOAWAY with the last stream id 0.
    let server = Server::beginning_with(b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0");
    let ran = run(plan(server.address, false, "- / 0\n", 1, 4, 40));
    assert_eq!((shown(&ran.total.endings), server.asked()), (all(NORMAL, 40), vec![0, 40]));
    assert_eq!(endings(&ran.connections), ["NORMAL (close, server)", "NORMAL (close, client)"]);
}

#[test]
fn what_is_not_processed_goes_on_until_somebody_takes_it() {
    let server =
        Server::plain(|_, request, _| if request == 0 { Reply::GoAway } else { Reply::With(200, Bytes::new()) });
    // Each connection processes one of the 20 requests in progress.
    let ran = run(plan(server.address, false, "- / 0\n", 1, 20, 40));
    assert_eq!(shown(&ran.total.endings), all(NORMAL, 40));
}

#[test]
fn servers_may_go_away_in_the_middle() {
    let server =
        Server::plain(|_, request, _| if request == 6 { Reply::GoAway } else { Reply::With(200, Bytes::new()) });
    let ran = run(plan(server.address, false, "- / 0\n", 2, 4, 200));
    assert_eq!(shown(&ran.total.endings), all(NORMAL, 200));
    assert_eq!(server.asked().iter().sum::<usize>(), 200);
    assert!(ran.connections.len() > 2 && ran.connections.iter().all(|sample| sample.ending.is_normal()));
}

#[test]
fn a_connection_that_is_lost_takes_all_its_requests_along() {
    let server =
        Server::plain(|connection, _, _| if connection == 0 { Reply::Cut(5) } else { Reply::With(200, Bytes::new()) });
    let ran = run(plan(server.address, false, "- / 0\n", 1, 5, 12));
    let mut endings = shown(&ran.total.endings);
    endings.sort();
    assert_eq!(endings, [(NORMAL.to_owned(), 7), ("RESET (wait, server)".to_owned(), 5)]);
    assert_eq!(server.asked(), [5, 7]);
    assert_eq!(crate::run::endings(&ran.connections), ["RESET (wait, server)", "NORMAL (close, client)"]);
}

#[test]
fn a_server_may_allow_fewer_at_once() {
    let mut settings = Builder::new();
    settings.max_concurrent_streams(2);
    let server = Server::start(settings, None, |_, _, _| Reply::With(200, Bytes::new()));
    let ran = run(plan(server.address, false, "- / 0\n", 1, 8, 50));
    assert_eq!(shown(&ran.total.endings), all(NORMAL, 50));
}

#[test]
fn a_connection_that_is_silent_is_replaced() {
    let server = Server::plain(|_, _, _| Reply::Stall);
    let plan = plan(server.address, false, "- / 0\n", 1, 1, 4);
    let timeouts = Timeouts { response: Duration::from_millis(200), ..plan.timeouts };
    let ran = run(Plan { timeouts, ..plan });
    assert_eq!(shown(&ran.total.endings), all("TIMEOUT (wait, server)", 4));
    // The server's SETTINGS arrived during the first request of each connection, or soon after it.
    assert!(server.asked().len() > 1 && server.asked().iter().sum::<usize>() == 4, "{:?}", server.asked());
}

#[test]
fn what_is_no_http_2_breaks_the_protocol() {
    let server = Server::beginning_with(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n");
    let ran = run(plan(server.address, false, "- / 0\n", 1, 1, 1));
    // Before or after the request was written.
    assert_eq!(ran.total.endings.of(EndingKind::Protocol), 1);
    assert_eq!(ran.total.connections.endings, ran.total.endings);
}

#[test]
fn http_2_has_to_be_agreed_on() {
    // Without ALPN, and with an alert.
    for alpn in [&[][..], &["http/1.1"]] {
        let server = Server::tls(alpn, |_, _, _| Reply::With(200, Bytes::new()));
        let ran = run(plan(server.address, true, "- / 1\n", 1, 1, 2));
        assert_eq!(shown(&ran.total.endings), all("HANDSHAKE (handshake, server)", 2), "{alpn:?}");
        assert_eq!(endings(&ran.connections), ["HANDSHAKE (handshake, server)"; 2]);
    }
}

#[test]
fn those_who_wait_for_a_connection_share_its_refusal() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ran = run(plan(closed, false, "- / 0\n", 1, 4, 4));
    assert_eq!(shown(&ran.total.endings), all("REFUSED (connect, server)", 4));
    assert!(ran.connections.len() <= 4, "{:?}", ran.connections);
}

#[test]
fn a_server_that_does_not_read_holds_nothing_up() {
    let server = Server::deaf();
    let file = tempfile::NamedTempFile::new().unwrap();
    // More than the system's socket buffer, but the flow control window is only 64 KiB.
    std::fs::write(&file, vec![0; 70_000]).unwrap();
    let line = format!("- / 0 method=POST body={}\n", file.path().display());
    let plan = plan(server.address, false, &line, 1, 2, 2);
    let timeouts = Timeouts { response: Duration::from_millis(300), ..plan.timeouts };
    let ran = run(Plan { timeouts, ..plan });
    assert_eq!(shown(&ran.total.endings), all("TIMEOUT (request, server)", 2));
    assert_eq!(ran.connections.len(), 1);
}
