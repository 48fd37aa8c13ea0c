//! What must hold, and the search for a state in which it does not.

use stateright::{Checker, Model, Property};
use watari_wire::Epoch;

use crate::cluster::{Agent, Cluster, End, Letter, Told};
use crate::driver::Driver;
use crate::scenario::Scenario;
use crate::steps::Step;

pub const ONE_SEALER: &str = "at most one agent can seal";
pub const NONCES: &str = "no nonce is used twice, none is skipped";
pub const RX_ORDER: &str = "the client's stream is opened whole and in order";
pub const TX_ORDER: &str = "the stream to the client arrives whole and in order";
pub const NO_TRUNCATION: &str = "no stream that is cut ends cleanly";
pub const NO_HARM: &str = "what can harm nobody harms nobody";
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
            Property::always(NONCES, |_, c: &Cluster| !c.observer.nonce_misused),
            Property::always(RX_ORDER, |_, c: &Cluster| !c.observer.rx_disordered),
            Property::always(TX_ORDER, |_, c: &Cluster| !c.observer.tx_disordered),
            Property::always(NO_TRUNCATION, |_, c: &Cluster| !c.observer.truncated_cleanly),
            Property::always(NO_HARM, |scenario: &Scenario, c: &Cluster| {
                !scenario.is_harmless() || c.client.end != Some(End::Reset)
            }),
            Property::always(DEAD_LETTERS, |_, c: &Cluster| !c.observer.dead_letter_acted),
            Property::sometimes("a tail is shipped unwritten", |_, c: &Cluster| {
                c.network.iter().any(|letter| {
                    matches!(letter, Letter::ToAgent { told: Told::Ship { payload, tail_offset, .. }, .. }
                        if payload.sealed > *tail_offset)
                })
            }),
            Property::sometimes("more of the client's stream is shipped after a freeze", |_, c: &Cluster| {
                c.network.iter().any(|letter| matches!(letter, Letter::ToAgent { told: Told::Rest { .. }, .. }))
            }),
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

/// Explores every state the scenario allows.
pub fn check(scenario: Scenario) {
    let checker = scenario.checker().threads(2).spawn_bfs().join();
    println!("{} states, {} transitions deep at most", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
}

/// Whether nothing is left of the connection anywhere.
pub fn is_over(cluster: &Cluster) -> bool {
    cluster.client.end.is_some() && cluster.dispatcher.is_none() && cluster.agents.iter().all(Agent::is_empty)
}
