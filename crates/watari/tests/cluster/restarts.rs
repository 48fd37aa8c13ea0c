//! Clients resume without a pause while agents restart one by one, and while ticket keys rotate: no handshake is full
//! without need. Only the death of its agent may cut a visit short.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use crate::clients::http::Fault;
use crate::clients::visitors::Kind;
use crate::clients::visitors::rustls::{FILE_LEN, Visitor};
use crate::harness::node::Node;
use crate::harness::wait::until;
use crate::harness::{AGENTS, Cluster, Content, Plan, ctl};

/// How agents share sessions, and the clients that lose none when agents end. A visit that is cut short may use up a
/// ticket, so clients have enough for some in a row.
#[derive(Debug)]
struct Town {
    sessions: &'static str,
    clients: [Kind; 4],
}

/// Clients keep the sessions that agents would lose.
const BY_TICKETS: Town =
    Town { sessions: "tickets = 8", clients: [Kind::Tickets, Kind::Psk, Kind::Tickets, Kind::Psk] };

/// Agents keep sessions, and restore those of before from their files.
const BY_FILES: [Town; 3] = [
    Town { sessions: "tickets = 8\nkeys_file = \"NAME.keys\"\ndatabase = \"NAME.redb\"", clients: OF_EVERY_KIND },
    Town {
        sessions: "mode = \"push\"\ntickets = 8\nkeys_file = \"NAME.keys\"\ndatabase = \"NAME.redb\"",
        clients: OF_EVERY_KIND,
    },
    Town {
        sessions: "mode = \"owner\"\ntickets = 8\nkeys_file = \"NAME.keys\"\ndatabase = \"NAME.redb\"",
        clients: OF_EVERY_KIND,
    },
];

const OF_EVERY_KIND: [Kind; 4] = [Kind::Ids, Kind::Tickets, Kind::Psk, Kind::Ids];

impl Town {
    fn start(&self) -> Cluster {
        let (content, dispatcher) = (Content::Files(&[FILE_LEN]), "bulk = \"stay\"");
        Cluster::start(&Plan { content, dispatcher, sessions: self.sessions, ..Plan::default() })
    }

    /// Ends each agent in turn by `end` and starts it again, while clients connect. At most `cut` of their visits may
    /// be cut short.
    fn check_restarts(&self, end: impl Fn(&Node), cut: u64) {
        let cluster = self.start();
        let visits = Visits::during(&cluster, &self.clients, |visits| {
            for agent in cluster.agents() {
                cluster.begin_anew(&[agent.name], &end);
                visits.wait_a_while();
            }
        });
        visits.check(self, cut);
    }
}

/// The number of visits of all clients that count as a while.
const WHILE: u64 = 200;

/// The results of all visits except each client's first.
#[derive(Debug, Default)]
struct Visits {
    over: AtomicBool,
    begun: AtomicU64,
    resumed: AtomicU64,
    full: AtomicU64,
    cut: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

impl Visits {
    /// Has clients visit repeatedly while `something` happens.
    fn during(cluster: &Cluster, clients: &[Kind], something: impl FnOnce(&Self)) -> Self {
        let visits = Self::default();
        thread::scope(|scope| {
            for kind in clients {
                scope.spawn(|| visits.come_again(cluster, *kind));
            }
            // Ends the clients also if a test fails.
            let _end = End(&visits.over);
            visits.wait_a_while();
            something(&visits);
            visits.wait_a_while();
        });
        visits
    }

    fn come_again(&self, cluster: &Cluster, kind: Kind) {
        let (visitor, source) = (Visitor::new(kind), cluster.clients.any());
        assert!(!visitor.visit(source, cluster.service).unwrap(), "there was nothing to resume");
        self.begun.fetch_add(1, Relaxed);
        while !self.over.load(Relaxed) {
            match visitor.visit(source, cluster.service) {
                Ok(true) => self.resumed.fetch_add(1, Relaxed),
                Ok(false) => self.full.fetch_add(1, Relaxed),
                Err(Fault::Broken(_) | Fault::Closed) => self.cut.fetch_add(1, Relaxed),
                Err(Fault::Wrong(what)) => return self.wrong.lock().unwrap().push(what),
            };
        }
    }

    /// Waits until clients have made [`WHILE`] more visits.
    fn wait_a_while(&self) {
        let enough = self.resumed.load(Relaxed) + WHILE;
        until("clients come again", || self.resumed.load(Relaxed) >= enough);
    }

    /// At most `cut` visits may have been cut short, and no session may be lost.
    fn check(&self, town: &Town, cut: u64) {
        println!("{town:?}: {self:?}");
        assert!(self.wrong.lock().unwrap().is_empty());
        assert_eq!(self.begun.load(Relaxed), town.clients.len() as u64);
        assert_eq!(self.full.load(Relaxed), 0, "sessions were lost");
        assert!(self.cut.load(Relaxed) <= cut, "more than {cut} were cut");
    }
}

/// Ends the clients when it is dropped.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn a_rolling_restart_of_agents_cuts_no_connection_and_loses_no_session() {
    for town in BY_FILES.iter().chain([&BY_TICKETS]) {
        town.check_restarts(Node::terminate, 0);
    }
}

/// Each death cuts at most one visit of each client.
#[test]
fn agents_that_die_one_by_one_forget_nothing() {
    let cut = (AGENTS.len() * OF_EVERY_KIND.len()) as u64;
    for town in BY_FILES.iter().chain([&BY_TICKETS]) {
        town.check_restarts(Node::kill, cut);
    }
}

/// Two agents rotate at once, and clients visit until the new keys seal.
#[test]
fn keys_that_are_rotated_under_load_forget_nothing() {
    let cluster = BY_TICKETS.start();
    let visits = Visits::during(&cluster, &BY_TICKETS.clients, |_| {
        for agent in ["a1", "a2"] {
            ctl::rotate_keys(&cluster.node(agent).admin());
        }
        until("the new keys seal everywhere", || {
            cluster.agents().all(|agent| newest_seed_age_s(&agent.admin()) > ACTIVATION_DELAY_S)
        });
    });
    visits.check(&BY_TICKETS, 0);
}

/// The time that an agent has a new key before it seals with it, in seconds.
const ACTIVATION_DELAY_S: u64 = 5;

fn newest_seed_age_s(admin: &Path) -> u64 {
    ctl::sessions(admin).unwrap()["newest_seed_age_s"].as_u64().unwrap()
}
