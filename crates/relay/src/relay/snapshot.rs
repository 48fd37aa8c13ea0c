//! A relay on its way to another process.

use std::collections::VecDeque;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use watari_handoff::Arbiter;
use watari_values::{ConnectionId, NodeName};

use super::{FromClient, OwnerLeg, PreparedLeg, Relay, ToClient};
use crate::deadlines::{Deadlines, Timeouts, TimesLeft};
use crate::waiting::Waiting;

/// The state of a [`Relay`], with the times that are left instead of deadlines. The bytes and the sockets travel beside
/// it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    id: ConnectionId,
    arbiter: Arbiter,
    bulk: Option<NodeName>,
    from_client: FromClient,
    to_client: ToClient,
    leg: OwnerLeg,
    prepared: PreparedLeg,
    up: Waiting,
    down: Waiting,
    copied: Option<usize>,
    discarded: usize,
    timeouts: Timeouts,
    left: TimesLeft,
}

impl Relay {
    /// The state at `now`. `None`: a connection that is over cannot be continued, nor can one whose actions are pending
    /// or whose leg to a target is being connected.
    pub fn snapshot(&self, now: Instant) -> Option<Snapshot> {
        let is_connecting = matches!(self.prepared, PreparedLeg::Connecting(_));
        if self.over || !self.actions.is_empty() || is_connecting {
            return None;
        }
        Some(Snapshot {
            id: self.id,
            arbiter: self.arbiter.clone(),
            bulk: self.bulk.clone(),
            from_client: self.from_client,
            to_client: self.to_client,
            leg: self.leg,
            prepared: self.prepared,
            up: self.up.clone(),
            down: self.down.clone(),
            copied: self.copied,
            discarded: self.discarded,
            timeouts: self.timeouts.clone(),
            left: self.deadlines.left(now),
        })
    }

    /// Continues at `now`, in another process. The driver must have the same sockets and the same waiting bytes.
    pub fn restore(snapshot: Snapshot, now: Instant) -> Self {
        let Snapshot { id, arbiter, bulk, from_client, to_client, leg, prepared, up, down, .. } = snapshot;
        let Snapshot { copied, discarded, timeouts, left, .. } = snapshot;
        Self {
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
            deadlines: Deadlines::of(&left, now),
            actions: VecDeque::new(),
            over: false,
        }
    }

    /// The agent for which the next action may have to sign a preface: the owner whose idle leg is used again, or the
    /// target of an undecided move. Its leg key has to be there.
    pub fn next_preface_for(&self) -> Option<&NodeName> {
        if self.leg == OwnerLeg::Unopened { Some(self.owner()) } else { self.arbiter.target() }
    }
}
