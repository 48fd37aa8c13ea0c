#![allow(clippy::unwrap_used)]

use std::num::NonZeroUsize;
use std::time::Duration;

use prometheus_client::registry::Registry;
use watari_balance::ClientPrefix;
use watari_values::SecretBytes;

use super::*;
use crate::scheduler::Stopwatch;
use crate::{AgentConfig, Checks, Limits, Policies};

fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

fn client(n: u8) -> IpAddr {
    [192, 0, 2, n].into()
}

/// A configuration with three agents.
fn config(bulk: BulkPolicy) -> Config {
    let agent = |n: u16| AgentConfig {
        name: name(&format!("a{n}")),
        legs: ([127, 0, 0, 1], n).into(),
        weight: 1,
        connections_max: None,
    };
    Config {
        name: name("d1"),
        agents: (1..=3).map(agent).collect(),
        policies: Policies { bulk, ..Policies::default() },
        checks: Checks::default(),
        proxy_from: Vec::new(),
        passthrough: Vec::new(),
        limits: Limits::default(),
    }
}

fn start(config: Config) -> Agents {
    let agents = Agents::new(config);
    for agent in ["a1", "a2", "a3"] {
        agents.set_key(&name(agent), &key(true));
    }
    agents
}

fn agents(bulk: BulkPolicy) -> Agents {
    start(config(bulk))
}

fn key(handshakes: bool) -> LegKey {
    LegKey { id: 1, key: SecretBytes::new(vec![7; 32]), handshakes }
}

fn max(connections: usize) -> Option<NonZeroUsize> {
    NonZeroUsize::new(connections)
}

/// The names of the agent that does the handshake, and of the agent that gets the connection after it.
fn names(assignment: &Assignment) -> (String, Option<String>) {
    let name = |place: &Place| place.agent().to_string();
    (name(&assignment.handshake), assignment.bulk.as_ref().map(name))
}

fn assign(agents: &Agents, n: u8) -> Result<Assignment, Unassigned> {
    agents.assign(client(n), &[], QueuePosition::New)
}

/// The agents that do the next `count` handshakes, of clients that connect and leave.
fn handshakes(agents: &Agents, count: u8) -> Vec<String> {
    (0..count).map(|n| names(&assign(agents, n).ok().unwrap()).0).collect()
}

#[test]
fn handshakes_go_round_while_the_data_of_a_client_stays_together() {
    let agents = agents(BulkPolicy::ClientAddress);
    let assigned: Vec<_> = (0..3).map(|_| names(&assign(&agents, 1).ok().unwrap())).collect();
    let handshakes: Vec<_> = assigned.iter().map(|(handshake, _)| handshake.as_str()).collect();
    assert_eq!(handshakes, ["a1", "a2", "a3"]);
    let owners: Vec<_> = assigned.iter().map(|(handshake, bulk)| bulk.as_ref().unwrap_or(handshake)).collect();
    assert!(owners.iter().all(|owner| *owner == owners[0]), "{owners:?}");
}

#[test]
fn without_handoff_the_address_selects_the_agent_of_the_handshake() {
    let agents = agents(BulkPolicy::Off);
    let first = names(&assign(&agents, 1).ok().unwrap());
    assert_eq!(first.1, None);
    assert_eq!(names(&assign(&agents, 1).ok().unwrap()), first);
}

#[test]
fn a_prefix_keeps_a_network_together() {
    let mut config = config(BulkPolicy::Off);
    config.policies.client_prefix = ClientPrefix::new(24, 56).unwrap();
    let all = handshakes(&start(config), 100);
    assert!(all.iter().all(|agent| *agent == all[0]), "{all:?}");
    assert!(handshakes(&agents(BulkPolicy::Off), 100).iter().any(|agent| *agent != all[0]));
}

#[test]
fn an_agent_without_certificates_gets_data_but_no_handshake() {
    let agents = agents(BulkPolicy::ClientAddress);
    agents.set_key(&name("a3"), &key(false));
    let assigned: Vec<_> = (0..100).map(|n| names(&assign(&agents, n).ok().unwrap())).collect();
    assert!(assigned.iter().all(|(handshake, _)| handshake != "a3"));
    assert!(assigned.iter().any(|(_, bulk)| bulk.as_deref() == Some("a3")));
}

