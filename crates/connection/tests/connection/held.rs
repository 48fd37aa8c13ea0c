//! A response that is held within its body continues elsewhere.

use proptest::prelude::*;
use watari_connection::{Connection, End, Parts, Responding};

use crate::harness::{Http, Site, connection, end, get, long, ok, poll, wait};

/// Takes a held connection apart and continues it, with a body that begins at its position.
fn move_elsewhere(http: Http, site: &Site) -> Http {
    let Parts { stream, http, responding, opened, .. } = http.into_parts();
    assert!(opened.is_empty(), "the request was read");
    let Responding { position, .. } = responding.unwrap();
    let mut body = site.body("/long");
    body.skip(position as usize);
    let responding = Responding { body, position, pending: bytes::Bytes::new(), resume: None };
    Connection::resume(stream, http, site.clone(), responding)
}

#[test]
fn a_response_is_held_at_exactly_the_position() {
    let (pipe, _, mut http) = connection();
    pipe.give_room(10);
    pipe.send(get("/long"));
    wait(&mut http);
    http.hold_at(Some(100));
    pipe.take_all();
    assert!(matches!(end(&mut http), End::Held));
    let head = ok(&long()).len() - long().len();
    assert_eq!(pipe.written(), ok(&long())[..head + 100]);
    assert_eq!(http.responding().unwrap().position, 100);
    assert!(matches!(end(&mut http), End::Held), "until it is let go");
    http.hold_at(None);
    wait(&mut http);
    assert_eq!(pipe.written(), long()[100..]);
    assert!(http.is_idle());
}

#[test]
fn a_response_that_ends_before_is_not_held() {
    let (pipe, _, mut http) = connection();
    pipe.give_room(10);
    pipe.send(get("/long"));
    wait(&mut http);
    http.hold_at(Some(1_000_000));
    pipe.take_all();
    wait(&mut http);
    pipe.send(get("/"));
    wait(&mut http);
    assert_eq!(pipe.written(), ok(&long()) + &ok("hello"), "the next response is not held either");
}

proptest! {
    #[test]
    fn a_response_may_move_at_any_positions(positions in prop::collection::vec(7_u64..3890, 1..6)) {
        let mut positions = positions;
        positions.sort_unstable();
        positions.dedup();
        let (pipe, site, mut http) = connection();
        pipe.give_room(1);
        pipe.send(get("/long"));
        pipe.send(get("/"));
        wait(&mut http);
        pipe.take_all();
        for position in positions {
            http.hold_at(Some(position));
            prop_assert!(matches!(end(&mut http), End::Held), "{position}");
            http = move_elsewhere(http, &site);
        }
        prop_assert!(poll(&mut http).is_pending());
        prop_assert_eq!(pipe.written(), ok(&long()) + &ok("hello"));
    }
}
