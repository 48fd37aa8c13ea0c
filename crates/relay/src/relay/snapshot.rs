//! A relay on its way to another process.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use watari_values::NodeName;

use super::{OwnerLeg, PreparedLeg, Relay};
use crate::deadlines::Deadlines;

/// The state of a [`Relay`], with the times that are left instead of deadlines. The bytes and the sockets travel beside
/// it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot(Relay<Duration>);

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
            changes,
            over,
        }
    }
}
