//! Takes a step. Models the parts of a node around the machines, reduced to what affects the machines.

use watari_handoff::{ArbiterEvent, SourceEvent, TargetEvent};
use watari_values::Epoch;

use super::cluster::{Agent, AgentMessage, Closed, Cluster, End, Letter, Served, Wrong, name};
use super::scenario::{Sabotage, Scenario};
use super::steps::Step;

/// A cluster while it takes one step.
pub struct Driver<'a> {
    pub scenario: &'a Scenario,
    pub cluster: Cluster,
}

impl Driver<'_> {
    pub fn take(&mut self, step: Step) {
        match step {
            Step::ClientSends | Step::ClientSendsFin | Step::ClientResets => self.take_client(step),
            Step::DispatcherRelays => self.relay(),
            Step::DispatcherSeesLegEnd => self.see_leg_end(),
            Step::LegIsReady => self.leg_is_ready(),
            Step::LegFails => self.leg_fails(),
            Step::DispatcherTimesOut(timer) => self.time_out(timer),
            Step::DispatcherRestarts => {
                self.cluster.budget.restarts -= 1;
                self.end(End::Reset);
            }
            Step::Deliver(letter) => {
                self.remove(&letter);
                self.deliver_and_observe(letter);
            }
            Step::DeliverAndKeep(letter) => {
                self.cluster.budget.repeats -= 1;
                self.deliver_and_observe(letter);
            }
            Step::Lose(letter) => {
                self.cluster.budget.losses -= 1;
                self.remove(&letter);
            }
            Step::PrefaceArrives => self.preface_arrives(),
            Step::AgentReads(at) => self.agent_reads(at),
            Step::AgentSeals(at) => self.agent_seals(at),
            Step::AgentWrites(at) => self.agent_writes(at),
            Step::AgentFinishes(at) => self.agent_finishes(at),
            Step::AgentProposes { source, target } => self.agent_proposes(source, target),
            Step::AgentAsksAgain(at) => self.agent_asks_again(at),
            Step::AgentSeesLegEnd(at) => self.cluster.agents[at].served = None,
            Step::FenceExpires(at) => self.fence_expires(at),
            Step::HoldExpires(at) => self.target(at, &TargetEvent::Expired),
            Step::AgentRestarts(at, closed) => self.agent_restarts(at, closed),
        }
        self.observe_fin();
        if self.scenario.drops_dead_letters {
            self.drop_dead_letters();
        }
    }

    fn take_client(&mut self, step: Step) {
        match step {
            Step::ClientSends => {
                self.cluster.client.sent += 1;
                self.dispatcher().leg.down.1 += 1;
                self.arbitrate(ArbiterEvent::RelayedRx(1));
            }
            Step::ClientSendsFin => {
                self.cluster.client.fin = true;
                self.dispatcher().leg.down_fin = true;
            }
            _ => {
                self.cluster.budget.client_resets -= 1;
                self.cluster.client.end = Some(End::ResetByClient);
                self.arbitrate(ArbiterEvent::ClientGone);
            }
        }
    }

    /// The connection is over at the dispatcher, which closes its legs and removes it.
    pub fn end(&mut self, end: End) {
        self.cluster.client.end.get_or_insert(end);
        self.cluster.dispatcher = None;
    }

    pub fn send(&mut self, letter: Letter) {
        self.cluster.network.push(letter);
        self.cluster.network.sort();
    }

    fn remove(&mut self, letter: &Letter) {
        let network = &mut self.cluster.network;
        let at = network.iter().position(|other| other == letter).expect("what is delivered or lost is under way");
        network.remove(at);
    }

    /// Delivers a message. Records a violation if a message classified as dead has an effect.
    fn deliver_and_observe(&mut self, letter: Letter) {
        if !self.cluster.is_dead(&letter) {
            return self.deliver(letter);
        }
        let before = self.cluster.clone();
        self.deliver(letter);
        let acted = self.cluster != before;
        self.cluster.observer.note_if(acted, Wrong::DeadLetter);
    }

    fn deliver(&mut self, letter: Letter) {
        match letter {
            Letter::ToDispatcher { from, said } => self.deliver_to_dispatcher(from, said),
            Letter::ToAgent { to, message } => self.deliver_to_agent(to, message),
        }
    }

    fn deliver_to_agent(&mut self, at: usize, message: AgentMessage) {
        match message {
            AgentMessage::Freeze { epoch, rx_offset } => self.source(at, SourceEvent::Freeze { epoch, rx_offset }),
            AgentMessage::Committed(epoch) => {
                let epoch = self.named_or_present(at, epoch);
                self.source(at, SourceEvent::Committed(epoch));
            }
            AgentMessage::Aborted(epoch, reason) => {
                let named = self.named_or_present(at, epoch);
                self.source(at, SourceEvent::Aborted(named, reason));
                self.target(at, &TargetEvent::Aborted(epoch));
            }
            AgentMessage::Gone => {
                self.cluster.agents[at].served.take_if(|served| served.finished);
                self.source(at, SourceEvent::Gone);
                self.target(at, &TargetEvent::Gone);
            }
            AgentMessage::Ship { epoch, payload, rx_offset, tail_offset } => {
                self.take_shipment(at, epoch, payload, rx_offset, tail_offset);
            }
            AgentMessage::Rest { epoch, from_offset, to_offset } => {
                self.target(at, &TargetEvent::Rest { epoch, from_offset, len: to_offset - from_offset });
            }
        }
    }

    fn drop_dead_letters(&mut self) {
        let alive = self.cluster.network.iter().filter(|letter| !self.cluster.is_dead(letter)).copied().collect();
        self.cluster.network = alive;
    }

    /// An agent that reads FIN takes the client's stream as ended.
    fn observe_fin(&mut self) {
        let Some(dispatcher) = &self.cluster.dispatcher else { return };
        let leg = &dispatcher.leg;
        let sees_fin = leg.down_fin && leg.down.0 == leg.down.1;
        let read = self.cluster.agents[leg.agent].served.as_ref().map(|served| served.read);
        if sees_fin && self.cluster.leg_of(leg.agent).is_some() {
            let early = read != Some(self.scenario.rx_len);
            self.cluster.observer.note_if(early, Wrong::RxOrder);
        }
    }

    fn named_or_present(&self, at: usize, named: Epoch) -> Epoch {
        let served = self.cluster.agents[at].served.as_ref();
        match served {
            Some(served) if self.scenario.is_sabotaged(Sabotage::SourceIgnoresEpochs) => served.source.epoch(),
            _ => named,
        }
    }

    fn agent_restarts(&mut self, at: usize, closed: Closed) {
        self.cluster.budget.restarts -= 1;
        self.cluster.agents[at] = Agent::default();
        let tenure = self.cluster.dispatcher.as_ref().map(|dispatcher| dispatcher.leg.tenure);
        if let Some(tenure) = tenure {
            self.close_leg(at, tenure, closed);
        }
    }

    fn agent_proposes(&mut self, source: usize, target: usize) {
        self.cluster.budget.proposals -= 1;
        let rx_offset = self.served(source).read;
        self.source(source, SourceEvent::Propose { target: name(target), rx_offset });
    }

    pub fn served(&mut self, at: usize) -> &mut Served {
        self.cluster.agents[at].served.as_mut().expect("only an agent that serves, or has fenced, takes such steps")
    }
}
