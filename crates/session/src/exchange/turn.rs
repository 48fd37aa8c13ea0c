//! The context of one call: the node, the time, and the actions to return.

use watari_values::{NodeName, SessionKey};

use super::action::{Action, FoundSession, Now, OWNERS, Source};
use super::counters::ExchangeCounters;
use super::message::{Answer, Message, Request, SentSession};
use super::ranks::{Ranks, first_other};
use crate::store::{Session, Store};

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

    pub(super) fn request(&mut self, to: &NodeName, number: u64, request: Request, urgency: Urgency) {
        self.send(to, Message::Request(number, request), urgency);
    }

    fn answer(&mut self, to: &NodeName, number: u64, answer: Answer, urgency: Urgency) {
        self.send(to, Message::Answer(number, answer), urgency);
    }

    fn send(&mut self, to: &NodeName, message: Message, urgency: Urgency) {
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
    pub(super) fn keep_pulled(&mut self, sent: SentSession) -> Option<FoundSession> {
        let (key, session) = self.received(sent)?;
        self.keep(key, session.clone(), false);
        Some(FoundSession { key, session, source: Source::Pulled })
    }

    /// Stores sessions that another node established. Acknowledges them only if all were stored.
    pub(super) fn on_put(&mut self, from: &NodeName, number: u64, sessions: Vec<SentSession>) {
        let mut all_kept = true;
        let mut urgency = Urgency::Soon;
        for sent in sessions {
            if let Some((key, session)) = self.received(sent) {
                all_kept &= self.keep(key, session, false);
                if first_other(&self.ranks().first(&key, OWNERS), from) == Some(self.ranks().me()) {
                    urgency = Urgency::Now;
                }
            }
        }
        if all_kept {
            self.answer(from, number, Answer::Stored, urgency);
        }
    }

    /// Responds with the sessions that this node stores.
    pub(super) fn on_get(&mut self, from: &NodeName, number: u64, keys: &[SessionKey]) {
        let found = keys.iter().filter_map(|key| self.find_here(*key));
        let sessions = found.map(|found| self.to_send(found.key, &found.session)).collect();
        self.answer(from, number, Answer::Found(sessions), Urgency::Now);
    }

    /// Approves one use of a session that this node established, or denies it.
    pub(super) fn on_spend(&mut self, from: &NodeName, number: u64, key: &SessionKey) {
        let granted = self.node.store.spend(key, self.now.unix_s);
        self.answer(from, number, Answer::Spent { granted }, Urgency::Now);
    }

    /// The form in which a session is sent.
    pub(super) fn to_send(&self, key: SessionKey, session: &Session) -> SentSession {
        let left_s = session.expires.saturating_sub(self.now.unix_s);
        let expires_in_s = u32::try_from(left_s).unwrap_or(u32::MAX);
        SentSession { key, secret: session.secret.clone(), expires_in_s, issuer: session.issuer.clone() }
    }

    /// The session that was sent. `None`: it has expired.
    fn received(&self, sent: SentSession) -> Option<(SessionKey, Session)> {
        let SentSession { key, secret, expires_in_s, issuer } = sent;
        let expires = self.now.unix_s.saturating_add(u64::from(expires_in_s.min(EXPIRES_IN_S_MAX)));
        (expires_in_s > 0).then_some((key, Session { secret, expires, issuer }))
    }
}
