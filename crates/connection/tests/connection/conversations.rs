//! Requests and responses.

use std::io::ErrorKind;

use proptest::prelude::*;
use watari_connection::{Broken, End};

use crate::harness::{connection, end, get, long, ok, poll, wait};

#[test]
fn a_connection_answers_one_request_after_the_other() {
    let (pipe, _, mut http) = connection();
    wait(&mut http);
    for _ in 0..3 {
        pipe.send(get("/"));
        wait(&mut http);
        assert_eq!(pipe.written(), ok("hello"));
        assert!(http.is_idle());
    }
    assert_eq!((http.requests(), pipe.flushes()), (3, 3));
    pipe.end();
    assert!(matches!(end(&mut http), End::Complete));
}

/// Head and body go together, so that the stream makes one record of them.
#[test]
fn a_small_response_is_one_write() {
    let (pipe, _, mut http) = connection();
    for number in 1..=3 {
        pipe.send(get("/"));
        wait(&mut http);
        assert_eq!(pipe.written(), ok("hello"));
        assert_eq!((pipe.writes(), pipe.flushes()), (number, number));
    }
    pipe.send("POST /echo HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\nconnection: close\r\n\r\n12345");
    assert!(matches!(end(&mut http), End::Complete));
    assert!(pipe.written().ends_with("\r\n\r\n12345"));
    assert_eq!(pipe.writes(), 4, "also the response to an upload, and the last one");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let (pipe, site, mut http) = connection();
    pipe.send(get("/") + &get("/chunked") + "GET /ea");
    wait(&mut http);
    assert_eq!(
        pipe.written(),
        ok("hello") + "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
    );
    assert!(http.is_idle(), "a part of a head has come");
    pipe.send("rly HTTP/1.1\r\nhost: h\r\n\r\n");
    wait(&mut http);
    assert_eq!(pipe.written(), ok("early"));
    assert_eq!(*site.paths.borrow(), ["/", "/chunked", "/early"]);
}

#[test]
fn a_pipelined_request_waits_until_the_response_is_written() {
    let (pipe, site, mut http) = connection();
    pipe.give_room(50);
    pipe.send(get("/long"));
    pipe.send(get("/"));
    wait(&mut http);
    assert_eq!(*site.paths.borrow(), ["/long"]);
    assert!(!http.is_idle());
    pipe.take_all();
    wait(&mut http);
    assert_eq!(pipe.written(), ok(&long()) + &ok("hello"));
}

