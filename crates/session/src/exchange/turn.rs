//! What one call has at hand: the node, the time, and the actions that follow.

use watari_wire::{
    KeptSession, Message, NodeName, SecretBytes, SessionFound, SessionGet, SessionKey, SessionPut, SessionStored, frame,
};

use super::ranks::Ranks;
use super::{Action, ExchangeCounters, FoundSession, Now, Source};
use crate::Store;

/// What a node knows and keeps.
pub(super) struct Node {
    pub(super) ranks: Ranks,
    pub(super) store: Store,
    pub(super) counters: ExchangeCounters,
}

pub(super) struct Turn<'a> {
    pub(super) now: Now,
    pub(super) node: &'a mut Node,
    pub(super) actions: Vec<Action>,
}

impl<'a> Turn<'a> {
    pub(super) fn new(now: Now, node: &'a mut Node) -> Self {
        Self { now, node, actions: Vec::new() }
    }

    pub(super) fn ranks(&self) -> &Ranks {
        &self.node.ranks
    }

    pub(super) fn counters(&mut self) -> &mut ExchangeCounters {
        &mut self.node.counters
    }

    pub(super) fn send(&mut self, to: &NodeName, message: Message) {
        self.node.counters.messages_sent += 1;
        self.node.counters.bytes_sent += frame::encoded_len(&message) as u64;
        self.actions.push(Action::Send(to.clone(), message));
    }

    /// Keeps what was established here.
    pub(super) fn keep_own(&mut self, key: SessionKey, session: SecretBytes, expires_unix_s: u64) {
        self.node.store.expire(self.now.unix_s);
        self.node.store.put(key, session, expires_unix_s, true);
    }

    /// Keeps what was established elsewhere; whether there was room for it.
    fn keep(&mut self, key: SessionKey, session: SecretBytes, expires_unix_s: u64) -> bool {
        self.node.store.expire(self.now.unix_s);
        self.node.store.put(key, session, expires_unix_s, false).is_some()
    }

    pub(super) fn find_here(&self, key: SessionKey) -> Option<FoundSession> {
        let (session, expires_unix_s, is_own) = self.node.store.get(&key, self.now.unix_s)?;
        let source = if is_own { Source::Own } else { Source::Here };
        Some(FoundSession { key, session: session.clone(), expires_unix_s, source })
    }

    /// What another node sent, as it is kept here from now on; `None`: it has expired.
    pub(super) fn keep_pulled(&mut self, kept: KeptSession) -> Option<FoundSession> {
        let expires_unix_s = self.expires(&kept)?;
        self.keep(kept.key, kept.session.clone(), expires_unix_s);
        Some(FoundSession { key: kept.key, session: kept.session, expires_unix_s, source: Source::Pulled })
    }

    /// Keeps what another node established. Only what is kept is acknowledged.
    pub(super) fn on_put(&mut self, from: &NodeName, put: SessionPut) {
        let mut all_kept = true;
        for kept in put.sessions {
            if let Some(expires_unix_s) = self.expires(&kept) {
                all_kept &= self.keep(kept.key, kept.session, expires_unix_s);
            }
        }
        if all_kept {
            self.send(from, Message::SessionStored(SessionStored { request: put.request }));
        }
    }

    /// Says which sessions are kept here.
    pub(super) fn on_get(&mut self, from: &NodeName, get: &SessionGet) {
        let found = get.keys.iter().filter_map(|key| self.find_here(*key));
        let sessions = found.map(|found| self.kept(found.key, &found.session, found.expires_unix_s)).collect();
        self.send(from, Message::SessionFound(SessionFound { request: get.request, sessions }));
    }

    /// A session as other nodes are told of it.
    pub(super) fn kept(&self, key: SessionKey, session: &SecretBytes, expires_unix_s: u64) -> KeptSession {
        let left_s = expires_unix_s.saturating_sub(self.now.unix_s);
        KeptSession { key, session: session.clone(), expires_in_s: u32::try_from(left_s).unwrap_or(u32::MAX) }
    }

    fn expires(&self, kept: &KeptSession) -> Option<u64> {
        (kept.expires_in_s > 0).then(|| self.now.unix_s.saturating_add(u64::from(kept.expires_in_s)))
    }
}
