//! The context of one call: the node, the time, and the actions to return.

use watari_values::{NodeName, SessionKey};
use watari_wire::{
    KeptSession, Message, SessionFound, SessionGet, SessionPut, SessionSpend, SessionSpent, SessionStored, frame,
};

use super::ranks::{Ranks, first_other};
use super::{Action, ExchangeCounters, FoundSession, Now, OWNERS, Source};
use crate::{Session, Store};

/// The state that all calls share.
pub(super) struct Node {
    pub(super) ranks: Ranks,
    pub(super) store: Store,
    pub(super) counters: ExchangeCounters,
}

/// The longest lifetime of a session (RFC 8446, section 4.6.1). Longer received values are cut to it.
const EXPIRES_IN_S_MAX: u32 = 7 * 24 * 3600;

/// Whether a handshake waits for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    Now,
    Soon,
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
        self.send_by(to, message, Urgency::Now);
    }

    pub(super) fn send_by(&mut self, to: &NodeName, message: Message, urgency: Urgency) {
        self.node.counters.messages_sent += 1;
        self.node.counters.bytes_sent += frame::encoded_len(&message) as u64;
        self.actions.push(match urgency {
            Urgency::Now => Action::Send(to.clone(), message),
            Urgency::Soon => Action::SendSoon(to.clone(), message),
        });
    }

    /// Stores a session that was established here (`is_own`) or elsewhere. Returns whether it fitted.
    pub(super) fn keep(&mut self, key: SessionKey, session: Session, is_own: bool) -> bool {
        self.node.store.expire(self.now.unix_s);
        self.node.store.put(key, session, is_own).is_some()
    }

    pub(super) fn find_here(&self, key: SessionKey) -> Option<FoundSession> {
        let (session, is_own) = self.node.store.get(&key, self.now.unix_s)?;
        let source = if is_own { Source::Own } else { Source::Here };
        Some(FoundSession { key, session: session.clone(), source })
    }

    /// Stores a session that another node sent. `None`: it has expired.
    pub(super) fn keep_pulled(&mut self, kept: KeptSession) -> Option<FoundSession> {
        let (key, session) = self.received(kept)?;
        self.keep(key, session.clone(), false);
        Some(FoundSession { key, session, source: Source::Pulled })
    }

    /// Stores sessions that another node established. Acknowledges them only if all were stored.
    pub(super) fn on_put(&mut self, from: &NodeName, put: SessionPut) {
        let mut all_kept = true;
        let mut urgency = Urgency::Soon;
        for kept in put.sessions {
            if let Some((key, session)) = self.received(kept) {
                all_kept &= self.keep(key, session, false);
                if first_other(&self.ranks().first(&key, OWNERS), from) == Some(self.ranks().me()) {
                    urgency = Urgency::Now;
                }
            }
        }
        if all_kept {
            self.send_by(from, Message::SessionStored(SessionStored { request: put.request }), urgency);
        }
    }

    /// Responds with the sessions that this node stores.
    pub(super) fn on_get(&mut self, from: &NodeName, get: &SessionGet) {
        let found = get.keys.iter().filter_map(|key| self.find_here(*key));
        let sessions = found.map(|found| self.told(found.key, &found.session)).collect();
        self.send(from, Message::SessionFound(SessionFound { request: get.request, sessions }));
    }

    /// Approves one use of a session that this node established, or denies it.
    pub(super) fn on_spend(&mut self, from: &NodeName, spend: &SessionSpend) {
        let granted = self.node.store.spend(&spend.key, self.now.unix_s);
        self.send(from, Message::SessionSpent(SessionSpent { request: spend.request, granted }));
    }

    /// The wire form of a session.
    pub(super) fn told(&self, key: SessionKey, session: &Session) -> KeptSession {
        let left_s = session.expires.saturating_sub(self.now.unix_s);
        let expires_in_s = u32::try_from(left_s).unwrap_or(u32::MAX);
        KeptSession { key, session: session.secret.clone(), expires_in_s, issuer: session.issuer.clone() }
    }

    /// The session of a received wire form. `None`: it has expired.
    fn received(&self, kept: KeptSession) -> Option<(SessionKey, Session)> {
        let KeptSession { key, session, expires_in_s, issuer } = kept;
        let expires = self.now.unix_s.saturating_add(u64::from(expires_in_s.min(EXPIRES_IN_S_MAX)));
        (expires_in_s > 0).then_some((key, Session { secret: session, expires, issuer }))
    }
}