#[test]
fn content_is_read_as_fast_as_the_service_reads() {
    let (pipe, _, mut http) = connection();
    pipe.send("POST /echo HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\n01234");
    wait(&mut http);
    pipe.send("56789GET / HT");
    wait(&mut http);
    assert_eq!(pipe.written(), ok("0123456789"));
    pipe.send("TP/1.1\r\nhost: h\r\n\r\n");
    pipe.send("POST /echo HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    wait(&mut http);
    assert_eq!(pipe.written(), ok("hello") + &ok("abcde"));
}

/// No byte follows such a head. The service has its end at once.
#[test]
fn content_of_no_length_is_complete() {
    let (pipe, _, mut http) = connection();
    pipe.send("POST /echo HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n");
    wait(&mut http);
    assert_eq!(pipe.written(), ok(""));
    assert!(http.is_idle());
}

/// RFC 9112, section 9.6.
#[test]
fn a_response_announces_the_close_that_unread_content_causes() {
    let head = |path: &str| format!("POST {path} HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\n");
    let (pipe, _, mut http) = connection();
    pipe.send(head("/early") + "abc");
    wait(&mut http);
    assert_eq!(pipe.written(), ok("early"));
    pipe.send(head("/early") + "ab");
    assert!(matches!(end(&mut http), End::Complete));
    let written = pipe.written();
    assert!(written.contains("connection: close\r\n") && written.ends_with("\r\n\r\nearly"), "{written}");
}

#[test]
fn a_client_that_waits_for_100_gets_it_when_the_content_is_wanted() {
    let (pipe, _, mut http) = connection();
    let head =
        |path: &str| format!("POST {path} HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n");
    pipe.send(head("/echo"));
    wait(&mut http);
    assert_eq!(pipe.written(), "HTTP/1.1 100 Continue\r\n\r\n");
    pipe.send("abc");
    wait(&mut http);
    assert_eq!(pipe.written(), ok("abc"));
    pipe.send(head("/early"));
    assert!(matches!(end(&mut http), End::Complete), "the client may send the content or not");
    assert!(pipe.written().ends_with("\r\n\r\nearly"));
}

#[test]
fn content_that_the_service_does_not_read_is_read_if_it_has_come() {
    let (pipe, site, mut http) = connection();
    pipe.send("POST /early HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc".to_owned() + &get("/"));
    wait(&mut http);
    assert_eq!(pipe.written(), ok("early") + &ok("hello"));
    pipe.send("POST /early HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nab");
    assert!(matches!(end(&mut http), End::Complete));
    assert!(pipe.written().contains("early"));
    assert_eq!(site.paths.borrow().len(), 3);

    let (pipe, _, mut http) = connection();
    pipe.send("POST /early HTTP/1.1\r\nhost: h\r\ncontent-length: 70000\r\n\r\n");
    pipe.send(vec![b'a'; 70000]);
    assert!(matches!(end(&mut http), End::Complete), "too much");
}

#[test]
fn the_clients_end_cuts_incomplete_requests_only() {
    for kind in [None, Some(ErrorKind::UnexpectedEof)] {
        let begin = |request: &str| {
            let (pipe, site, http) = connection();
            pipe.send(request);
            match kind {
                None => pipe.end(),
                Some(kind) => pipe.fail(kind),
            }
            (pipe, site, http)
        };
        let (pipe, _, mut http) = begin(&get("/long"));
        assert!(matches!(end(&mut http), End::Complete));
        assert_eq!(pipe.written(), ok(&long()));

        let (pipe, _, mut http) = begin("GET / HTTP/1.1\r\nho");
        assert!(matches!(end(&mut http), End::Complete), "no response is due");
        assert_eq!(pipe.written(), "");

        let (pipe, _, mut http) = begin("POST /echo HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nab");
        assert!(matches!(end(&mut http), End::Complete));
        assert!(pipe.written().starts_with("HTTP/1.1 400 Bad Request\r\n"));

        let (pipe, site, mut http) = begin(&get("/wait"));
        *site.gate.borrow_mut() = false;
        wait(&mut http);
        *site.gate.borrow_mut() = true;
        assert!(matches!(end(&mut http), End::Complete));
        assert_eq!(pipe.written(), ok("hello"));
    }
}

#[test]
fn a_client_that_resets_is_noticed_while_it_waits() {
    let (pipe, site, mut http) = connection();
    *site.gate.borrow_mut() = false;
    pipe.send(get("/wait"));
    wait(&mut http);
    pipe.fail(ErrorKind::ConnectionReset);
    assert!(matches!(end(&mut http), End::Cut(Broken::Stream(_))));
}

#[test]
fn a_response_that_its_source_cuts_is_no_complete_one() {
    let (pipe, _, mut http) = connection();
    pipe.send(get("/cut"));
    assert!(matches!(end(&mut http), End::Cut(Broken::Source(_))));
    assert_eq!(pipe.written(), "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfive!");
}

#[test]
fn malformed_requests_are_refused_and_end_the_connection() {
    let (pipe, site, mut http) = connection();
    pipe.send("GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n".to_owned() + &get("/"));
    assert!(matches!(end(&mut http), End::Complete));
    assert_eq!(pipe.written(), "HTTP/1.1 400 Bad Request\r\ncontent-length: 7\r\nconnection: close\r\n\r\nrefused");
    assert!(site.paths.borrow().is_empty());

    let (pipe, _, mut http) = connection();
    pipe.send("POST /echo HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\nx\r\n");
    assert!(matches!(end(&mut http), End::Complete));
    assert!(pipe.written().starts_with("HTTP/1.1 400 Bad Request\r\n"));
}

#[test]
fn the_last_response_is_left_for_the_end_of_the_stream_to_flush() {
    let (pipe, _, mut http) = connection();
    pipe.send("GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
    assert!(matches!(end(&mut http), End::Complete));
    assert_eq!(pipe.flushes(), 0);

    let (pipe, _, mut http) = connection();
    wait(&mut http);
    http.close();
    assert!(matches!(end(&mut http), End::Complete), "between requests there is nothing to wait for");

    let (pipe2, _, mut http) = connection();
    pipe2.send(get("/long"));
    pipe2.give_room(30);
    wait(&mut http);
    http.close();
    pipe2.take_all();
    assert!(matches!(end(&mut http), End::Complete));
    assert_eq!(pipe2.written(), ok(&long()));
    drop(pipe);
}

#[test]
fn a_tunnel_follows_a_101() {
    let (pipe, _, mut http) = connection();
    pipe.send("GET /tunnel HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: chat\r\n\r\nchat!");
    assert!(matches!(end(&mut http), End::Tunnel));
    assert!(pipe.written().starts_with("HTTP/1.1 101 Switching Protocols\r\n"));
    assert_eq!((http.into_parts().stream.unread(), pipe.flushes()), (b"chat!".to_vec(), 1));
}

proptest! {
    /// The bytes that the client gets do not depend on how its own were cut, or on how fast it reads.
    #[test]
    fn any_split_reads_alike(
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        room in prop::collection::vec(1_usize..2000, 1..20),
    ) {
        let upload = "POST /echo HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        let input = get("/") + upload + &get("/long") + &get("/chunked");
        let (whole, _, mut http) = connection();
        whole.send(&input);
        wait(&mut http);
        let expected = whole.written();

        let (pipe, _, mut http) = connection();
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(input.len())).collect();
        cuts.extend([0, input.len()]);
        cuts.sort_unstable();
        pipe.give_room(0);
        for pair in cuts.windows(2) {
            if pair[0] < pair[1] {
                pipe.send(&input[pair[0]..pair[1]]);
            }
            wait(&mut http);
        }
        for room in room {
            pipe.give_room(room);
            wait(&mut http);
        }
        pipe.take_all();
        wait(&mut http);
        prop_assert_eq!(pipe.written(), expected);
        prop_assert!(http.is_idle() && poll(&mut http).is_pending());
    }
}

/// RFC 9110, section 15.2.
#[test]
fn informational_responses_precede_the_response() {
    let (pipe, site, mut http) = connection();
    *site.gate.borrow_mut() = false;
    pipe.send(get("/hints"));
    wait(&mut http);
    let hints = site.hints.borrow_mut().take().unwrap();
    let fields = http::HeaderMap::from_iter([(http::header::LINK, http::HeaderValue::from_static("</style.css>"))]);
    hints.send(http::StatusCode::EARLY_HINTS, fields.clone());
    wait(&mut http);
    assert_eq!(pipe.written(), "HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n");
    hints.send(http::StatusCode::from_u16(104).unwrap(), http::HeaderMap::new());
    *site.gate.borrow_mut() = true;
    wait(&mut http);
    let written = pipe.written();
    assert!(written.starts_with("HTTP/1.1 104"), "{written}");
    assert!(written.ends_with(&ok("hello")), "{written}");
    hints.send(http::StatusCode::EARLY_HINTS, fields);
    pipe.send(get("/"));
    wait(&mut http);
    assert_eq!(pipe.written(), ok("hello"), "a late one is not taken for one of the next request");
}

#[test]
fn clients_of_http_1_0_get_no_informational_response() {
    let (pipe, site, mut http) = connection();
    *site.gate.borrow_mut() = false;
    pipe.send("GET /hints HTTP/1.0\r\n\r\n");
    wait(&mut http);
    site.hints.borrow_mut().take().unwrap().send(http::StatusCode::EARLY_HINTS, http::HeaderMap::new());
    wait(&mut http);
    assert_eq!(pipe.written(), "");
}
