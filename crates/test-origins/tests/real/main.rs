//! What real servers do that a transfer can move between: started, asked, and compared with the table in
//! `docs/origins.md`.
//!
//! `make origins` writes that table anew.

#![allow(clippy::unwrap_used)]

mod facts;
mod moves;
mod rows;
mod table;

use watari_test_origins::Content;
use watari_test_origins::raw::{self, Begun};
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

/// They make a tag and a date of the same things in the same way, or pass on what nginx made.
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

/// What comes compressed is cached so, and what is made of it for others is no longer the file that the tag was given
/// to.
#[test]
fn varnish_that_compresses_weakens_tags() {
    let root = facts::originals();
    let running = Server::Varnish.start(&root, "sub vcl_backend_response { set beresp.do_gzip = true; }").unwrap();
    let answer = raw::ask(running.address(), "GET", "/same.txt", &[("Accept-Encoding", "identity")]).unwrap();
    assert_eq!(answer.field("content-encoding"), None);
    assert!(answer.field("etag").unwrap().starts_with("W/"));
}

/// With each setup of which the table says that transfers move.
#[test]
fn a_transfer_outlives_its_server() {
    // More than fits between a server and a client that does not read.
    let content = Content::generated(1, 32 << 20);
    let roots = [(); 2].map(|()| facts::root_of("large.txt", &content));
    for (setup, _) in Setup::ALL.iter().zip(table::read()).filter(|(_, row)| row.moves()) {
        let [first, second] = roots.each_ref().map(|root| setup.start(root).unwrap());
        let begun = Begun::get(first.address(), "/large.txt").unwrap();
        drop(first);
        let outcome = moves::goes_on(begun.end().unwrap(), second.address(), "/large.txt", &content);
        assert_eq!(outcome, Ok(()), "{setup:?}");
    }
}
