//! Operators' orders about members.

use std::collections::BTreeMap;

use watari_values::NodeName;
use watari_wire::{Members as MembersMessage, Verdict};

use super::now::AHEAD_MAX_S;

/// An operator's order about a member was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// The node cannot end its own links.
    #[error("a node cannot evict itself: send the order to another node")]
    Own,
    /// There is no room for another verdict.
    #[error("{} nodes are evicted already: no more are possible", MembersMessage::MAX)]
    TooMany,
}

/// The latest verdict about each node. Verdicts stay as long as this node runs. To be evicted for good, a node has to
/// lose its certificate.
#[derive(Default)]
pub(super) struct Verdicts(BTreeMap<NodeName, Verdict>);

impl Verdicts {
    pub(super) fn is_evicted(&self, name: &NodeName) -> bool {
        self.0.get(name).is_some_and(|verdict| verdict.evicted)
    }

    pub(super) fn evicted(&self) -> impl Iterator<Item = &NodeName> {
        self.0.values().filter(|verdict| verdict.evicted).map(|verdict| &verdict.name)
    }

    pub(super) fn all(&self) -> Vec<Verdict> {
        self.0.values().cloned().collect()
    }

    /// Whether the verdict ranks above the stored one, and its time is not too far in the future.
    pub(super) fn is_news(&self, verdict: &Verdict, now_unix_s: u64) -> bool {
        let is_later = self.0.get(&verdict.name).is_none_or(|known| rank(known) < rank(verdict));
        is_later && verdict.at <= now_unix_s.saturating_add(AHEAD_MAX_S)
    }

    /// Adds a verdict that is news. If the table is full, the oldest admission makes room: a node that has not received
    /// it has usually not received the eviction before it either.
    pub(super) fn add(&mut self, verdict: Verdict) -> Result<(), OrderError> {
        if self.0.len() >= MembersMessage::MAX && !self.0.contains_key(&verdict.name) {
            let admitted = self.0.values().filter(|known| !known.evicted);
            let eldest = admitted.min_by_key(|known| known.at).map(|known| known.name.clone());
            self.0.remove(&eldest.ok_or(OrderError::TooMany)?);
        }
        self.0.insert(verdict.name.clone(), verdict);
        Ok(())
    }

    /// An eviction that overrides all previous orders.
    pub(super) fn eviction(&self, name: &NodeName, keys_by: Option<NodeName>, now_unix_s: u64) -> Verdict {
        let at = self.0.get(name).map_or(now_unix_s, |known| known.at.max(now_unix_s));
        Verdict { name: name.clone(), at, evicted: true, keys_by }
    }

    /// The order that ends an eviction. `None`: the node is not evicted.
    pub(super) fn admission(&self, name: &NodeName, now_unix_s: u64) -> Option<Verdict> {
        let eviction = self.0.get(name).filter(|known| known.evicted)?;
        let at = now_unix_s.max(eviction.at.saturating_add(1));
        Some(Verdict { name: name.clone(), at, evicted: false, keys_by: None })
    }
}

/// Of two verdicts about a node, the one with the higher rank counts.
fn rank(verdict: &Verdict) -> (u64, bool, Option<&NodeName>) {
    (verdict.at, verdict.evicted, verdict.keys_by.as_ref())
}
