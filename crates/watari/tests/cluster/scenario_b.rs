//! Scenario B of the paper (section 4.3): clients come again, each time to the next agent. If agents share sessions, no
//! handshake is full without need. Of the paper's 2,000 resumptions, 124 were full handshakes; with nothing shared,
//! 1,883.
//!
//! Two clients at once, as in the paper.

mod losses;
mod run;

use crate::clients::visitors::{Engine, Kind, Tally, Visits};
use crate::harness::{Cluster, FIVE_AGENTS};
use crate::redis::Server;
use run::{Mode, Run};

/// As in the paper, of each session.
const RESUMPTIONS: u32 = 2;
/// As in the paper.
const SESSIONS: u32 = 1_000;
/// For clients that need a virtual machine, and for a second run.
const SOME_SESSIONS: u32 = 40;
/// As in the paper.
const CLIENTS: u32 = 2;

const TWO_AGENTS: &[&str] = FIVE_AGENTS.split_at(2).0;

fn check_that_nothing_is_needless(mode: Mode, agents: &'static [&'static str], sessions: impl Fn(Engine) -> u32) {
    let cluster = Cluster::start(&mode.plan(agents));
    for (engine, kind) in every_client() {
        let visits = Visits { kind, sessions: sessions(engine), resumptions: RESUMPTIONS };
        let run = Run { cluster: &cluster, mode, engine, clients: CLIENTS, visits };
        run.check_that_nothing_is_needless(run.go());
    }
}

fn every_client() -> impl Iterator<Item = (Engine, Kind)> {
    Engine::ALL.into_iter().flat_map(|engine| engine.kinds().iter().map(move |&kind| (engine, kind)))
}

fn some(_: Engine) -> u32 {
    SOME_SESSIONS
}

/// The paper's number, for clients that start fast.
fn many_where_cheap(engine: Engine) -> u32 {
    if matches!(engine, Engine::OpenSsl | Engine::Rustls) { SESSIONS } else { SOME_SESSIONS }
}

#[test]
fn nothing_is_needless_with_tickets() {
    check_that_nothing_is_needless(Mode::Tickets, TWO_AGENTS, some);
    check_that_nothing_is_needless(Mode::Tickets, &FIVE_AGENTS, many_where_cheap);
}

#[test]
fn nothing_is_needless_with_push() {
    check_that_nothing_is_needless(Mode::Push, TWO_AGENTS, some);
    check_that_nothing_is_needless(Mode::Push, &FIVE_AGENTS, many_where_cheap);
}

#[test]
fn nothing_is_needless_with_owners() {
    check_that_nothing_is_needless(Mode::Owner, TWO_AGENTS, some);
    check_that_nothing_is_needless(Mode::Owner, &FIVE_AGENTS, many_where_cheap);
}

#[test]
fn nothing_is_needless_with_redis() {
    let server = Server::start();
    let redis = Mode::Redis(server.sessions(""));
    check_that_nothing_is_needless(redis, TWO_AGENTS, some);
    check_that_nothing_is_needless(redis, &FIVE_AGENTS, many_where_cheap);
}

/// The paper's "migration off". One client at a time, so that each visit is to another agent than the one before.
#[test]
fn everything_is_needless_where_nothing_is_shared() {
    let cluster = Cluster::start(&Mode::Private.plan(TWO_AGENTS));
    for engine in [Engine::OpenSsl, Engine::Rustls] {
        for &kind in engine.kinds() {
            let visits = Visits { kind, sessions: SOME_SESSIONS, resumptions: RESUMPTIONS };
            let counted = Run { cluster: &cluster, mode: Mode::Private, engine, clients: 1, visits }.go();
            assert_eq!(counted.tally, Tally { full: SOME_SESSIONS * (1 + RESUMPTIONS), resumed: 0 });
        }
    }
}

/// Every client, kind, mode and cluster at the paper's size, which takes some minutes.
#[test]
#[ignore = "takes minutes; `make scenario-b` runs it"]
fn everything_at_full_size() {
    let server = Server::start();
    let shared = [Mode::Tickets, Mode::Push, Mode::Owner, Mode::Redis(server.sessions(""))];
    for agents in [TWO_AGENTS, &FIVE_AGENTS] {
        count_what_is_needless(agents);
        for mode in shared {
            check_that_nothing_is_needless(mode, agents, |_| SESSIONS);
        }
    }
}

/// Two clients in step may or may not meet their own agents again. The printed count is for comparison with the paper's
/// figure.
fn count_what_is_needless(agents: &'static [&'static str]) {
    let cluster = Cluster::start(&Mode::Private.plan(agents));
    for (engine, kind) in every_client() {
        let visits = Visits { kind, sessions: SESSIONS, resumptions: RESUMPTIONS };
        let counted = Run { cluster: &cluster, mode: Mode::Private, engine, clients: CLIENTS, visits }.go();
        assert_eq!((counted.elsewhere, counted.pulled), (0, 0));
        assert!(counted.tally.full > SESSIONS);
    }
}
