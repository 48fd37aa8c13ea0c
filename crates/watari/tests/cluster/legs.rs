//! Idle legs that moves leave behind carry other connections, invisibly to clients.

use std::net::Shutdown;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

use crate::clients::http::{Http, get_bytes};
use crate::clients::tls::{Taste, Tls};
use crate::harness::pattern::{Random, pattern, seed};
use crate::harness::tap::Tap;
use crate::harness::wait::until;
use crate::harness::{AGENTS, Cluster, Plan};

/// Visitors at the same time.
const VISITORS: u64 = 8;

/// Visits of all of them. Two of three move.
const VISITS: i64 = 3_000;

const REUSED: &str = "watari_dispatcher_legs_reused_total";
const COMMITTED: &str = "watari_dispatcher_moves_committed_total";
const ABORTED: &str = "watari_dispatcher_moves_aborted_total";
const IDLE: &str = "watari_dispatcher_legs_idle";

impl Cluster {
    fn legs_reused(&self) -> i64 {
        self.dispatcher().count(REUSED, "")
    }

    /// A client whose data belong to `agent`, after its first response.
    fn client_of(&self, agent: &str) -> Http<Tls> {
        let address = self.clients.served_by(agent);
        let mut client = Http::new(Tls::to_site(address, self.service, &Taste::default()).unwrap());
        client.download(1_000, 1).unwrap();
        client
    }

    /// Has connections move away from `agent` until it has idle legs, and waits on each of them.
    fn leave_legs_behind(&self, agent: &str) {
        let others: Vec<_> = AGENTS.into_iter().filter(|other| *other != agent).collect();
        until("legs are left behind", || {
            // One after the other, so that handshakes go to the agents in turn.
            for other in others.iter().chain(&others).chain(&others) {
                drop(self.client_of(other));
            }
            self.node(agent).count("watari_agent_legs_idle", "") > 0
        });
    }

    /// Waits until `agent` has a client's handshake to do.
    fn wait_for_handshake_at(&self, agent: &str) {
        until("a handshake has begun", || {
            self.connections().iter().any(|known| known.node == agent && known.version.is_none())
        });
    }

    /// Connections that began again at another agent, because `agent` had not answered on a reused leg.
    fn retries_after(&self, agent: &str) -> usize {
        let log = self.dispatcher().log();
        let agent = format!("agent={agent}");
        let begins_again = |line: &&str| line.contains("no answer on a reused leg") && line.contains(&agent);
        log.lines().filter(begins_again).count()
    }

    fn clients_cut(&self) -> i64 {
        let resets = |cause| self.dispatcher().count("watari_dispatcher_connections_reset_total", cause);
        let refused = self.dispatcher().count("watari_dispatcher_connections_refused_total", "");
        resets("owner_lost") + resets("owner_misbehaved") + refused
    }
}

#[test]
fn thousands_of_connections_follow_each_other_on_the_same_legs() {
    let seed = seed("WATARI_LEGS_SEED");
    let cluster = Cluster::start(&Plan::default());
    let visits = AtomicI64::new(0);
    thread::scope(|scope| {
        for number in 0..VISITORS {
            let (cluster, visits) = (&cluster, &visits);
            scope.spawn(move || {
                let mut random = Random::new(seed ^ (number + 1) << 32);
                while visits.fetch_add(1, Ordering::Relaxed) < VISITS {
                    visit(cluster, &mut random);
                }
            });
        }
    });
    let (committed, reused) = (cluster.dispatcher().count(COMMITTED, ""), cluster.legs_reused());
    eprintln!("{committed} moves, {reused} legs used again");
    assert!(committed > VISITS / 3, "{committed} moves");
    assert!(reused > committed / 2, "{reused} legs used again after {committed} moves");
    assert_eq!(cluster.count_on_agents("watari_agent_records_refused_total", ""), 0);
    assert_eq!(cluster.count_on_agents("watari_agent_lost_in_moves_total", ""), 0);
    assert_eq!(cluster.count_on_agents("watari_agent_legs_refused_total", ""), 0);
    cluster.wait_until_idle();
    until("unused legs are closed", || {
        cluster.dispatcher().count(IDLE, "") == 0 && cluster.count_on_agents("watari_agent_legs_idle", "") == 0
    });
}

fn visit(cluster: &Cluster, random: &mut Random) {
    let tastes = Taste::all();
    let taste = &tastes[random.below(tastes.len() as u64) as usize];
    let mut client = Http::new(Tls::to_site(cluster.clients.any(), cluster.service, taste).unwrap());
    for _ in 0..=random.below(3) {
        let seed = random.next();
        match random.below(4) {
            0 => client.upload(&pattern(seed, 0..random.below(30_000))).unwrap(),
            _ => client.download(random.below(30_000), seed).unwrap(),
        }
    }
}

/// The agent dies. The dispatcher notices dead legs only when it has written the beginning of a connection on one.
#[test]
fn an_agent_that_dies_with_legs_kept_costs_no_client() {
    let cluster = legs_lost(Tap::break_off);
    cluster.leave_legs_behind("a1");
}

/// A dead leg without a reset is given up with the link.
#[test]
fn an_agent_that_vanishes_with_legs_kept_costs_no_client() {
    legs_lost(|_| ());
}

/// Attempts at an agent's death as the tests need it. The agent's message that a leg is idle may still be on its way,
/// and then the dispatcher connects a new leg.
const ATTEMPTS_MAX: usize = 10;

