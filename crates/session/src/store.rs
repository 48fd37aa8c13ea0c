//! The sessions that a node stores in memory.

use std::collections::{BTreeMap, HashMap};

use watari_values::{NodeName, SecretBytes, SessionKey};

/// A session as nodes store it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The serialized session, which contains secrets.
    pub secret: SecretBytes,
    /// In seconds of Unix time.
    pub expires: u64,
    /// The node that established it.
    pub issuer: NodeName,
}

/// Sessions by key, up to a number of bytes. If a new session does not fit, the oldest are evicted. Expired sessions
/// are never found.
///
/// The time to find a session does not depend on the number of sessions.
#[derive(Debug)]
pub struct Store {
    bytes_max: usize,
    bytes: usize,
    sessions: HashMap<SessionKey, StoredSession>,
    /// In the order of insertion. Numbers are never used twice.
    by_age: BTreeMap<u64, SessionKey>,
    next: u64,
}

#[derive(Debug)]
struct StoredSession {
    session: Session,
    is_own: bool,
    /// Whether the one use of the session was approved or denied.
    is_spent: bool,
    age: u64,
}

impl Store {
    /// The bytes of a session besides its own data: its key twice, its entries in both maps, and the allocator's
    /// overhead.
    pub const OVERHEAD: usize = 192;

