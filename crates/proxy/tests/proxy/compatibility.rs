//! Transfers through the proxy that begin at a real server and end at another one of the same kind. In the middle, they
//! are ordered away, or their server is killed. The results are in `docs/origins.md`, and are compared with that table.
//!
//! `make origins` writes the table anew.

mod table;

use std::time::{Duration, SystemTime};

use tokio::time::sleep;
use watari_proxy::PoolConfig;
use watari_test_origins::Content;
use watari_test_origins::real::{Docroot, Running, Setup};

use crate::common::Fixture;
use crate::common::download::{Download, transfers};

/// More than fits between a server and a client that does not read.
const LEN: u64 = 32 << 20;
const CUT_AT: u64 = LEN / 4;
/// How often a server is killed until that cuts its response.
const KILLS_MAX: usize = 20;
const TARGET: &str = "/large.txt";

#[tokio::test]
async fn transfers_fare_as_the_table_says() {
    let (said, is) = (table::read(), try_all().await);
    assert_eq!(said.len(), is.len(), "`make origins` writes the table");
    for (said, is) in said.iter().zip(&is) {
        assert_eq!(said, is, "`make origins` writes the table");
    }
}

#[tokio::test]
#[ignore = "writes docs/origins.md instead of testing"]
async fn write_the_table() {
    table::write(&try_all().await);
}

async fn try_all() -> Vec<table::Row> {
    let content = Content::generated(1, LEN);
    let roots = [root_of(&content), root_of(&content)];
    let mut rows = Vec::new();
    for setup in Setup::ALL {
        println!("{setup:?}");
        let ordered = ordered_away(setup, &roots, &content).await;
        let killed = killed(setup, &roots, &content).await;
        rows.push([setup.server.name().into(), setup.configuration.into(), ordered.into(), killed.into()]);
    }
    rows
}

/// All of the file arrives in any case. The result is the origin that delivered its end.
async fn ordered_away(setup: &Setup, roots: &[Docroot; 2], content: &Content) -> &'static str {
    let (fixture, [_first, second]) = start(setup, roots);
    let mut download = Download::begin(&fixture, TARGET, content).await;
    download.read_to(CUT_AT).await.unwrap();
    if let [transfer] = &transfers(&fixture)[..] {
        fixture.proxy.move_transfer(transfer.id, Some(&second.url().parse().unwrap())).unwrap();
    }
    // The client reads slowly. Otherwise no bytes are left when the other server responds.
    while moves(&fixture) == Some(0) && download.position < LEN / 2 && download.piece().await.unwrap().is_some() {
        sleep(Duration::from_millis(2)).await;
    }
    download.read_to_the_end().await.unwrap();
    if moves(&fixture) == Some(1) { "moves" } else { "stays" }
}

/// All of the file arrives, or the client can detect the cut.
///
/// If a server has sent the whole response before the signal reached it, it was not cut, and the attempt is repeated.
async fn killed(setup: &Setup, roots: &[Docroot; 2], content: &Content) -> &'static str {
    for _ in 0..KILLS_MAX {
        if let Some(result) = killed_once(setup, roots, content).await {
            return result;
        }
    }
    panic!("{setup:?} has sent everything before it ended, {KILLS_MAX} times");
}

/// `None`: the first server sent everything before it ended.
async fn killed_once(setup: &Setup, roots: &[Docroot; 2], content: &Content) -> Option<&'static str> {
    let (fixture, [first, _second]) = start(setup, roots);
    let mut download = Download::begin(&fixture, TARGET, content).await;
    download.read_to(CUT_AT).await.unwrap();
    if let [transfer] = &transfers(&fixture)[..] {
        assert_eq!(transfer.origin.to_string(), first.url());
    }
    drop(first);
    match download.read_to_the_end().await {
        Ok(()) if moves(&fixture) == Some(0) => None,
        Ok(()) => {
            assert_eq!(moves(&fixture), Some(1));
            Some("complete")
        }
        Err(_) => Some("visibly incomplete"),
    }
}

/// The number of moves of the only transfer, if it can move.
fn moves(fixture: &Fixture) -> Option<u32> {
    transfers(fixture).first().map(|transfer| transfer.moves)
}

/// Two servers of a kind, and a proxy that tries the first one first.
fn start(setup: &Setup, roots: &[Docroot; 2]) -> (Fixture, [Running; 2]) {
    let servers = roots.each_ref().map(|root| setup.start(root).unwrap_or_else(|error| panic!("{error}")));
    let addresses = servers.each_ref().map(|server| server.url().parse().unwrap());
    (Fixture::of(PoolConfig::plain("pool", addresses)), servers)
}

/// Copies that keep the modification time.
fn root_of(content: &Content) -> Docroot {
    let root = Docroot::new().unwrap();
    root.put(&TARGET[1..], content, SystemTime::UNIX_EPOCH + Duration::from_hours(498_198)).unwrap();
    root
}
