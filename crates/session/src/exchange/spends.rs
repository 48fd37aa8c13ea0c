//! Uses of sessions that wait for approval by the issuer.

use std::collections::BTreeSet;

use watari_values::{NodeName, SessionKey};

use super::action::{Action, FoundSession, PENDING_MAX, SpendId, Verdict};
use super::message::Request;
use super::pending::Pending;
use super::turn::{Turn, Urgency};

/// All uses that wait for their verdict.
#[derive(Default)]
pub(super) struct Spends {
    pending: Pending<Spend>,
}

struct Spend {
    id: u64,
    issuer: NodeName,
}

/// The timeout in milliseconds. The request is not repeated: the issuer may have approved already, and does so only
/// once.
const PATIENCE_MS: u64 = 500;

impl Spends {
    pub(super) fn start(&mut self, turn: &mut Turn<'_>, found: &FoundSession) -> SpendId {
        let id = self.pending.new_id();
        let issuer = &found.session.issuer;
        if issuer == turn.ranks().me() {
            let granted = turn.node.store.spend(&found.key, turn.now.unix_s);
            end(turn, id, Verdict::of(granted));
        } else if turn.ranks().is_member(issuer) && self.pending.len() < PENDING_MAX {
            self.ask(turn, id, issuer, found.key);
        } else {
            end(turn, id, Verdict::Unreachable);
        }
        SpendId(id)
    }

    pub(super) fn on_spent(&mut self, turn: &mut Turn<'_>, from: &NodeName, request: u64, granted: bool) {
        let is_asked = |spend: &Spend| spend.id == request && spend.issuer == *from;
        if self.pending.take_if(request, is_asked).is_some() {
            end(turn, request, Verdict::of(granted));
        }
    }

    pub(super) fn on_left(&mut self, turn: &mut Turn<'_>, left: &BTreeSet<NodeName>) {
        for id in self.pending.select(|spend| left.contains(&spend.issuer)) {
            self.pending.take(id);
            end(turn, id, Verdict::Unreachable);
        }
    }

    pub(super) fn on_timer(&mut self, turn: &mut Turn<'_>) {
        while let Some(spend) = self.pending.take_due(turn.now.ms) {
            end(turn, spend.id, Verdict::Unreachable);
        }
    }

    pub(super) fn next_timer(&self) -> Option<u64> {
        self.pending.next_due()
    }

    fn ask(&mut self, turn: &mut Turn<'_>, id: u64, issuer: &NodeName, key: SessionKey) {
        turn.request(issuer, id, Request::Spend(key), Urgency::Now);
        let due_ms = turn.now.ms.saturating_add(PATIENCE_MS);
        self.pending.insert(id, due_ms, Spend { id, issuer: issuer.clone() });
    }
}

impl Verdict {
    fn of(granted: bool) -> Self {
        if granted { Self::Granted } else { Self::Denied }
    }
}

fn end(turn: &mut Turn<'_>, id: u64, verdict: Verdict) {
    turn.actions.push(Action::Spent(SpendId(id), verdict));
}
