//! The behavior of real servers between which a transfer can move. The tests start them, send requests, and compare the
//! results with the table in `docs/origins.md`.
//!
//! `make origins` rewrites that table.

#![allow(clippy::unwrap_used)]

mod facts;
mod moves;
mod rows;
mod table;

use watari_test_origins::Content;
use watari_test_origins::raw::{self, RunningResponse};
use watari_test_origins::real::{Server, Setup};

#[test]
fn each_server_does_what_the_table_says() {
    let (said, is) = (table::read(), rows::ask_all());
    assert_eq!(said.len(), is.len(), "`make origins` writes the table");
    for (said, is) in said.iter().zip(&is) {
        assert_eq!(said, is, "`make origins` writes the table");
    }
}

#[test]
#[ignore = "writes docs/origins.md instead of testing"]
fn write_the_table() {
    table::write(&rows::ask_all());
}

/// They derive tags and dates from the same properties in the same way, or pass on those of nginx.
#[test]
fn a_pool_may_mix_nginx_h2o_and_caches_before_nginx() {
    use Server::{H2o, Nginx, Squid, TrafficServer, Varnish};
    let pool = [Nginx, H2o, Varnish, Squid, TrafficServer].map(|server| {
        let root = facts::copies();
        (server.start(&root, "").unwrap(), root)
    });
    for (first, _) in &pool {
        for (second, _) in &pool {
            assert_eq!(moves::moves(first.address(), second.address(), "/same.txt", &facts::content()), Ok(()));
        }
    }
}

/// Varnish caches a compressed answer as it is. The decompressed file for other clients differs from the one that the
/// tag belongs to.
#[test]
fn varnish_that_compresses_weakens_tags() {
    let root = facts::originals();
    let running = Server::Varnish.start(&root, "sub vcl_backend_response { set beresp.do_gzip = true; }").unwrap();
    let answer = raw::ask(running.address(), "GET", "/same.txt", &[("Accept-Encoding", "identity")]).unwrap();
    assert_eq!(answer.field("content-encoding"), None);
    assert!(answer.field("etag").unwrap().starts_with("W/"));
}

/// For each setup whose transfers move according to the table.
#[test]
fn a_transfer_outlives_its_server() {
    // More than fits between a server and a client that does not read.
    let content = Content::generated(1, 32 << 20);
    let roots = [(); 2].map(|()| facts::root_of("large.txt", &content));
    for (setup, _) in Setup::ALL.iter().zip(table::read()).filter(|(_, row)| row.moves()) {
        let [first, second] = roots.each_ref().map(|root| setup.start(root).unwrap());
        let begun = RunningResponse::get(first.address(), "/large.txt").unwrap();
        drop(first);
        let outcome = moves::goes_on(begun.end().unwrap(), second.address(), "/large.txt", &content);
        assert_eq!(outcome, Ok(()), "{setup:?}");
    }
}
