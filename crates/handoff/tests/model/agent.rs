//! An agent around its source and its target.

use watari_handoff::{SourceAction, SourceEvent, Target, TargetAction, TargetEvent};
use watari_values::{AbortReason, Epoch};

use super::cluster::{AgentMessage, Closed, Held, Letter, Payload, Said, Served, Wrong, index};
use super::driver::Driver;
use super::scenario::Sabotage;

impl Driver<'_> {
    pub fn agent_reads(&mut self, at: usize) {
        let leg = &mut self.dispatcher().leg;
        let (first, end) = leg.down;
        let served = self.served(at);
        let wanted = if served.is_serving() { end } else { end.min(served.read_to) };
        let disordered = first != served.read;
        served.read = wanted;
        let (reached, is_serving) = (served.read == served.read_to, served.is_serving());
        self.dispatcher().leg.down.0 = wanted;
        self.cluster.observer.note_if(disordered, Wrong::RxOrder);
        if is_serving {
            self.open(at);
        } else if reached {
            self.source(at, SourceEvent::Read { rx_offset: wanted });
        }
    }

    /// Opens all bytes read.
    fn open(&mut self, at: usize) {
        let served = self.served(at);
        let (first, end) = (served.payload.opened, served.read);
        served.payload.opened = end;
        let observer = &mut self.cluster.observer;
        observer.note_if(first != observer.next_opened || end < first, Wrong::RxOrder);
        observer.next_opened = end;
    }

    pub fn agent_seals(&mut self, at: usize) {
        let payload = &mut self.served(at).payload;
        let nonce = payload.sealed;
        payload.sealed += 1;
        let observer = &mut self.cluster.observer;
        observer.note_if(nonce != observer.next_nonce, Wrong::Nonce);
        observer.next_nonce = observer.next_nonce.max(nonce + 1);
    }

    /// Writes all sealed bytes to the kernel.
    pub fn agent_writes(&mut self, at: usize) {
        let served = self.served(at);
        let first = served.written;
        served.written = served.payload.sealed;
        let end = served.written;
        let leg = &mut self.dispatcher().leg;
        assert_eq!(leg.up.1, first, "a leg carries the stream from where its preface said");
        leg.up.1 = end;
    }

    pub fn agent_finishes(&mut self, at: usize) {
        self.served(at).finished = true;
        self.say_final(at);
        self.close_own_leg(at, Closed::Fin);
    }

    pub fn agent_asks_again(&mut self, at: usize) {
        if self.cluster.is_talking_with_dispatcher(at) {
            self.cluster.budget.retries -= 1;
        }
        if self.served(at).finished {
            self.say_final(at);
        } else {
            self.source(at, SourceEvent::Retry);
        }
    }

    pub fn fence_expires(&mut self, at: usize) {
        let epoch = self.served(at).source.epoch();
        let event = if self.scenario.is_sabotaged(Sabotage::SourceThawsByTimeout) {
            SourceEvent::Aborted(epoch, AbortReason::Timeout)
        } else {
            SourceEvent::Expired
        };
        self.source(at, event);
    }

    fn say_final(&mut self, at: usize) {
        let Served { tenure, payload, .. } = *self.served(at);
        self.say(at, Said::Final { epoch: tenure, tx_offset: payload.sealed });
    }

    fn say(&mut self, from: usize, said: Said) {
        self.send(Letter::ToDispatcher { from, said });
    }

    fn close_own_leg(&mut self, at: usize, closed: Closed) {
        let tenure = self.served(at).tenure;
        self.close_leg(at, tenure, closed);
    }

    /// The agent closes the leg. A reset loses the bytes on their way, a FIN does not.
    pub fn close_leg(&mut self, at: usize, tenure: Epoch, closed: Closed) {
        let Some(dispatcher) = &mut self.cluster.dispatcher else { return };
        let leg = &mut dispatcher.leg;
        if leg.agent == at && leg.tenure == tenure && leg.closed.is_none() {
            leg.closed = Some(closed);
            if closed == Closed::Reset {
                leg.up.1 = leg.up.0;
            }
        }
    }

    pub fn source(&mut self, at: usize, event: SourceEvent) {
        let Some(served) = &mut self.cluster.agents[at].served else { return };
        if served.finished {
            return;
        }
        let mut actions = Vec::new();
        served.source.handle(event, &mut actions);
        for action in actions {
            self.carry_out_source(at, action);
        }
    }

    fn carry_out_source(&mut self, at: usize, action: SourceAction) {
        let Served { payload, written: tail_offset, .. } = *self.served(at);
        match action {
            SourceAction::Ship { target, epoch, rx_offset } => {
                let message = AgentMessage::Ship { epoch, payload, rx_offset, tail_offset };
                self.send(Letter::ToAgent { to: index(&target), message });
            }
            SourceAction::Propose { target, epoch, rx_offset } => {
                let target = index(&target);
                self.say(at, Said::Propose { epoch, target, rx_offset, tail_offset });
            }
            SourceAction::ReadTo(offset) => self.served(at).read_to = offset,
            SourceAction::Rest { target, epoch, from_offset, to_offset } => {
                let message = AgentMessage::Rest { epoch, from_offset, to_offset };
                self.send(Letter::ToAgent { to: index(&target), message });
            }
            SourceAction::Cancel { epoch, reason } => self.say(at, Said::Cancel { epoch, reason }),
            SourceAction::Thaw(_) => {
                self.served(at).read_to = 0;
                self.open(at);
            }
            SourceAction::Destroy { moved } => {
                if !moved {
                    self.close_own_leg(at, Closed::Reset);
                }
                self.cluster.agents[at].served = None;
            }
        }
    }

    /// Accepts a shipment only if its epoch is later than any that the agent has for the connection.
    pub fn take_shipment(&mut self, at: usize, epoch: Epoch, payload: Payload, rx_offset: u64, tail_offset: u64) {
        let agent = &mut self.cluster.agents[at];
        let known = agent.served.as_ref().map(|served| served.source.epoch());
        let held = agent.held.as_ref().map(|held| held.target.epoch());
        if known.max(held).is_some_and(|known| epoch <= known) {
            return;
        }
        let mut actions = Vec::new();
        let target = Target::hold(epoch, rx_offset, tail_offset, &mut actions);
        agent.held = Some(Held { target, payload, rx_offset, tail_offset });
        self.carry_out_target(at, actions, 0);
        if self.scenario.is_sabotaged(Sabotage::TargetSealsWhenHeld) {
            self.target(at, &TargetEvent::Committed { epoch, rx_offset, tail_offset });
        }
    }

    pub fn preface_arrives(&mut self) {
        let leg = &mut self.dispatcher().leg;
        leg.preface = false;
        let (at, epoch, rx_offset, tail_offset) = (leg.agent, leg.tenure, leg.down.0, leg.up.1);
        if self.cluster.agents[at].held.is_some() {
            self.target(at, &TargetEvent::Committed { epoch, rx_offset, tail_offset });
        } else {
            self.close_leg(at, epoch, Closed::Reset);
        }
    }

    pub fn target(&mut self, at: usize, event: &TargetEvent) {
        let Some(held) = &mut self.cluster.agents[at].held else { return };
        let mut actions = Vec::new();
        held.target.handle(event, &mut actions);
        let more = if let TargetEvent::Rest { len, .. } = event { *len } else { 0 };
        self.carry_out_target(at, actions, more);
    }

    fn carry_out_target(&mut self, at: usize, actions: Vec<TargetAction>, more: u64) {
        for action in actions {
            match action {
                TargetAction::Held { epoch, rx_offset, tail_offset } => {
                    self.say(at, Said::Held { epoch, rx_offset, tail_offset });
                }
                TargetAction::Keep => {
                    let held = self.cluster.agents[at].held.as_mut();
                    held.expect("rest is kept with what is held").rx_offset += more;
                }
                TargetAction::Activate => self.activate(at),
                TargetAction::RefuseLeg => {
                    let tenure = self.dispatcher().leg.tenure;
                    self.close_leg(at, tenure, Closed::Reset);
                }
                TargetAction::Refuse(epoch, reason) => self.say(at, Said::Refused { epoch, reason }),
                TargetAction::Drop => self.cluster.agents[at].held = None,
            }
        }
    }

    /// Activates the held connection. It replaces a copy that this agent fenced in an earlier attempt, because the
    /// connection has moved since.
    fn activate(&mut self, at: usize) {
        let held = self.cluster.agents[at].held.take().expect("what is held is activated");
        let Held { target, payload, rx_offset, tail_offset } = held;
        let served = Served::new(target.epoch(), payload, rx_offset, tail_offset, self.scenario);
        self.cluster.agents[at].served = Some(served);
        self.open(at);
    }
}
