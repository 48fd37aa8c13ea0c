//! The dispatcher around its arbiter.

use watari_handoff::{ArbiterAction, ArbiterEvent, ArbiterTimer, Offer, ResetCause};
use watari_values::{Epoch, NodeName};

use super::cluster::{AgentMessage, Closed, Cluster, Dispatcher, End, Leg, Letter, Said, Wrong, index, name};
use super::driver::Driver;
use super::scenario::Sabotage;

impl Driver<'_> {
    pub fn dispatcher(&mut self) -> &mut Dispatcher {
        self.cluster.dispatcher.as_mut().expect("only a dispatcher that has the connection takes such steps")
    }

    /// One byte, from the leg to the client.
    pub fn relay(&mut self) {
        self.pass_on();
        self.arbitrate(ArbiterEvent::RelayedTx(1));
    }

    fn pass_on(&mut self) {
        let leg = &mut self.dispatcher().leg;
        let number = leg.up.0;
        leg.up.0 += 1;
        let Cluster { client, observer, .. } = &mut self.cluster;
        observer.note_if(number != client.received, Wrong::TxOrder);
        client.received += 1;
    }

    pub fn see_leg_end(&mut self) {
        let leg = &mut self.dispatcher().leg;
        leg.seen_closed = true;
        let reset = leg.closed == Some(Closed::Reset);
        if self.cluster.client.end.is_some() {
            return self.end(End::Clean);
        }
        if !reset && self.scenario.is_sabotaged(Sabotage::DispatcherTrustsFin) {
            return self.finish_client();
        }
        self.arbitrate(ArbiterEvent::LegEnded { reset });
    }

    pub fn leg_is_ready(&mut self) {
        let prepared = self.dispatcher().preparing.take().expect("a leg was asked for");
        self.arbitrate(ArbiterEvent::LegReady(prepared));
    }

    pub fn leg_fails(&mut self) {
        self.cluster.budget.leg_failures -= 1;
        let prepared = self.dispatcher().preparing.take().expect("a leg was asked for");
        self.arbitrate(ArbiterEvent::LegFailed(prepared));
    }

    pub fn time_out(&mut self, timer: ArbiterTimer) {
        if timer == ArbiterTimer::Move && self.scenario.is_sabotaged(Sabotage::DispatcherCommitsOnSuspicion) {
            return self.commit_on_suspicion();
        }
        self.arbitrate(ArbiterEvent::Timeout(timer));
    }

    /// Invents the answer of the target.
    fn commit_on_suspicion(&mut self) {
        let Cluster { client, agents, .. } = &self.cluster;
        let source =
            agents.iter().position(|agent| agent.served.is_some()).expect("no agent restarts in this scenario");
        let (rx_offset, tail_offset) = (client.sent, self.served(source).written);
        let epoch = self.served(source).source.epoch();
        self.arbitrate(ArbiterEvent::LegReady(epoch));
        self.arbitrate(ArbiterEvent::Held(offer(1 - source, epoch, rx_offset, tail_offset)));
    }

    pub fn deliver_to_dispatcher(&mut self, from: usize, said: Said) {
        if self.cluster.dispatcher.is_none() {
            return self.send_to_agent(from, AgentMessage::Gone);
        }
        if let Said::Refused { epoch, .. } = said {
            self.cluster.observer.refused = Some((from, epoch));
        }
        let event = match said {
            Said::Propose { epoch, target, rx_offset, tail_offset } => {
                let offer = offer(target, epoch, rx_offset, tail_offset);
                ArbiterEvent::Proposed { from: name(from), offer }
            }
            Said::Held { epoch, rx_offset, tail_offset } => {
                ArbiterEvent::Held(offer(from, epoch, rx_offset, tail_offset))
            }
            Said::Refused { epoch, reason } => ArbiterEvent::Refused { from: name(from), epoch, reason },
            Said::Cancel { epoch, reason } => ArbiterEvent::Cancelled { from: name(from), epoch, reason },
            Said::Final { epoch, tx_offset } => ArbiterEvent::Final { from: name(from), epoch, tx_offset },
        };
        self.arbitrate(event);
        if self.scenario.is_sabotaged(Sabotage::DispatcherIgnoresTail) {
            self.count_what_is_under_way();
        }
    }

    /// While moving, counts bytes in transit from the source as relayed.
    fn count_what_is_under_way(&mut self) {
        let Some(dispatcher) = &mut self.cluster.dispatcher else { return };
        let waiting = dispatcher.leg.up.1 - dispatcher.leg.up.0;
        if dispatcher.arbiter.is_moving() && waiting > 0 {
            dispatcher.leg.up.0 = dispatcher.leg.up.1;
            self.arbitrate(ArbiterEvent::RelayedTx(waiting));
        }
    }

    pub fn arbitrate(&mut self, event: ArbiterEvent) {
        let mut actions = Vec::new();
        self.dispatcher().arbiter.handle(event, &mut actions);
        for action in actions {
            self.carry_out_arbiter(action);
        }
    }

    fn carry_out_arbiter(&mut self, action: ArbiterAction) {
        match action {
            ArbiterAction::PrepareLeg { epoch, .. } => self.dispatcher().preparing = Some(epoch),
            ArbiterAction::Freeze { source, epoch, rx_offset } => {
                self.send_to_agent(index(&source), AgentMessage::Freeze { epoch, rx_offset });
            }
            ArbiterAction::Commit { source, target, epoch, rx_offset, tail_offset } => {
                self.commit(&source, Leg::new(index(&target), epoch, rx_offset, tail_offset));
            }
            ArbiterAction::Abort { source, target, epoch, reason } => {
                self.dispatcher().preparing = None;
                self.send_to_agent(index(&source), AgentMessage::Aborted(epoch, reason));
                self.send_to_agent(index(&target), AgentMessage::Aborted(epoch, reason));
            }
            ArbiterAction::SendAborted { to, epoch, reason } => {
                self.send_to_agent(index(&to), AgentMessage::Aborted(epoch, reason));
            }
            ArbiterAction::SendCommitted { to, epoch } => self.tell_committed(&to, epoch),
            ArbiterAction::SendGone { to } => self.send_to_agent(index(&to), AgentMessage::Gone),
            ArbiterAction::FinishClient => self.finish_client(),
            ArbiterAction::Reset(cause) => self.reset(cause),
        }
    }

    fn commit(&mut self, source: &NodeName, mut leg: Leg) {
        let epoch = leg.tenure;
        let observer = &mut self.cluster.observer;
        observer.note_if(observer.refused == Some((leg.agent, epoch)), Wrong::Refuser);
        leg.down_fin = self.cluster.client.fin && !self.scenario.is_sabotaged(Sabotage::DispatcherForgetsClientFin);
        if self.scenario.is_sabotaged(Sabotage::DispatcherForgetsWhatItRead) && leg.down.1 < self.scenario.rx_len {
            self.cluster.client.sent += 1;
        }
        self.dispatcher().leg = leg;
        self.send_to_agent(index(source), AgentMessage::Committed(epoch));
    }

    fn tell_committed(&mut self, to: &NodeName, epoch: Epoch) {
        let goes = self.scenario.is_sabotaged(Sabotage::DispatcherSaysGoneToLateProposal);
        self.send_to_agent(index(to), if goes { AgentMessage::Gone } else { AgentMessage::Committed(epoch) });
    }

    fn finish_client(&mut self) {
        let Cluster { client, observer, .. } = &mut self.cluster;
        observer.note_if(client.received != observer.next_nonce, Wrong::Truncation);
        client.end.get_or_insert(End::Clean);
        if self.dispatcher().leg.seen_closed {
            self.end(End::Clean);
        }
    }

    fn reset(&mut self, cause: ResetCause) {
        let justified = match cause {
            ResetCause::ClientGone => true,
            ResetCause::OwnerLost => self.dispatcher().leg.closed.is_some(),
            ResetCause::OwnerMisbehaved => false,
        };
        self.cluster.observer.note_if(!justified, Wrong::NeedlessReset);
        self.end(End::Reset);
    }

    fn send_to_agent(&mut self, to: usize, message: AgentMessage) {
        self.send(Letter::ToAgent { to, message });
    }
}

fn offer(target: usize, epoch: Epoch, rx_offset: u64, tail_offset: u64) -> Offer {
    // Digest of the shipped state. It differs between attempts.
    let digest = [epoch.0 as u8; 32];
    Offer { target: name(target), epoch, rx_offset, tail_offset, digest }
}
