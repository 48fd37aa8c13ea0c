//! A connection that is taken apart continues elsewhere.

use proptest::prelude::*;
use watari_connection::{Departure, End, Pace, Parts, REST_LEN_MAX, Responding, Resume};
use watari_http1::{Limits, Server};

use crate::harness::{Http, Pieces, Site, big, connection, end, get, long, ok, poll, wait};

/// Continues the connection at another site. That site provides the rest of a response, from `overlap` bytes before the
/// place at which it continues.
fn move_elsewhere(http: Http, site: &Site, overlap: u64) -> Http {
    let departure = http.departure();
    let Parts { stream, http, opened, unwritten, responding, .. } = http.into_parts();
    let mut state = Vec::new();
    http.export(&mut state);
    let responding = responding.map(|responding| match departure {
        Departure::Parts => of_pieces(responding.pending),
        Departure::Rest(rest) => of_rest(rest, site, overlap.min(responding.position)),
        stays => panic!("{stays:?}"),
    });
    let http = Server::import(&state, Limits::default()).unwrap();
    Http::resume(Parts { stream, service: site.clone(), http, opened, unwritten, responding })
}

fn of_pieces(pending: bytes::Bytes) -> Responding<Pieces> {
    Responding { body: Pieces::new([]), position: 0, pending, skip: 0, resume: None, is_events: false }
}

/// The other site has been asked for the rest when the response was `overlap` bytes behind.
fn of_rest(rest: Resume, site: &Site, overlap: u64) -> Responding<Pieces> {
    let mut resume = rest;
    resume.part.first -= overlap;
    let body = site.body("/big").starting_at(resume.part.first);
    Responding {
        body,
        position: 0,
        pending: bytes::Bytes::new(),
        skip: overlap,
        resume: Some(resume),
        is_events: false,
    }
}

fn ok_big() -> String {
    ok(&big()).replacen("\r\n\r\n", "\r\netag: \"big\"\r\n\r\n", 1)
}

/// All fields of a head, in the order in which they were written, without their order.
fn sorted(response: &str) -> (Vec<String>, String) {
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let mut fields: Vec<_> = head.split("\r\n").map(str::to_owned).collect();
    fields.sort_unstable();
    (fields, body.to_owned())
}

#[test]
fn each_phase_needs_what_it_lacks() {
    let (pipe, site, mut http) = connection();
    assert_eq!(http.departure(), Departure::Parts, "it is idle");
    pipe.send("GET / HTT");
    wait(&mut http);
    assert_eq!(http.departure(), Departure::Parts, "it has a part of a head");
    pipe.send("P/1.1\r\nHost: h\r\n\r\n");
    wait(&mut http);
    pipe.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhe");
    wait(&mut http);
    assert_eq!(http.departure(), Departure::Request, "an upload is in progress");
    pipe.send("llo");
    wait(&mut http);
    pipe.give_room(0);
    pipe.send(get("/chunked"));
    wait(&mut http);
    assert_eq!(http.departure(), Departure::Response, "the length is unknown");
    pipe.take_all();
    wait(&mut http);
    pipe.give_room(0);
    pipe.send(get("/events"));
    wait(&mut http);
    assert_eq!(http.departure(), Departure::Events);
    pipe.take_all();
    wait(&mut http);
    pipe.give_room(0);
    pipe.send(get("/known-events"));
    wait(&mut http);
    assert_eq!(http.departure(), Departure::Parts, "its length is known, and it has been read");
    pipe.take_all();
    *site.gate.borrow_mut() = false;
    pipe.send(get("/wait"));
    wait(&mut http);
    assert_eq!(http.departure(), Departure::Response, "the rest is not read");
}

#[test]
fn a_long_rest_is_provided_by_the_other_site() {
    let (pipe, _, mut http) = connection();
    pipe.give_room(2000);
    pipe.send(get("/big"));
    wait(&mut http);
    let Departure::Rest(rest) = http.departure() else { panic!("{:?}", http.departure()) };
    assert_eq!((rest.part.last + 1, rest.part.complete_len), (big().len() as u64, big().len() as u64));
    assert_eq!(rest.part.first % 1000, 0, "pieces that are framed are not part of the rest");
}

