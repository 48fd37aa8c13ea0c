//! Gives the connections of a service address to the next dispatcher.

mod pacing;
mod run;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};
use watari_addresses::Flow;
use watari_handoff::Giving;
use watari_relay::Input;
use watari_values::{ConnectionId, DispatcherChange, NodeName};
use watari_wire::{DispatcherToDispatcher, TakeReady, TakeWanted};

use super::lock;
use crate::shared::DispatcherShared;
use crate::table::RelayMessage;
use crate::upgrade::Passed;
use run::{Outcome, Run};

/// How long the next dispatcher has to say that it is ready.
const READY_MAX: Duration = Duration::from_secs(3);
/// How long new clients are turned away, unless that is renewed. The owner may stay the owner.
const CLOSED: Duration = Duration::from_secs(2);
/// How often a message is repeated that was not answered.
const REPEAT: Duration = Duration::from_millis(200);
/// How often the table is looked at while connections are reset.
const POLL: Duration = Duration::from_millis(2);

/// A relay is asked to change its dispatcher. It answers once, or ends.
#[derive(Debug, Clone)]
pub(crate) struct ChangeOrder {
    pub(crate) to: NodeName,
    pub(crate) replies: mpsc::UnboundedSender<(ConnectionId, Reply)>,
}

impl ChangeOrder {
    pub(crate) fn reply(&self, id: ConnectionId, reply: Reply) {
        // Without a receiver, the connection stays.
        let _ = self.replies.send((id, reply));
    }
}

/// The answer of a relay.
#[derive(Debug)]
pub(crate) enum Reply {
    /// It stands still until it is taken.
    Standing(Box<Standing>),
    /// It begins or ends. It may be asked again.
    CannotNow,
}

/// A connection that stands still. If it is dropped, its relay goes on.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) giving: Giving,
    pub(crate) change: DispatcherChange,
    pub(crate) passed: Passed,
    pub(crate) client: OwnedFd,
    pub(crate) flow: Flow,
    /// The relay ends when this is sent.
    pub(crate) taken: oneshot::Sender<()>,
}

/// The connections of a run.
pub(crate) struct Scope {
    /// Their address.
    pub(crate) address: IpAddr,
    /// Which of them, by their clients. `None`: all.
    pub(crate) clients: Option<Box<dyn Fn(SocketAddr) -> bool + Send + Sync>>,
}

impl Scope {
    fn ids(&self, shared: &DispatcherShared) -> Vec<ConnectionId> {
        shared.table.ids_where(|flow| {
            flow.server.ip() == self.address && self.clients.as_ref().is_none_or(|clients| clients(flow.client))
        })
    }
}

/// Gives all connections at `address` to `to`, as far as possible. The caller owns the address meanwhile. Afterwards, it
/// calls [`leave`] or [`stay`]. Returns whether the address may go to the next dispatcher, which answers.
pub(crate) async fn give_all(shared: &Arc<DispatcherShared>, address: IpAddr, to: &NodeName) -> bool {
    give(shared, Scope { address, clients: None }, to).await
}

/// Gives connections to `to`, as far as possible. Returns whether it answers.
pub(crate) async fn give(shared: &Arc<DispatcherShared>, scope: Scope, to: &NodeName) -> bool {
    let Some(places) = shared.changes.places.get() else { return true };
    let address = scope.address;
    let Some(mac) = ready(shared, &scope, to).await else {
        tracing::warn!(%address, %to, "the next dispatcher does not answer that it takes connections");
        return false;
    };
    shared.changes.forget_given();
    let Outcome { given, left, is_lost } = Run::new(shared, places, scope, to, mac).give().await;
    tracing::info!(%address, %to, given, left, "connections have changed their dispatcher");
    if is_lost {
        tracing::warn!(%address, %to, "the next dispatcher does not answer any more");
    }
    !is_lost
}

/// The address leaves this node. Resets the connections that are left, while the gate lets that out.
pub(crate) async fn leave(shared: &DispatcherShared, address: IpAddr) {
    let (unrelayed, unrelayed_count) = shared.unrelayed.leave(address);
    let count = shared.table.message_all_at(address, || RelayMessage::Reset) + unrelayed_count;
    if count > 0 {
        tracing::info!(%address, count, "connections reset: their address leaves this node");
        shared.metrics.not_given.inc_by(count as u64);
    }
    while !shared.table.ids_at(address).is_empty() || unrelayed.count() > 0 {
        sleep(POLL).await;
    }
}

/// The address stays, or is lost. Connections that are about to change their dispatcher do not.
pub(crate) async fn stay(shared: &DispatcherShared, address: IpAddr) {
    shared.table.message_all_at(address, stay_here);
    let Some(places) = shared.changes.places.get() else { return };
    if let Err(error) = places.open_to_new(address).await {
        tracing::warn!(%address, %error, "new clients are turned away for {CLOSED:?}");
    }
}

/// Waits until the next dispatcher is ready. Returns the hardware address to which packets are forwarded.
async fn ready(shared: &DispatcherShared, scope: &Scope, to: &NodeName) -> Option<[u8; 6]> {
    let (sender, mut answer) = oneshot::channel();
    lock(&shared.changes.ready).insert((to.clone(), scope.address), sender);
    let asks = async {
        loop {
            announce(shared, scope, to);
            if let Ok(answered) = timeout(REPEAT, &mut answer).await {
                return answered.ok();
            }
        }
    };
    let ready = timeout(READY_MAX, asks).await.ok().flatten();
    lock(&shared.changes.ready).remove(&(to.clone(), scope.address));
    ready
}

/// Announces connections.
fn announce(shared: &DispatcherShared, scope: &Scope, to: &NodeName) {
    let connections = u32::try_from(scope.ids(shared).len()).unwrap_or(u32::MAX);
    let wanted = TakeWanted { address: scope.address, connections };
    shared.send_to_dispatcher(to, DispatcherToDispatcher::TakeWanted(wanted));
}

impl DispatcherShared {
    pub(crate) fn on_take_ready(&self, from: &NodeName, ready: &TakeReady) {
        if let Some(waiting) = lock(&self.changes.ready).remove(&(from.clone(), ready.address)) {
            let _ = waiting.send(ready.mac);
        }
    }
}

/// The message to a relay whose connection does not change its dispatcher any more.
fn stay_here() -> RelayMessage {
    RelayMessage::Input(Box::new(Input::ChangeFailed))
}
