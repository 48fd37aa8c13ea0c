//! The possible next steps of the model.

use watari_handoff::ArbiterTimer;

use super::cluster::{Agent, Closed, Cluster, Dispatcher, Letter, Served};
use super::scenario::{Sabotage, Scenario};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The client sends a byte, and the dispatcher relays it to the owner's leg.
    ClientSends,
    ClientSendsFin,
    ClientResets,
    DispatcherRelays,
    DispatcherSeesLegEnd,
    LegIsReady,
    LegFails,
    DispatcherTimesOut(ArbiterTimer),
    DispatcherRestarts,
    Deliver(Letter),
    DeliverAndKeep(Letter),
    Lose(Letter),
    PrefaceArrives,
    /// The agent reads all available bytes, and opens them if it serves.
    AgentReads(usize),
    AgentSeals(usize),
    AgentWrites(usize),
    AgentFinishes(usize),
    AgentProposes {
        source: usize,
        target: usize,
    },
    AgentAsksAgain(usize),
    AgentSeesLegEnd(usize),
    FenceExpires(usize),
    HoldExpires(usize),
    AgentRestarts(usize, Closed),
}

impl Step {
    /// Whether this is a fault. Timers are not: they fire early or late, but they always fire.
    pub fn is_fault(self) -> bool {
        matches!(
            self,
            Self::ClientResets
                | Self::LegFails
                | Self::DispatcherRestarts
                | Self::DeliverAndKeep(_)
                | Self::Lose(_)
                | Self::AgentRestarts(..)
        )
    }
}

impl Cluster {
    /// Appends all possible next steps.
    pub fn steps(&self, scenario: &Scenario, steps: &mut Vec<Step>) {
        self.client_steps(scenario, steps);
        if let Some(dispatcher) = &self.dispatcher {
            self.dispatcher_steps(dispatcher, scenario, steps);
        }
        self.network_steps(steps);
        for (at, agent) in self.agents.iter().enumerate() {
            self.agent_steps(at, agent, scenario, steps);
        }
    }

    fn client_steps(&self, scenario: &Scenario, steps: &mut Vec<Step>) {
        if self.client.end.is_some() {
            return;
        }
        let is_read = self.dispatcher.as_ref().is_some_and(|dispatcher| dispatcher.arbiter.reads_client());
        if is_read && self.client.sent < scenario.rx_len {
            steps.push(Step::ClientSends);
        } else if is_read && scenario.client_fin && !self.client.fin {
            steps.push(Step::ClientSendsFin);
        }
        if self.budget.client_resets > 0 {
            steps.push(Step::ClientResets);
        }
    }

    fn dispatcher_steps(&self, dispatcher: &Dispatcher, scenario: &Scenario, steps: &mut Vec<Step>) {
        let Dispatcher { arbiter, leg, preparing } = dispatcher;
        if leg.up.0 < leg.up.1 {
            steps.push(Step::DispatcherRelays);
        } else if leg.closed.is_some() && !leg.seen_closed {
            steps.push(Step::DispatcherSeesLegEnd);
        }
        if preparing.is_some() {
            steps.push(Step::LegIsReady);
        }
        if preparing.is_some() && self.budget.leg_failures > 0 {
            steps.push(Step::LegFails);
        }
        if leg.preface && leg.closed.is_none() {
            steps.push(Step::PrefaceArrives);
        }
        match arbiter.timer() {
            Some(ArbiterTimer::Final) if !scenario.impatient => {}
            Some(timer) => steps.push(Step::DispatcherTimesOut(timer)),
            None => {}
        }
        if self.budget.restarts > 0 {
            steps.push(Step::DispatcherRestarts);
        }
    }

    fn network_steps(&self, steps: &mut Vec<Step>) {
        let mut letters = self.network.clone();
        letters.dedup();
        for letter in letters {
            if self.budget.losses > 0 {
                steps.push(Step::Lose(letter));
            }
            if self.budget.repeats > 0 {
                steps.push(Step::DeliverAndKeep(letter));
            }
            steps.push(Step::Deliver(letter));
        }
    }

    fn agent_steps(&self, at: usize, agent: &Agent, scenario: &Scenario, steps: &mut Vec<Step>) {
        if let Some(served) = &agent.served {
            self.leg_steps(at, served, scenario, steps);
            if served.is_serving() {
                self.serving_steps(at, served, scenario, steps);
            } else {
                self.waiting_steps(at, served, scenario, steps);
            }
        }
        if agent.held.is_some() && scenario.impatient {
            steps.push(Step::HoldExpires(at));
        }
        if self.budget.restarts > 0 && !agent.is_empty() {
            steps.push(Step::AgentRestarts(at, Closed::Fin));
            steps.push(Step::AgentRestarts(at, Closed::Reset));
        }
    }

    fn leg_steps(&self, at: usize, served: &Served, scenario: &Scenario, steps: &mut Vec<Step>) {
        // An agent that waits for a decision does so with or without a leg. An agent that has finished waits until the
        // dispatcher closes the leg, because its `Final` may be lost.
        if self.leg_kept_for(at).is_none() && served.source.is_serving() {
            steps.push(Step::AgentSeesLegEnd(at));
        }
        let Some(leg) = self.leg_of(at) else { return };
        let wanted = if served.is_serving() { scenario.rx_len } else { served.read_to };
        if leg.down.0 < leg.down.1 && served.read < wanted {
            steps.push(Step::AgentReads(at));
        }
        if served.is_serving() && served.written < served.payload.sealed {
            steps.push(Step::AgentWrites(at));
        }
    }

    fn serving_steps(&self, at: usize, served: &Served, scenario: &Scenario, steps: &mut Vec<Step>) {
        if served.payload.sealed < scenario.tx_len {
            steps.push(Step::AgentSeals(at));
        }
        let opened_all = served.payload.opened == scenario.rx_len
            && (!scenario.client_fin || self.leg_of(at).is_some_and(|leg| leg.down_fin));
        if opened_all && served.written == scenario.tx_len {
            steps.push(Step::AgentFinishes(at));
        } else if self.budget.proposals > 0 {
            let others = (0..scenario.agents).filter(|target| *target != at);
            steps.extend(others.map(|target| Step::AgentProposes { source: at, target }));
        }
    }

    fn waiting_steps(&self, at: usize, served: &Served, scenario: &Scenario, steps: &mut Vec<Step>) {
        if served.finished && scenario.is_sabotaged(Sabotage::AgentSaysFinalOnce) {
            return;
        }
        if !self.is_talking_with_dispatcher(at) || self.budget.retries > 0 {
            steps.push(Step::AgentAsksAgain(at));
        }
        if scenario.impatient && !served.finished {
            steps.push(Step::FenceExpires(at));
        }
    }
}