#[test]
fn an_agent_without_a_link_or_that_failed_gets_nothing() {
    let agents = agents(BulkPolicy::Stay);
    agents.link_down(&name("a2"));
    let assign = |failed: &[&str]| {
        let failed: Vec<_> = failed.iter().map(|agent| name(agent)).collect();
        agents.assign(client(1), &failed, QueuePosition::Again).map(|assignment| names(&assignment).0)
    };
    let picked: Vec<_> = (0..4).map(|_| assign(&["a3"]).unwrap()).collect();
    assert_eq!(picked, ["a1"; 4]);
    assert_eq!(assign(&["a1", "a3"]), Err(Unassigned::NoAgent));
}

#[test]
fn an_unhealthy_agent_gets_nothing_until_it_answers_or_comes_anew() {
    let agents = agents(BulkPolicy::Stay);
    let check = |succeeded| agents.checked(&name("a2"), succeeded);
    assert_eq!([check(false), check(false)], [None, None]);
    assert!(handshakes(&agents, 3).contains(&"a2".to_owned()));
    assert_eq!(check(false), Some(Change::Fell));
    assert!(!handshakes(&agents, 30).contains(&"a2".to_owned()));
    assert_eq!(agents.availability(&name("a2")), Some(false));
    // A second key on the same link does not reset the agent's health.
    agents.set_key(&name("a2"), &key(true));
    assert!(!handshakes(&agents, 30).contains(&"a2".to_owned()));
    assert_eq!([check(true), check(true)], [None, Some(Change::Rose)]);
    assert!(handshakes(&agents, 3).contains(&"a2".to_owned()));

    assert_eq!([check(false), check(false), check(false)], [None, None, Some(Change::Fell)]);
    agents.link_down(&name("a2"));
    agents.set_key(&name("a2"), &key(true));
    assert!(handshakes(&agents, 3).contains(&"a2".to_owned()));
}

#[test]
fn weights_and_connections_count() {
    let mut weighted = config(BulkPolicy::Stay);
    weighted.agents[0].weight = 4;
    weighted.policies.handshake = HandshakePolicy::Weighted;
    let picked = handshakes(&start(weighted.clone()), 60);
    assert_eq!(picked.iter().filter(|agent| *agent == "a1").count(), 40);

    weighted.policies.handshake = HandshakePolicy::LeastConnections;
    let agents = start(weighted);
    let live: Vec<_> = (0..12).map(|n| assign(&agents, n).ok().unwrap()).collect();
    let of = |agent: &str| live.iter().filter(|assignment| names(assignment).0 == agent).count();
    assert_eq!([of("a1"), of("a2"), of("a3")], [8, 2, 2]);
}

#[test]
fn a_slow_agent_is_passed_over() {
    let mut config = config(BulkPolicy::Stay);
    config.policies.handshake = HandshakePolicy::ShortestResponse;
    let agents = start(config);
    // The response time of this agent is the duration of this test. The other agents get no request, so their response
    // time is 0.
    let mut slow =
        assign(&agents, 1).ok().map(|assignment| (Stopwatch::start(&assignment.handshake), assignment)).unwrap();
    slow.0.opened();
    slow.0.sent(1);
    std::thread::sleep(Duration::from_millis(5));
    slow.0.received();
    let picked = handshakes(&agents, 10);
    assert!(!picked.contains(&names(&slow.1).0), "{picked:?}");
    assert_eq!(handshakes(&agents, 2), ["a2", "a3"], "those that are as good take turns");
}

#[test]
fn connections_that_must_leave_are_spread_over_the_other_agents() {
    let mut config = config(BulkPolicy::Stay);
    config.policies.handshake = HandshakePolicy::LeastConnections;
    config.agents[2].weight = 3;
    let agents = start(config);
    agents.drains.begin(&name("a1"), AskedBy::Operator);
    let successors: Vec<_> = (0..40).map(|n| agents.successor(client(n)).unwrap().to_string()).collect();
    assert_eq!(["a1", "a2", "a3"].map(|agent| successors.iter().filter(|name| *name == agent).count()), [0, 10, 30]);
}

