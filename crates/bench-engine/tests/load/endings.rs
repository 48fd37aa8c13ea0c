//! How requests and connections end.

use watari_bench_engine::ending::{Ending, EndingKind, Phase};

use crate::harness::{
    ANSWERED, OK, Server, Step, by_client, by_server, endings, ends_of_connections, impatient, of_list, one_each, plan,
    run,
};
use Step::{Again, Request, Reset, Say, Stall};

/// The endings of four requests to a server that does `steps`. Asserts that the server received all four.
fn of(steps: &[Step]) -> Vec<(Ending, u64)> {
    let server = Server::start(steps);
    let finished = run(impatient(plan(&server.url(), 4, 2)));
    assert_eq!(server.requests(), 4);
    endings(&finished)
}

#[test]
fn a_whole_response_is_normal() {
    assert_eq!(of(&[Request, Say(OK), Again]), [(ANSWERED, 4)]);
    assert_eq!(of(&[Request, Say(b"HTTP/1.0 200 OK\r\n\r\nuntil the end")]), [(ANSWERED, 4)]);
    assert_eq!(of(&[Request, Say(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n"), Again]), [(ANSWERED, 4)]);
}

#[test]
fn a_server_that_cuts_is_a_reset() {
    let cut = [(by_server(EndingKind::Reset, Phase::Response), 4)];
    assert_eq!(of(&[Request, Say(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nwatari")]), cut);
    assert_eq!(of(&[Request, Say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nwatari")]), cut);
    let before = [(by_server(EndingKind::Reset, Phase::Wait), 4)];
    assert_eq!(of(&[Request, Reset]), before);
    assert_eq!(of(&[Request]), before);
}

#[test]
fn a_server_that_stalls_is_a_timeout() {
    assert_eq!(of(&[Request, Stall]), [(by_server(EndingKind::Timeout, Phase::Wait), 4)]);
    let half = [Request, Say(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nwatari"), Stall];
    assert_eq!(of(&half), [(by_server(EndingKind::Timeout, Phase::Response), 4)]);
}

#[test]
fn garbage_breaks_the_protocol() {
    let broken = [(by_server(EndingKind::Protocol, Phase::Response), 4)];
    assert_eq!(of(&[Request, Say(b"SSH-2.0-OpenSSH_9.2\r\n"), Stall]), broken);
    // The client did not request an upgrade.
    assert_eq!(of(&[Request, Say(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"), Stall]), broken);
    assert_eq!(
        of(&[Request, Say(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"), Stall]),
        broken
    );
}

#[test]
fn another_answer_than_expected_is_a_mismatch() {
    let server = Server::start(&[Request, Say(OK), Again]);
    // The digest of the body, and another digest.
    let right = "df1f852f0f88187e232672db9cd520c656ce4f885168764bd3f428e9d6d835c8";
    let list = format!("- /a 0 status=200 sha256={right}\n- /b 0 status=404\n- /c 0 sha256={}\n", "0".repeat(64));
    let finished = run(of_list(&list, &[&server.url()], 30, 3));
    assert_eq!(endings(&finished), [(ANSWERED, 10), (by_server(EndingKind::Mismatch, Phase::Response), 20)]);
}

#[test]
fn nobody_there_refuses() {
    // Bound, but not listening.
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let finished = run(plan(&format!("http://{unused}/"), 7, 3));
    let refused = by_server(EndingKind::Refused, Phase::Connect);
    assert_eq!((endings(&finished), ends_of_connections(&finished)), (vec![(refused, 7)], vec![(refused, 7)]));
}

#[test]
fn an_address_that_is_not_ours_is_our_own_fault() {
    let server = Server::start(&[Request, Say(OK), Again]);
    let list = "192.0.2.1 /a 0\n::1 /a 0\n";
    let finished = run(of_list(list, &[&server.url()], 4, 1));
    // The second source has no connection sample: the server has no address of that family.
    assert_eq!(endings(&finished), [(by_client(EndingKind::Local, Phase::Connect), 4)]);
    assert_eq!(finished.tally.total().connections.opened, 2);
    let causes: Vec<_> = finished.causes.iter().map(|(why, count)| (why.as_str(), *count)).collect();
    let no_family = "connect: the server has no address of the family of ::1";
    assert_eq!(causes, [("connect: Cannot assign requested address (os error 99)", 2), (no_family, 2)]);
    assert_eq!(server.requests(), 0);
}

#[test]
fn a_server_that_speaks_no_tls_fails_the_handshake() {
    let server = Server::start(&[Say(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Stall]);
    let finished = run(impatient(plan(&server.url().replace("http", "https"), 3, 1)));
    assert_eq!(endings(&finished), [(by_server(EndingKind::Handshake, Phase::Handshake), 3)]);
    let silent = Server::start(&[Stall]);
    let finished = run(impatient(plan(&silent.url().replace("http", "https"), 3, 1)));
    assert_eq!(endings(&finished), [(by_server(EndingKind::Timeout, Phase::Handshake), 3)]);
}

#[test]
fn the_last_request_of_a_connection_is_read_until_the_server_closes() {
    let server = Server::start(&[Request, Say(OK)]);
    let finished = run(impatient(one_each(plan(&server.url(), 5, 2))));
    assert_eq!(endings(&finished), [(ANSWERED, 5)]);
    assert_eq!(ends_of_connections(&finished), [(by_server(EndingKind::Normal, Phase::Close), 5)]);

    let never = Server::start(&[Request, Say(OK), Stall]);
    let finished = run(impatient(one_each(plan(&never.url(), 5, 2))));
    assert_eq!(endings(&finished), [(ANSWERED, 5)]);
    assert_eq!(ends_of_connections(&finished), [(by_server(EndingKind::Timeout, Phase::Close), 5)]);

    // Unexpected bytes after the response, with and without the server's close directly after them.
    for steps in [&[Request, Say(OK), Say(b"more"), Stall][..], &[Request, Say(OK), Say(b"more")]] {
        let finished = run(impatient(one_each(plan(&Server::start(steps).url(), 5, 2))));
        assert_eq!(endings(&finished), [(ANSWERED, 5)]);
        assert_eq!(ends_of_connections(&finished), [(by_server(EndingKind::Protocol, Phase::Close), 5)]);
    }

    let reset = Server::start(&[Request, Say(OK), Reset]);
    let finished = run(impatient(one_each(plan(&reset.url(), 5, 2))));
    assert_eq!(endings(&finished), [(ANSWERED, 5)]);
    assert_eq!(ends_of_connections(&finished), [(by_server(EndingKind::Reset, Phase::Close), 5)]);
}

#[test]
fn a_connection_that_was_closed_between_requests_is_opened_again() {
    // Three requests on each connection, which the server closes without an announcement.
    let server = Server::start(&[Request, Say(OK), Request, Say(OK), Request, Say(OK)]);
    let finished = run(plan(&server.url(), 30, 2));
    assert_eq!((endings(&finished), server.requests()), (vec![(ANSWERED, 30)], 30));
    let opened = finished.tally.total().connections.opened;
    assert!((10..=12).contains(&opened), "{opened}");
}
