//! Finds the leg of a connection for messages and for new legs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;
use watari_values::{ConnectionId, DispatcherChange, NodeName};
use watari_wire::{DetachLeg, LegDetached};

use super::control::{ContinueRefusal, Continued, LegControl};

/// How long a leg may stay detached. Then it fails. That is as long as a fence lasts (`fence_timeout`), and longer than
/// an attempt of the dispatchers takes.
pub(super) const DETACHED_MAX: Duration = Duration::from_secs(15);

/// The legs of the connections of this node, in all their states.
#[derive(Default)]
pub(crate) struct LegTable {
    legs: Mutex<HashMap<ConnectionId, Arc<LegControl>>>,
    /// Legs that were detached, in the order of time.
    detached: Mutex<Vec<Detached>>,
}

struct Detached {
    control: Weak<LegControl>,
    number: u32,
    expires: Instant,
}

/// Keeps the leg in the table until this is dropped.
pub(super) struct Entry {
    table: Arc<LegTable>,
    pub(super) control: Arc<LegControl>,
}

impl LegTable {
    /// Adds a leg. It replaces one of an earlier tenure of the connection.
    pub(super) fn enter(self: &Arc<Self>, control: LegControl) -> Entry {
        let control = Arc::new(control);
        self.legs().insert(control.id(), control.clone());
        Entry { table: self.clone(), control }
    }

    /// Detaches the leg of a connection, if it is here and `from` is its dispatcher. Returns the answer.
    pub(crate) fn on_detach(&self, from: &NodeName, message: &DetachLeg, now: Instant) -> Option<LegDetached> {
        let change = message.change;
        let control = self.get(change.connection)?;
        let (tx_offset, is_first) = control.on_detach(from, change.number, &message.to)?;
        if is_first {
            let (control, expires) = (Arc::downgrade(&control), now + DETACHED_MAX);
            self.detached().push(Detached { control, number: change.number, expires });
        }
        Some(LegDetached { change, tx_offset })
    }

    /// The dispatcher goes on with a connection by itself. Returns whether to answer.
    pub(crate) fn on_attach(&self, from: &NodeName, change: DispatcherChange) -> bool {
        self.get(change.connection).is_some_and(|control| control.on_attach(from, change.number))
    }

    /// Continues a connection on a leg of `from`. Returns the leg if that is refused.
    pub(crate) fn on_continue(&self, from: &NodeName, leg: Continued) -> Result<(), (ContinueRefusal, Continued)> {
        match self.get(leg.change.connection) {
            Some(control) => control.on_continue(from, leg),
            None => Err((ContinueRefusal::NotHere, leg)),
        }
    }

    /// Whether the connection is here, and its leg is detached.
    pub(crate) fn is_detached(&self, connection: ConnectionId) -> bool {
        self.get(connection).is_some_and(|control| !control.lock().agent_leg.may_write())
    }

    /// Fails legs that were detached for longer than [`DETACHED_MAX`].
    pub(crate) fn expire(&self, now: Instant) {
        let mut detached = self.detached();
        let expired = detached.partition_point(|detached| detached.expires <= now);
        for Detached { control, number, .. } in detached.drain(..expired) {
            if let Some(control) = control.upgrade()
                && control.expire(number)
            {
                tracing::warn!(connection = %control.id(), "connection lost: no dispatcher went on with it in time");
            }
        }
    }

    fn get(&self, id: ConnectionId) -> Option<Arc<LegControl>> {
        self.legs().get(&id).cloned()
    }

    fn legs(&self) -> MutexGuard<'_, HashMap<ConnectionId, Arc<LegControl>>> {
        self.legs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn detached(&self) -> MutexGuard<'_, Vec<Detached>> {
        self.detached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut legs = self.table.legs();
        // The connection may have moved away and back before this leg was dropped.
        if legs.get(&self.control.id()).is_some_and(|control| Arc::ptr_eq(control, &self.control)) {
            legs.remove(&self.control.id());
        }
    }
}