    /// Makes an empty store for at most `bytes_max` bytes. [`Store::OVERHEAD`] counts for each session.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: 0, sessions: HashMap::new(), by_age: BTreeMap::new(), next: 0 }
    }

    /// Stores `session` until it expires, in place of another with this key. Evicts the oldest if there is no room.
    /// `is_own`: it was established here, since this store was made. Returns the number of evicted sessions, or `None`
    /// if the session alone is too large.
    pub fn put(&mut self, key: SessionKey, session: Session, is_own: bool) -> Option<usize> {
        let bytes = Self::bytes_of(&session);
        self.take(&key);
        if bytes > self.bytes_max {
            return None;
        }
        let mut evicted = 0;
        while self.bytes + bytes > self.bytes_max {
            let Some((_, eldest)) = self.by_age.pop_first() else { break };
            self.forget(&eldest);
            evicted += 1;
        }
        self.bytes += bytes;
        self.by_age.insert(self.next, key);
        self.sessions.insert(key, StoredSession { session, is_own, is_spent: false, age: self.next });
        self.next += 1;
        Some(evicted)
    }

    /// The session with this key, if it is stored and has not expired, and whether it was established here.
    pub fn get(&self, key: &SessionKey, now: u64) -> Option<(&Session, bool)> {
        let kept = self.sessions.get(key)?;
        (now < kept.session.expires).then_some((&kept.session, kept.is_own))
    }

    /// Approves one use of a session that was established here. Returns `false` for any other session, and from the
    /// second call on.
    pub fn spend(&mut self, key: &SessionKey, now: u64) -> bool {
        let Some(kept) = self.sessions.get_mut(key) else { return false };
        let is_granted = kept.is_own && !kept.is_spent && now < kept.session.expires;
        kept.is_spent = true;
        is_granted
    }

    /// All sessions, from the oldest: with their keys, whether they were established here, and whether the one use was
    /// approved or denied.
    pub fn export(&self) -> impl Iterator<Item = (&SessionKey, &Session, bool, bool)> {
        let stored = self.by_age.values().filter_map(|key| Some((key, self.sessions.get(key)?)));
        stored.map(|(key, kept)| (key, &kept.session, kept.is_own, kept.is_spent))
    }

    /// Stores a session of [`Store::export`].
    pub fn import(&mut self, key: SessionKey, session: Session, is_own: bool, is_spent: bool) {
        self.put(key, session, is_own);
        if let Some(kept) = self.sessions.get_mut(&key) {
            kept.is_spent = is_spent;
        }
    }

    /// Removes the session with this key. Returns whether it was stored.
    pub fn take(&mut self, key: &SessionKey) -> bool {
        let age = self.forget(key);
        age.is_some_and(|age| self.by_age.remove(&age).is_some())
    }

    /// Removes expired sessions, in the order of insertion, up to the first that has not expired. Returns the number
    /// removed.
    pub fn expire(&mut self, now: u64) -> usize {
        let before = self.sessions.len();
        while let Some((_, eldest)) = self.by_age.first_key_value()
            && self.sessions.get(eldest).is_none_or(|kept| kept.session.expires <= now)
        {
            let eldest = *eldest;
            self.by_age.pop_first();
            self.forget(&eldest);
        }
        before - self.sessions.len()
    }

    /// The number of sessions, expired ones included.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether the store has no sessions.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// The bytes that count against the limit.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn forget(&mut self, key: &SessionKey) -> Option<u64> {
        let kept = self.sessions.remove(key)?;
        self.bytes -= Self::bytes_of(&kept.session);
        Some(kept.age)
    }

    fn bytes_of(session: &Session) -> usize {
        session.secret.as_slice().len() + session.issuer.as_str().len() + Self::OVERHEAD
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn key(number: u8) -> SessionKey {
        SessionKey([number; 32])
    }

    /// A session with `len` bytes, its issuer's name included.
    fn session(len: usize, expires: u64) -> Session {
        let issuer = NodeName::new("a1").unwrap();
        Session { secret: SecretBytes::new(vec![7; len - issuer.as_str().len()]), expires, issuer }
    }

    #[test]
    fn the_eldest_make_room() {
        let room = 3 * (Store::OVERHEAD + 10);
        let mut store = Store::new(room);
        for number in 0..3 {
            assert_eq!(store.put(key(number), session(10, 100), true), Some(0));
        }
        assert_eq!((store.len(), store.bytes()), (3, room));
        assert_eq!(store.put(key(3), session(10, 100), true), Some(1));
        assert!(store.get(&key(0), 0).is_none() && store.get(&key(1), 0).is_some());
        // Twice the size of a stored session.
        assert_eq!(store.put(key(4), session(11, 100), true), Some(2));
        assert_eq!(store.len(), 2);
        assert_eq!(store.put(key(5), session(room, 100), true), None);
        assert_eq!(store.len(), 2);
    }

    #[test]
    fn what_has_expired_is_not_found_and_leaves() {
        let mut store = Store::new(1 << 20);
        store.put(key(1), session(2, 100), true);
        store.put(key(2), session(2, 200), true);
        assert_eq!(store.get(&key(1), 99), Some((&session(2, 100), true)));
        assert_eq!(store.get(&key(1), 100), None);
        assert_eq!(store.expire(100), 1);
        assert_eq!((store.len(), store.expire(100)), (1, 0));
    }

    #[test]
    fn one_use_is_approved_of_what_was_established_here() {
        let mut store = Store::new(1 << 20);
        store.put(key(1), session(9, 100), true);
        store.put(key(2), session(9, 100), false);
        store.put(key(3), session(9, 100), true);
        assert!(store.spend(&key(1), 99) && !store.spend(&key(1), 99));
        assert!(!store.spend(&key(2), 99), "another's");
        assert!(!store.spend(&key(3), 100), "expired");
        assert!(!store.spend(&key(4), 99), "unknown");
        assert!(store.get(&key(1), 99).is_some(), "it can still be resumed");
    }

    #[test]
    fn another_process_goes_on_with_the_sessions() {
        let mut store = Store::new(1 << 20);
        store.put(key(1), session(9, 100), true);
        store.put(key(2), session(9, 100), false);
        store.put(key(3), session(9, 100), true);
        assert!(store.spend(&key(3), 99));
        let mut other = Store::new(1 << 20);
        for (key, session, is_own, is_spent) in store.export() {
            other.import(*key, session.clone(), is_own, is_spent);
        }
        assert_eq!((other.len(), other.bytes()), (3, store.bytes()));
        assert!(other.export().map(|(key, ..)| *key).eq([key(1), key(2), key(3)]), "the oldest first");
        assert!(other.spend(&key(1), 99) && !other.spend(&key(2), 99) && !other.spend(&key(3), 99));
    }

    /// A simple model of a store.
    #[derive(Default)]
    struct Model(Vec<(SessionKey, usize, u64)>);

    #[derive(Debug, Clone)]
    enum Step {
        Put(u8, usize, u64),
        Take(u8),
        Expire(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (any::<u8>(), 2..400_usize, 0..50_u64).prop_map(|(key, len, expires)| Step::Put(key % 8, len, expires)),
            1 => any::<u8>().prop_map(|key| Step::Take(key % 8)),
            1 => (0..50_u64).prop_map(Step::Expire),
        ];
        vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn it_is_exact(steps in steps(), bytes_max in 0..3000_usize) {
            let (mut store, mut model) = (Store::new(bytes_max), Model::default());
            for step in steps {
                match step {
                    Step::Put(number, len, expires) => {
                        store.put(key(number), session(len, expires), true);
                        model.0.retain(|(known, ..)| *known != key(number));
                        if len + Store::OVERHEAD <= bytes_max {
                            model.0.push((key(number), len, expires));
                        }
                        while model.0.iter().map(|(_, len, _)| len + Store::OVERHEAD).sum::<usize>() > bytes_max {
                            model.0.remove(0);
                        }
                    }
                    Step::Take(number) => {
                        let was_there = model.0.iter().any(|(known, ..)| *known == key(number));
                        model.0.retain(|(known, ..)| *known != key(number));
                        prop_assert_eq!(store.take(&key(number)), was_there);
                    }
                    Step::Expire(now) => {
                        let young = model.0.iter().position(|(_, _, expires)| *expires > now).unwrap_or(model.0.len());
                        model.0.drain(..young);
                        prop_assert_eq!(store.expire(now), young);
                    }
                }
                prop_assert_eq!(store.len(), model.0.len());
                prop_assert_eq!(store.bytes(), model.0.iter().map(|(_, len, _)| len + Store::OVERHEAD).sum::<usize>());
                prop_assert!(store.bytes() <= bytes_max);
                for (known, len, expires) in &model.0 {
                    let session = session(*len, *expires);
                    prop_assert_eq!(store.get(known, 0), (*expires > 0).then_some((&session, true)));
                }
            }
        }
    }
}
