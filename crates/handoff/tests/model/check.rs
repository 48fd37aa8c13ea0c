//! The properties of the model, and the search for a state that violates them.

use stateright::{Checker, Model, Property};
use watari_values::Epoch;

use super::cluster::{Agent, AgentMessage, Cluster, End, Letter, Wrong};
use super::driver::Driver;
use super::progress::explore;
use super::scenario::Scenario;
use super::steps::Step;

pub const ONE_SEALER: &str = "at most one agent can seal";
pub const NONCES: &str = "no nonce is used twice, none is skipped";
pub const RX_ORDER: &str = "the client's stream is opened whole and in order";
pub const TX_ORDER: &str = "the stream to the client arrives whole and in order";
pub const NO_TRUNCATION: &str = "no stream that is cut ends cleanly";
pub const NO_HARM: &str = "a harmless scenario resets no client";
pub const REFUSALS: &str = "no commit to a target that was heard refusing";
pub const NEEDED_RESETS: &str = "no reset while the owner's leg is as it should be";
pub const DEAD_LETTERS: &str = "a dead letter changes nothing";

impl Model for Scenario {
    type State = Cluster;
    type Action = Step;

    fn init_states(&self) -> Vec<Cluster> {
        vec![Cluster::new(self)]
    }

    fn actions(&self, cluster: &Cluster, steps: &mut Vec<Step>) {
        cluster.steps(self, steps);
    }

    fn next_state(&self, cluster: &Cluster, step: Step) -> Option<Cluster> {
        let mut driver = Driver { scenario: self, cluster: cluster.clone() };
        driver.take(step);
        Some(driver.cluster)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_SEALER, |_, c: &Cluster| c.agents.iter().filter(|a| a.may_seal()).count() <= 1),
            Property::always(NONCES, |_, c: &Cluster| !c.observer.wrongs.contains(&Wrong::Nonce)),
            Property::always(RX_ORDER, |_, c: &Cluster| !c.observer.wrongs.contains(&Wrong::RxOrder)),
            Property::always(TX_ORDER, |_, c: &Cluster| !c.observer.wrongs.contains(&Wrong::TxOrder)),
            Property::always(NO_TRUNCATION, |_, c: &Cluster| !c.observer.wrongs.contains(&Wrong::Truncation)),
            Property::always(REFUSALS, |_, c: &Cluster| !c.observer.wrongs.contains(&Wrong::Refuser)),
            Property::always(NEEDED_RESETS, |_, c: &Cluster| !c.observer.wrongs.contains(&Wrong::NeedlessReset)),
            Property::always(DEAD_LETTERS, |_, c: &Cluster| !c.observer.wrongs.contains(&Wrong::DeadLetter)),
            Property::always(NO_HARM, |scenario: &Scenario, c: &Cluster| {
                !scenario.is_harmless() || c.client.end != Some(End::Reset)
            }),
            Property::sometimes("a tail is shipped unwritten", |scenario: &Scenario, c: &Cluster| {
                scenario.tx_len == 0 || c.network.iter().any(|letter| {
                    matches!(letter, Letter::ToAgent { message: AgentMessage::Ship { payload, tail_offset, .. }, .. }
                        if payload.sealed > *tail_offset)
                })
            }),
            Property::sometimes(
                "more of the client's stream is shipped after a freeze",
                |scenario: &Scenario, c: &Cluster| {
                    scenario.rx_len == 0
                        || c.network
                            .iter()
                            .any(|letter| matches!(letter, Letter::ToAgent { message: AgentMessage::Rest { .. }, .. }))
                },
            ),
            Property::sometimes(
                "the stream ends after every move was committed",
                |scenario: &Scenario, c: &Cluster| {
                    let moved = Epoch(scenario.budget.proposals.into());
                    let tenure = c.dispatcher.as_ref().map(|dispatcher| dispatcher.arbiter.tenure());
                    c.client.end == Some(End::Clean) && tenure == Some(moved)
                },
            ),
        ]
    }
}

/// Explores every state of the scenario.
pub fn check(scenario: Scenario) {
    let checker = scenario.checker().threads(2).spawn_bfs().join();
    println!("{} states, up to {} steps", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
}

/// Asserts that a goal can be reached from every state without further faults.
pub fn check_progress(scenario: &Scenario, goal: fn(&Cluster) -> bool) {
    let progress = explore(scenario, goal);
    println!("{} states", progress.states);
    assert_eq!(progress.stuck, None, "after these steps the goal is out of reach");
}

/// The client received its whole stream, and its end.
pub fn ended_cleanly(cluster: &Cluster) -> bool {
    cluster.client.end == Some(End::Clean)
}

/// The connection has ended, and no node has any state of it.
pub fn is_over(cluster: &Cluster) -> bool {
    cluster.client.end.is_some() && cluster.dispatcher.is_none() && cluster.agents.iter().all(Agent::is_empty)
}
