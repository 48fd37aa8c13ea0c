//! Connections change their dispatcher: in a planned switch of a service address (docs/internals/takeover.md), and when
//! dispatchers of shared addresses come or leave (docs/internals/multipath.md).
//!
//! [`giving`] is the part of the dispatcher that has the connections, [`taking`] that of the next one. [`settling`] gives
//! connections to the primaries of their slots.
//! `watari_handoff::{Giving, Taking}` decide. The client's socket travels as a `watari_tcp_repair::State`, the rest as
//! in an upgrade ([`crate::upgrade`]).

pub(crate) mod giving;
pub(crate) mod places;
pub(crate) mod settling;
pub(crate) mod taking;

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use watari_values::{AbortReason, ConnectionId, DispatcherChange, NodeName};

use crate::upgrade::Passed;
use places::Places;
use taking::Arrivals;

/// How long D1 does not answer messages about a connection that it has given away: its agent may not know the next
/// dispatcher yet. Longer than a fence lasts at an agent.
const SILENT: Duration = Duration::from_secs(30);

/// The state of a connection on its way: the content of `StatePart`s.
#[derive(Debug, Serialize, Deserialize)]
struct Shipped {
    passed: Passed,
    /// The encoded `watari_tcp_repair::State`.
    #[serde(with = "serde_bytes")]
    socket: Vec<u8>,
}

/// What all changes of a process share.
#[derive(Default)]
pub(crate) struct Changes {
    /// The addresses of this node whose connections may change their dispatcher. Unset in a node that has none.
    places: OnceLock<Places>,
    /// The same addresses.
    services: OnceLock<HashSet<IpAddr>>,
    /// Who waits until another dispatcher is ready to take connections.
    ready: Mutex<HashMap<(NodeName, IpAddr), ReadySender>>,
    /// Where the answers about shipped connections go.
    offered: Mutex<HashMap<DispatcherChange, Offered>>,
    /// For each next dispatcher: a permit for the run that ships a state to it. Otherwise states of several addresses
    /// would share the link, and each would take longer.
    turns: Mutex<HashMap<NodeName, Arc<Semaphore>>>,
    arrivals: Arrivals,
    /// Connections that were given away, and when.
    given: Mutex<HashMap<ConnectionId, Instant>>,
}

/// Passes the hardware address on to which packets are forwarded.
type ReadySender = oneshot::Sender<[u8; 6]>;

struct Offered {
    to: NodeName,
    answers: mpsc::UnboundedSender<(DispatcherChange, Answer)>,
}

/// The answer of the next dispatcher about a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Held,
    Refused(AbortReason),
    Taken,
}

impl Changes {
    /// Sets the addresses of this node, once.
    pub(crate) fn use_places(&self, places: Places) {
        let is_first = self.services.set(places.addresses()).is_ok() && self.places.set(places).is_ok();
        assert!(is_first, "a node has one set of addresses");
    }

    /// Whether the address may leave this node.
    pub(crate) fn is_service(&self, address: IpAddr) -> bool {
        self.services.get().is_some_and(|services| services.contains(&address))
    }

    /// Whether the connection went to another dispatcher just now.
    pub(crate) fn has_gone(&self, id: ConnectionId) -> bool {
        lock(&self.given).get(&id).is_some_and(|given| given.elapsed() < SILENT)
    }

    fn turns(&self, to: &NodeName) -> Arc<Semaphore> {
        lock(&self.turns).entry(to.clone()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
    }

    fn note_given(&self, id: ConnectionId) {
        lock(&self.given).insert(id, Instant::now());
    }

    /// Forgets connections that were given away in earlier switches.
    fn forget_given(&self) {
        lock(&self.given).retain(|_, given| given.elapsed() < SILENT);
    }

    /// Whether connections of other dispatchers are held that cannot pass to a successor of this process yet.
    pub(crate) fn is_any_coming(&self) -> bool {
        self.arrivals.is_any_coming()
    }

    /// Handles an answer of another dispatcher.
    pub(crate) fn answer(&self, from: &NodeName, change: DispatcherChange, answer: Answer) {
        if let Some(offered) = lock(&self.offered).get(&change).filter(|offered| offered.to == *from) {
            let _ = offered.answers.send((change, answer));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
