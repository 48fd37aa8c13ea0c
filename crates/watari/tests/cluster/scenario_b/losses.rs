//! The same while links between agents lose packets: lost data come late, and so do all data behind them.

use super::run::{Mode, Run};
use crate::clients::visitors::{Engine, Kind, Visits};
use crate::harness::{AGENTS, Cluster, Plan};

/// Of each kind.
const SESSIONS: u32 = 200;
/// Of each session.
const RESUMPTIONS: u32 = 2;
/// Handshakes wait for late messages, so there are more of them at once than two.
const CLIENTS: u32 = 20;

/// All links between the agents: the node that dials, and the one that accepts.
const LINKS: &[(&str, &str)] = &[("a1", "a2"), ("a1", "a3"), ("a2", "a3")];

fn check_that_nothing_is_needless(mode: Mode) {
    let cluster = Cluster::start(&Plan { tapped_links: LINKS, ..mode.plan(&AGENTS) });
    for ((from, to), seed) in LINKS.iter().zip(1..) {
        cluster.tap(&format!("{from}-{to}")).lose(seed);
    }
    for kind in Kind::ALL {
        let visits = Visits { kind, sessions: SESSIONS, resumptions: RESUMPTIONS };
        let run = Run { cluster: &cluster, mode, engine: Engine::Rustls, clients: CLIENTS, visits };
        run.check_that_nothing_is_needless(run.go());
    }
    let lost: usize = LINKS.iter().map(|(from, to)| cluster.tap(&format!("{from}-{to}")).lost()).sum();
    println!("{mode:?}: {lost} pieces were late");
}

#[test]
fn losses_make_nothing_needless_with_tickets() {
    check_that_nothing_is_needless(Mode::Tickets);
}

#[test]
fn losses_make_nothing_needless_with_push() {
    check_that_nothing_is_needless(Mode::Push);
}

#[test]
fn losses_make_nothing_needless_with_owners() {
    check_that_nothing_is_needless(Mode::Owner);
}
