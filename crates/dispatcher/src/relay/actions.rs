//! Carries out what a relay has decided.

use tokio::net::TcpStream;
use tokio::time::Instant;
use watari_handoff::ResetCause;
use watari_relay::{Action, Input};
use watari_sys::tcp;
use watari_values::{AbortReason, Epoch, NodeName};
use watari_wire::leg::{Kind, Preface};
use watari_wire::{Aborted, Decided, DispatcherToAgent, LegKept};

use super::RelayDriver;
use crate::direction::Direction;
use crate::find::find_again;
use crate::legs::LegChoice;

impl RelayDriver {
    /// Carries out one action. Reports its result, if it has one.
    pub(super) fn carry_out(&mut self, action: Action) {
        match action {
            Action::OpenLeg { kind, epoch } => self.open_leg(kind, epoch),
            Action::DropCopy => self.up.drop_copy(),
            Action::BeginAgain => self.begin_again(),
            Action::PrepareLeg { target } => {
                let shared = self.shared.clone();
                self.connecting = Some(Box::pin(async move { shared.leg_to(&target, LegChoice::Any).await }));
            }
            Action::Commit { source, target, epoch, preface, kept } => {
                self.commit(&source, &target, epoch, preface, kept);
            }
            Action::Abort { source, target, epoch, reason } => self.abort([&source, &target], epoch, reason),
            Action::Send { to, message } => self.shared.send(&to, message),
            Action::SendSoon { to, message } => drop(self.shared.send_soon(&to, message)),
            Action::KeepLeg { agent, kept } => {
                if let Some(leg) = self.leg.take() {
                    self.keep_leg(leg, &agent, kept);
                }
            }
            Action::ShutDownLeg => {
                if let Some(leg) = &self.leg {
                    tcp::shut_down(leg);
                }
            }
            Action::FinishClient => tcp::finish(&self.client),
            Action::LimitReached(limit) => {
                let (id, client) = (self.relay.id(), self.client_address);
                tracing::info!(connection = %id, %client, limit, "connection reset at a time limit");
                self.shared.metrics.count_given_up(limit);
            }
            Action::Reset(cause) => self.reset(cause),
        }
    }

    /// Puts the preface in front of the bytes for the owner's leg, and writes.
    fn open_leg(&mut self, kind: Kind, epoch: Epoch) {
        let (connection, agent) = (self.relay.id(), self.relay.owner());
        let preface = Preface { kind, connection, epoch, client: self.client_address, server: self.server_address };
        match self.shared.agents.sign(agent, &preface) {
            Ok(preface) => {
                self.up.put_in_front(preface);
                self.report_write_to_leg();
            }
            Err(error) => {
                tracing::warn!(%connection, %agent, %error, "cannot sign the preface");
                self.report(Input::LegReset);
            }
        }
    }

    fn begin_again(&mut self) {
        let gone = self.relay.owner().clone();
        tracing::info!(connection = %self.relay.id(), agent = %gone, "no answer on a reused leg");
        self.shared.idle_legs.forget(&gone);
        self.up = Direction::holding(self.up.take_copy().unwrap_or_default());
        let (shared, client) = (self.shared.clone(), self.client_address.ip());
        self.finding = Some(Box::pin(async move { find_again(&shared, client, gone).await }));
    }

    fn commit(&mut self, source: &NodeName, target: &NodeName, epoch: Epoch, preface: Kind, kept: Option<LegKept>) {
        let connection = self.relay.id();
        tracing::debug!(%connection, %source, %target, %epoch, "move committed");
        self.shared.metrics.moves_committed.inc();
        self.shared.table.moved(connection, target);
        let prepared = self.prepared.take().expect("a relay commits only once the leg is ready");
        let left = self.leg.replace(prepared);
        self.open_leg(preface, epoch);
        if let (Some(left), Some(kept)) = (left, kept) {
            self.keep_leg(left, source, kept);
        } else {
            let committed = DispatcherToAgent::Committed(Decided { connection, epoch });
            self.shared.send_soon(source, committed);
        }
    }

    fn abort(&mut self, agents: [&NodeName; 2], epoch: Epoch, reason: AbortReason) {
        let (connection, [source, target]) = (self.relay.id(), agents);
        tracing::info!(%connection, %source, %target, %epoch, reason = reason.as_str(), "move aborted");
        self.shared.metrics.count_aborted(reason);
        self.shared.table.not_moved(connection);
        self.connecting = None;
        self.prepared = None;
        for agent in agents {
            self.shared.send(agent, DispatcherToAgent::Aborted(Aborted { connection, epoch, reason }));
        }
    }

    fn keep_leg(&self, leg: TcpStream, agent: &NodeName, kept: LegKept) {
        if self.shared.send_soon(agent, DispatcherToAgent::LegKept(kept)) {
            self.shared.idle_legs.keep(agent, leg, Instant::now());
        }
    }

    fn reset(&self, cause: ResetCause) {
        let connection = self.relay.id();
        if cause == ResetCause::ClientGone {
            tracing::debug!(%connection, "connection ended: the client has left");
        } else {
            let (client, owner) = (self.client_address, self.relay.owner());
            tracing::info!(%connection, %client, %owner, cause = cause.as_str(), "connection reset");
        }
        self.shared.metrics.count_reset(cause);
        for leg in self.leg.iter().chain(&self.prepared) {
            tcp::reset_on_close(leg);
        }
    }
}