#[test]
fn a_short_rest_is_read_although_the_client_takes_nothing() {
    let (pipe, site, mut http) = connection();
    pipe.give_room(10);
    pipe.send(get("/long"));
    wait(&mut http);
    assert_eq!(http.departure(), Departure::Response);
    http.set_pace(Pace::Ahead);
    wait(&mut http);
    assert_eq!(http.departure(), Departure::Parts);
    pipe.take_all();
    let mut http = move_elsewhere(http, &site, 0);
    wait(&mut http);
    assert_eq!(pipe.written(), ok(&long()));
    assert!(http.is_idle());
}

#[test]
fn a_response_that_is_held_stays_where_it_is() {
    let (pipe, _, mut http) = connection();
    pipe.give_room(1500);
    pipe.send(get("/big"));
    wait(&mut http);
    http.set_pace(Pace::Held);
    let position = http.responding().unwrap().position;
    pipe.take_all();
    wait(&mut http);
    assert_eq!(http.responding().unwrap().position, position);
    http.set_pace(Pace::Client);
    wait(&mut http);
    assert_eq!(sorted(&pipe.written()), sorted(&ok_big()));
}

#[test]
fn the_end_of_a_last_response_moves() {
    let (pipe, site, mut http) = connection();
    pipe.give_room(10);
    pipe.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    wait(&mut http);
    http.set_pace(Pace::Ahead);
    wait(&mut http);
    let mut http = move_elsewhere(http, &site, 0);
    pipe.take_all();
    assert!(matches!(end(&mut http), End::Complete));
    assert!(pipe.written().ends_with("hello"));
}

/// The stream may have taken bytes without sending them.
#[test]
fn a_connection_that_continues_flushes_first() {
    let (pipe, site, mut http) = connection();
    pipe.send(get("/long"));
    pipe.hold_flushes(true);
    wait(&mut http);
    assert_eq!(http.departure(), Departure::Parts, "all is written");
    let mut http = move_elsewhere(http, &site, 0);
    pipe.hold_flushes(false);
    let before = pipe.flushes();
    wait(&mut http);
    assert_eq!(pipe.flushes(), before + 1);
    assert!(http.is_idle());
}

#[test]
fn an_agreed_tunnel_does_not_depart() {
    let (pipe, _, mut http) = connection();
    pipe.give_room(10);
    pipe.send("GET /tunnel HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n");
    wait(&mut http);
    assert_eq!(http.departure(), Departure::Response);
}

proptest! {
    #[test]
    fn a_connection_may_move_at_any_byte(
        moves in prop::collection::vec((1_usize..120_000, 0_u64..3000), 1..8),
    ) {
        let (pipe, site, mut http) = connection();
        pipe.give_room(0);
        pipe.send(get("/big"));
        pipe.send(get("/"));
        for (room, overlap) in moves {
            wait(&mut http);
            pipe.give_more_room(room);
            wait(&mut http);
            if let Departure::Parts | Departure::Rest(_) = http.departure() {
                http = move_elsewhere(http, &site, overlap);
            } else {
                // The rest is short, or comes as bytes.
                let is_long = |responding: &Responding<Pieces>| {
                    let part = responding.resume.as_ref().map(|resume| resume.part);
                    part.is_some_and(|part| part.content_len() - responding.position > REST_LEN_MAX)
                };
                prop_assert!(!http.responding().is_some_and(|responding| responding.skip == 0 && is_long(responding)));
                http.set_pace(Pace::Ahead);
            }
        }
        pipe.take_all();
        prop_assert!(poll(&mut http).is_pending());
        let written = pipe.written();
        let expected = ok_big();
        prop_assert_eq!(sorted(&written[..expected.len()]), sorted(&expected));
        prop_assert_eq!(&written[expected.len()..], ok("hello"));
    }
}