#[test]
fn no_agent_gets_more_than_it_may_have() {
    let mut config = config(BulkPolicy::ClientAddress);
    for agent in &mut config.agents {
        agent.connections_max = max(2);
    }
    let agents = start(config);
    let mut live = Vec::new();
    let why = loop {
        match assign(&agents, u8::try_from(live.len()).unwrap()) {
            Ok(assignment) => live.push(assignment),
            Err(why) => break why,
        }
    };
    assert_eq!(why, Unassigned::AgentsFull);
    for agent in ["a1", "a2", "a3"] {
        assert_eq!(agents.scheduler.connections(&name(agent)), 2);
    }
    live.pop();
    assert!(assign(&agents, 1).is_ok());
}

#[test]
fn a_place_goes_with_its_connection() {
    let agents = agents(BulkPolicy::Stay);
    let place = assign(&agents, 1).ok().unwrap().handshake;
    let moved = place.elsewhere(&name("a3"));
    drop(place);
    let counts = |agents: &Agents| ["a1", "a2", "a3"].map(|agent| agents.scheduler.connections(&name(agent)));
    assert_eq!(counts(&agents), [0, 0, 1]);
    drop(moved);
    assert_eq!(counts(&agents), [0, 0, 0]);
}

/// One agent with one slot, and a queue of two.
fn crowded() -> Arc<Agents> {
    let mut config = config(BulkPolicy::Stay);
    config.agents.truncate(1);
    config.agents[0].connections_max = max(1);
    config.limits = Limits { queue_max: 2, queue_timeout: Duration::from_secs(10), ..Limits::default() };
    Arc::new(start(config))
}

/// Asks for a slot in a new task, and returns when the client waits in the queue.
async fn enqueue(
    agents: &Arc<Agents>,
    metrics: &Arc<Metrics>,
    n: u8,
) -> tokio::task::JoinHandle<Result<Assignment, &'static str>> {
    let before = metrics.queue_length.get();
    let (agents, shared) = (agents.clone(), metrics.clone());
    let waiting = tokio::spawn(async move { agents.place(client(n), &shared).await });
    while metrics.queue_length.get() == before {
        tokio::task::yield_now().await;
    }
    waiting
}

