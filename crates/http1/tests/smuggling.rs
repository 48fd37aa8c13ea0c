//! Requests and responses that are made to be read in two ways. Both sides read them in one, in any pieces, or refuse
//! them.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/corpus.rs"]
mod corpus;

use common::{receive, receive_moving, serve, serve_moving};
use corpus::{CONTENTS, FORGED, HEADS, NEXT, RESPONSES};
use http::{HeaderName, HeaderValue, Method, Uri};

#[test]
fn requests_have_one_end() {
    for (name, rest, outcome) in CONTENTS {
        assert_served(name, &format!("POST / HTTP/1.1\r\nHost: a\r\n{rest}{NEXT}"), outcome);
    }
}

#[test]
fn heads_have_one_meaning() {
    for (name, head, outcome) in HEADS {
        assert_served(name, &format!("{head}{NEXT}"), outcome);
    }
}

fn assert_served(name: &str, input: &str, outcome: &str) {
    for piece in [usize::MAX, 1, 7] {
        assert_eq!(serve(input.as_bytes(), piece), outcome, "{name}, in pieces of {piece}: {input:?}");
        assert_eq!(serve_moving(input.as_bytes(), piece), outcome, "{name}, in pieces of {piece}: {input:?}");
    }
}

#[test]
fn responses_have_one_end() {
    for (name, method, response, outcome) in RESPONSES {
        let input = format!("{response}{FORGED}");
        for piece in [usize::MAX, 1, 7] {
            let what = format!("{name}, in pieces of {piece}: {input:?}");
            assert_eq!(receive(method, input.as_bytes(), piece), *outcome, "{what}");
            assert_eq!(receive_moving(method, input.as_bytes(), piece), *outcome, "{what}");
        }
    }
}

/// Heads that we write contain only what these types can hold, so no value can end its line.
#[test]
fn no_value_ends_its_line() {
    for text in ["a\r\nb", "a\nb", "a\rb", "a\0b"] {
        assert!(HeaderValue::from_bytes(text.as_bytes()).is_err());
        assert!(HeaderName::from_bytes(text.as_bytes()).is_err());
        assert!(Method::from_bytes(text.as_bytes()).is_err());
        assert!(Uri::try_from(format!("/{text}")).is_err());
    }
    assert!(Uri::try_from("/a HTTP/1.1").is_err());
    assert!(Uri::try_from("/a\tb").is_err());
}
