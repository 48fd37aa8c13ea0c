//! A relay on its way to another process.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use watari_values::{ConnectionId, NodeName};

use super::{OwnerLeg, PreparedLeg, Relay};
use crate::deadlines::Deadlines;
use crate::waiting::Waiting;

/// No time limit is longer. A later point in time might not exist.
const LEFT_MAX: Duration = Duration::from_hours(24 * 365 * 10);

/// The state of a [`Relay`], with the times that are left instead of deadlines. The bytes and the sockets travel beside
/// it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot(Relay<Duration>);

impl Snapshot {
    /// Whether another dispatcher may have sent this as the state of a connection that changes its dispatcher. `up` and
    /// `down` are the bytes that wait, `unacknowledged` those in the client's socket.
    pub fn fits(&self, id: ConnectionId, (up, down): (u64, u64), unacknowledged: u64) -> bool {
        let Self(relay) = self;
        let are_counts = |waiting: &Waiting, len: u64| waiting.read.checked_sub(waiting.written) == Some(len);
        relay.id == id
            && relay.may_change().is_ok()
            && !relay.is_unopened()
            && relay.prepared == PreparedLeg::None
            && !relay.arbiter.is_moving()
            && relay.attaching.is_none()
            && are_counts(&relay.up, up)
            && are_counts(&relay.down, down)
            && relay.down.written >= unacknowledged
            && relay.deadlines.longest() < LEFT_MAX
    }
}

impl Relay {
    /// The state at `now`. `None`: a connection that is over cannot be continued, nor can one whose actions are pending
    /// or whose leg to a target is being connected.
    pub fn snapshot(&self, now: Instant) -> Option<Snapshot> {
        let is_connecting = matches!(self.prepared, PreparedLeg::Connecting(_));
        if self.over || !self.actions.is_empty() || is_connecting {
            return None;
        }
        Some(Snapshot(self.clone().map_deadlines(|deadlines| deadlines.map(|at| at.saturating_duration_since(now)))))
    }

    /// Continues at `now`, in another process. The driver must have the same sockets and the same waiting bytes.
    pub fn restore(Snapshot(relay): Snapshot, now: Instant) -> Self {
        relay.map_deadlines(|deadlines| deadlines.map(|left| now + left))
    }

    /// The agent for which the next action may have to sign a preface: the owner whose idle leg is used again, or the
    /// target of an undecided move. Its leg key has to be there.
    pub fn next_preface_for(&self) -> Option<&NodeName> {
        if self.leg == OwnerLeg::Unopened { Some(self.owner()) } else { self.arbiter.target() }
    }
}

impl<T> Relay<T> {
    fn map_deadlines<U>(self, change: impl FnOnce(Deadlines<T>) -> Deadlines<U>) -> Relay<U> {
        let Self {
            id,
            arbiter,
            bulk,
            from_client,
            to_client,
            leg,
            prepared,
            up,
            down,
            copied,
            discarded,
            timeouts,
            deadlines,
            actions,
            attaching,
            changes,
            over,
            ..
        } = self;
        Relay {
            id,
            arbiter,
            bulk,
            from_client,
            to_client,
            leg,
            prepared,
            up,
            down,
            copied,
            discarded,
            timeouts,
            deadlines: change(deadlines),
            actions,
            giving: None,
            attaching,
            changes,
            over,
        }
    }
}