#[tokio::test(start_paused = true)]
async fn clients_are_served_in_their_order() {
    let (agents, metrics) = (crowded(), Arc::new(Metrics::register(&mut Registry::default())));
    let served = agents.place(client(1), &metrics).await.unwrap();
    let second = enqueue(&agents, &metrics, 2).await;
    let third = enqueue(&agents, &metrics, 3).await;
    assert_eq!(agents.place(client(4), &metrics).await.err(), Some("queue_full"));
    drop(served);
    let second = second.await.unwrap().unwrap();
    assert!(!third.is_finished());
    // A new client waits behind the queue even if a slot is free.
    agents.scheduler.with(|state| assert!(!state.is_turn_of(QueuePosition::New)));
    drop(second);
    third.await.unwrap().unwrap();
    assert_eq!(metrics.queue_length.get(), 0);
    assert!(agents.place(client(5), &metrics).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_frees_its_queue_slot_and_waits_are_bounded() {
    let (agents, metrics) = (crowded(), Arc::new(Metrics::register(&mut Registry::default())));
    let served = agents.place(client(1), &metrics).await.unwrap();
    let impatient = enqueue(&agents, &metrics, 2).await;
    let patient = enqueue(&agents, &metrics, 3).await;
    impatient.abort();
    assert!(impatient.await.is_err_and(|error| error.is_cancelled()));
    let late = enqueue(&agents, &metrics, 4).await;
    drop(served);
    let served = patient.await.unwrap().unwrap();
    assert_eq!(late.await.unwrap().err(), Some("queue_timeout"));
    assert_eq!(metrics.queue_length.get(), 0);
    drop(served);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_appears_gets_the_waiting_clients() {
    let (agents, metrics) = (crowded(), Arc::new(Metrics::register(&mut Registry::default())));
    agents.link_down(&name("a1"));
    let waiting = enqueue(&agents, &metrics, 1).await;
    agents.set_key(&name("a1"), &key(true));
    let served = waiting.await.unwrap().unwrap();
    // A waiting client is also served when the agent's drain ends, and when a reload raises the agent's limit.
    let waiting = enqueue(&agents, &metrics, 2).await;
    let mut config = agents.settings().config.clone();
    config.agents[0].connections_max = max(2);
    agents.reload(config);
    waiting.await.unwrap().unwrap();
    drop(served);
    agents.drains.begin(&name("a1"), AskedBy::Operator);
    let waiting = enqueue(&agents, &metrics, 3).await;
    assert_eq!(agents.undrain(&name("a1")), Ok(true));
    waiting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_a_queue_clients_are_refused_at_once() {
    let agents = crowded();
    let mut config = agents.settings().config.clone();
    config.limits.queue_max = 0;
    agents.reload(config);
    let metrics = Metrics::register(&mut Registry::default());
    let served = agents.place(client(1), &metrics).await.unwrap();
    assert_eq!(agents.place(client(2), &metrics).await.err(), Some("agents_full"));
    drop(served);
    agents.drains.begin(&name("a1"), AskedBy::Operator);
    let since = tokio::time::Instant::now();
    assert_eq!(agents.place(client(2), &metrics).await.err(), Some("no_agent"));
    assert_eq!(since.elapsed(), Duration::ZERO);
}

/// A new process of the agent may have taken over. Its link comes up within milliseconds.
#[tokio::test(start_paused = true)]
async fn clients_wait_for_an_agent_whose_link_was_lost_just_now() {
    let agents = crowded();
    let mut config = agents.settings().config.clone();
    config.limits.queue_max = 0;
    agents.reload(config);
    let place = || {
        let agents = agents.clone();
        tokio::spawn(async move { agents.place(client(1), &Metrics::register(&mut Registry::default())).await.err() })
    };
    agents.link_down(&name("a1"));
    let waiting = place();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished());
    agents.set_key(&name("a1"), &key(true));
    assert_eq!(waiting.await.unwrap(), None);
    agents.link_down(&name("a1"));
    let since = tokio::time::Instant::now();
    assert_eq!(place().await.unwrap(), Some("no_agent"));
    assert!(since.elapsed() >= Duration::from_secs(1), "not at once");
    let since = tokio::time::Instant::now();
    assert_eq!(place().await.unwrap(), Some("no_agent"));
    assert_eq!(since.elapsed(), Duration::ZERO, "not again");
}

#[test]
fn a_reload_changes_policies_and_keeps_what_is_known() {
    let agents = agents(BulkPolicy::Stay);
    for _ in 0..3 {
        agents.checked(&name("a2"), false);
    }
    let mut changed = config(BulkPolicy::Stay);
    changed.policies.handshake = HandshakePolicy::Weighted;
    changed.agents[2].weight = 2;
    agents.reload(changed);
    assert_eq!(handshakes(&agents, 3), ["a3", "a1", "a3"], "a2 is unhealthy still");
}

#[test]
fn an_agent_that_is_removed_is_emptied_and_then_forgotten() {
    let agents = agents(BulkPolicy::Stay);
    let live: Vec<_> = (0..3).map(|n| assign(&agents, n).ok().unwrap()).collect();
    let mut smaller = config(BulkPolicy::Stay);
    smaller.agents.remove(1);
    agents.reload(smaller.clone());
    assert_eq!(agents.undrain(&name("a2")), Err(UnknownAgent));
    assert_eq!(agents.drains.all(), [name("a2")], "it is emptied whatever is said");
    assert!(!handshakes(&agents, 30).contains(&"a2".to_owned()));
    assert!(agents.sign(&name("a2"), &preface()).is_ok(), "moves that are decided are carried out");

    let late = Instant::now() + Duration::from_mins(1);
    assert!(agents.forget_retired(late).is_empty(), "it has a connection");
    drop(live);
    assert!(agents.forget_retired(Instant::now()).is_empty(), "a move to it may be under way");
    assert_eq!(agents.forget_retired(late), [name("a2")]);
    assert!(agents.drains.all().is_empty());
    assert!(agents.sign(&name("a2"), &preface()).is_err());
}

#[test]
fn an_agent_that_returns_to_the_configuration_is_as_it_was() {
    let agents = agents(BulkPolicy::Stay);
    let mut smaller = config(BulkPolicy::Stay);
    smaller.agents.remove(1);
    agents.reload(smaller);
    agents.reload(config(BulkPolicy::Stay));
    assert!(agents.drains.all().is_empty());
    assert!(handshakes(&agents, 3).contains(&"a2".to_owned()));
    // A reload does not end a drain that an operator began.
    agents.drains.begin(&name("a3"), AskedBy::Operator);
    agents.reload(config(BulkPolicy::Stay));
    assert_eq!(agents.drains.all(), [name("a3")]);
    // This also holds if the link of the agent went down and came up in the meantime.
    let mut smaller = config(BulkPolicy::Stay);
    smaller.agents.remove(2);
    agents.reload(smaller);
    agents.reload(config(BulkPolicy::Stay));
    agents.drains.begin(&name("a3"), AskedBy::Itself);
    agents.drains.link_up(&name("a3"));
    assert_eq!(agents.drains.all(), [name("a3")]);
}

#[test]
fn a_peer_that_becomes_an_agent_gets_clients_at_once() {
    let whole = config(BulkPolicy::Stay);
    let mut smaller = whole.clone();
    smaller.agents.remove(1);
    let agents = start(smaller.clone());
    assert_eq!(handshakes(&agents, 2), ["a1", "a3"]);
    agents.reload(whole.clone());
    assert!(handshakes(&agents, 3).contains(&"a2".to_owned()));
    let first = agents.settings().agent(&name("a2")).unwrap().signer().unwrap();

    // This also holds if the agent was removed. The same signer continues, because it counts its prefaces.
    agents.reload(smaller.clone());
    assert_eq!(agents.forget_retired(Instant::now() + Duration::from_mins(1)), [name("a2")]);
    agents.reload(whole.clone());
    assert!(handshakes(&agents, 3).contains(&"a2".to_owned()));
    assert!(Arc::ptr_eq(&first, &agents.settings().agent(&name("a2")).unwrap().signer().unwrap()));

    agents.reload(smaller.clone());
    agents.forget_retired(Instant::now() + Duration::from_mins(1));
    agents.link_down(&name("a2"));
    agents.reload(whole);
    assert!(!handshakes(&agents, 3).contains(&"a2".to_owned()), "its link is down");
}

fn preface() -> Preface {
    Preface {
        kind: watari_wire::leg::Kind::Check,
        connection: watari_values::ConnectionId { boot: 0, number: 0 },
        epoch: watari_values::Epoch(0),
        client: ([192, 0, 2, 1], 1).into(),
        server: ([192, 0, 2, 2], 2).into(),
    }
}

#[test]
fn a_drain_hopes_for_agents_that_are_configured_and_not_drained() {
    let agents = agents(BulkPolicy::Stay);
    agents.drains.begin(&name("a1"), AskedBy::Itself);
    assert!(!agents.hopes_for_target(&name("a1")), "there are targets");
    agents.link_down(&name("a2"));
    assert!(!agents.hopes_for_target(&name("a1")), "there is one");
    agents.link_down(&name("a3"));
    assert!(agents.hopes_for_target(&name("a1")));
    agents.drains.begin(&name("a3"), AskedBy::Operator);
    assert!(agents.hopes_for_target(&name("a1")), "a2 may come back");
    agents.drains.begin(&name("a2"), AskedBy::Operator);
    assert!(!agents.hopes_for_target(&name("a1")));
}