/// The agent `a1` dies while a client uses an idle leg to it. `after_death` says what becomes of its legs.
fn legs_lost(after_death: fn(&Tap)) -> Cluster {
    // Each thread has its own idle legs. With one thread, the next handshake for the agent uses the idle leg.
    let cluster = Cluster::start(&Plan { dispatcher: "threads = 1", tapped_legs: &["a1"], ..Plan::default() });
    let used = (0..ATTEMPTS_MAX).any(|_| dies_with_a_leg_in_use(&cluster, after_death));
    assert!(used, "no leg that was kept was used");
    cluster
}

/// Returns whether an idle leg was used. If so, no client may be cut off.
fn dies_with_a_leg_in_use(cluster: &Cluster, after_death: fn(&Tap)) -> bool {
    cluster.leave_legs_behind("a1");
    let retries = || cluster.retries_after("a1");
    let before = (retries(), cluster.clients_cut());
    let tap = cluster.tap("a1");
    tap.hold();
    let served = thread::scope(|scope| {
        // Handshakes go to the agents in turn: one of three is for a1.
        let connect = || drop(cluster.client_of("a2"));
        let clients = [(); 3].map(|()| scope.spawn(connect));
        cluster.wait_for_handshake_at("a1");
        cluster.node("a1").kill();
        after_death(tap);
        clients.map(|client| client.join().is_ok())
    });
    let (was_kept, cut) = (retries() > before.0, cluster.clients_cut() - before.1);
    tap.pass();
    cluster.node("a1").start();
    cluster.wait_until_whole();
    if was_kept {
        assert_eq!((served, cut), ([true; 3], 0));
    }
    was_kept
}

/// The dispatcher writes nothing to a leg until the agent has learned that the leg is idle.
#[test]
fn a_late_decision_delays_no_other_connection() {
    assert!((0..ATTEMPTS_MAX).any(|_| decides_late()), "no move was decided within `move_timeout`");
}

/// Returns whether the dispatcher committed the move. On a busy machine `move_timeout` may end first.
fn decides_late() -> bool {
    let plan = Plan { dispatcher_limits: "move_timeout = \"5s\"", tapped_links: &[("a1", "d1")], ..Plan::default() };
    let cluster = Cluster::start(&plan);
    cluster.node("a2").stop();
    let address = cluster.clients.served_by("a2");
    let mut moving = Http::new(Tls::to_site(address, cluster.service, &Taste::default()).unwrap());
    let proposals = || cluster.dispatcher().count("watari_mesh_messages_received_total", "propose");
    until("the move is proposed", || proposals() > 0);
    let link = cluster.tap("a1-d1");
    link.hold();
    cluster.node("a2").go_on();
    let decided = |metric| cluster.dispatcher().count(metric, "");
    until("the move is decided", || decided(COMMITTED) + decided(ABORTED) > 0);
    if decided(COMMITTED) == 0 {
        return false;
    }
    moving.download(10_000, 1).unwrap();
    assert_eq!(cluster.dispatcher().count(COMMITTED, ""), 1);
    assert_eq!(cluster.node("a1").count("watari_agent_fenced", ""), 1);
    // Handshakes go to the agents in turn: the third is for a1, and each connection stays there.
    for agent in ["a2", "a3", "a1"] {
        drop(cluster.client_of(agent));
    }
    assert_eq!(cluster.legs_reused(), 0);
    link.pass();
    until("the agent waits on its leg", || cluster.node("a1").count("watari_agent_legs_idle", "") == 1);
    until("the leg is used again", || {
        drop(cluster.client_of("a1"));
        cluster.legs_reused() > 0
    });
    moving.download(10_000, 2).unwrap();
    assert_eq!(cluster.clients_cut(), 0);
    true
}

/// No connection moves. Whether the client or the agent ends first, the leg carries the next connection.
#[test]
fn connections_that_end_leave_their_legs_behind() {
    let cluster = Cluster::start(&Plan { dispatcher: "bulk = \"stay\"\nthreads = 1", ..Plan::default() });
    let connect = || Tls::to_site(cluster.clients.any(), cluster.service, &Taste::default()).unwrap();
    let ended_by_the_agent = || {
        let mut client = Http::new(connect());
        let request = String::from_utf8(get_bytes(3000, 5)).unwrap();
        client.send(request.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n").as_bytes()).unwrap();
        client.take_download(3000, 5).unwrap();
        assert!(client.ends_cleanly());
    };
    let ended_by_the_client = || {
        let mut client = connect();
        Http::new(&mut client).download(3000, 5).unwrap();
        client.session().send_close_notify();
        client.send().unwrap();
        client.tcp().shutdown(Shutdown::Write).unwrap();
        assert!(Http::new(&mut client).ends_cleanly());
    };
    let ends: [&dyn Fn(); 2] = [&ended_by_the_agent, &ended_by_the_client];
    for end in ends {
        let before = cluster.legs_reused();
        until("the legs are used again", || {
            end();
            cluster.legs_reused() > before + 20
        });
    }
    assert_eq!(cluster.dispatcher().count(COMMITTED, ""), 0);
    assert_eq!(cluster.clients_cut(), 0);
    assert_eq!(cluster.count_on_agents("watari_agent_legs_refused_total", ""), 0);
}

/// If one side keeps no idle legs, the other does not use any.
#[test]
fn legs_are_kept_only_if_both_sides_keep_them() {
    for plan in [
        Plan { agent_limits: "idle_legs_max = 0", ..Plan::default() },
        Plan { dispatcher_limits: "idle_legs_max = 0", ..Plan::default() },
    ] {
        let cluster = Cluster::start(&plan);
        for _ in 0..24 {
            cluster.client_of("a2").download(20_000, 3).unwrap();
        }
        until("the connections have moved", || cluster.dispatcher().count(COMMITTED, "") > 6);
        assert_eq!(cluster.legs_reused(), 0);
        assert_eq!(cluster.clients_cut(), 0);
    }
}
