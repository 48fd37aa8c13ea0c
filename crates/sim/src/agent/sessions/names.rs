//! What the sessions of all agents are called. Their keys are random, and owners are chosen by key. So that a run does
//! not depend on random bytes, the exchange uses other keys: numbers in the order in which they come.

use std::cell::RefCell;
use std::collections::BTreeMap;

use watari_values::{SecretBytes, SessionKey};

use crate::random::mix;

#[derive(Default)]
pub(crate) struct SessionNames {
    renamed: RefCell<BTreeMap<SessionKey, SessionKey>>,
    original: RefCell<BTreeMap<SessionKey, SessionKey>>,
    /// The sessions that were established, by their new keys.
    established: RefCell<BTreeMap<SessionKey, SecretBytes>>,
}

impl SessionNames {
    /// The key that the exchange uses.
    pub(super) fn rename(&self, key: &SessionKey) -> SessionKey {
        let mut renamed = self.renamed.borrow_mut();
        let number = renamed.len() as u64;
        let new = *renamed
            .entry(*key)
            .or_insert_with(|| SessionKey(std::array::from_fn(|at| mix(number << 8 | at as u64) as u8)));
        self.original.borrow_mut().insert(new, *key);
        new
    }

    /// The key that the client offers.
    pub(super) fn original(&self, key: &SessionKey) -> SessionKey {
        self.original.borrow().get(key).copied().unwrap_or(*key)
    }

    pub(super) fn establish(&self, key: SessionKey, session: &SecretBytes) {
        self.established.borrow_mut().insert(key, session.clone());
    }

    /// Whether this is the session that was established with this key.
    pub(super) fn is_right(&self, key: &SessionKey, session: &SecretBytes) -> bool {
        self.established.borrow().get(key) == Some(session)
    }

    /// Some other session, for the broken variant.
    pub(super) fn other(&self, key: &SessionKey) -> Option<SecretBytes> {
        self.established.borrow().iter().find(|(known, _)| *known != key).map(|(_, session)| session.clone())
    }
}
