//! The keys that authenticate prefaces.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use watari_values::{NodeName, SecretBytes};
use watari_wire::leg::{Accepted, ExportedLegKey, LegVerifier, PrefaceError};
use watari_wire::{AgentToDispatcher, LegKey};

use crate::node::peers::Peers;
use crate::settings::current::CurrentSettings;

/// Length of a key, in bytes.
const KEY_LEN: usize = 32;

/// Sends a key to each linked dispatcher, and verifies prefaces signed with it.
pub(crate) struct LegKeys {
    peers: Peers,
    settings: Arc<CurrentSettings>,
    next_id: AtomicU32,
    state: Mutex<LegKeyState>,
}

struct LegKeyState {
    verifier: LegVerifier,
    linked: BTreeSet<NodeName>,
    /// Whether a successor of this process has the keys.
    is_given_up: bool,
}

impl LegKeys {
    pub(crate) fn new(peers: Peers, settings: Arc<CurrentSettings>) -> Self {
        let verifier = LegVerifier::new(peers.name().clone());
        let state = LegKeyState { verifier, linked: BTreeSet::new(), is_given_up: false };
        Self { peers, settings, next_id: AtomicU32::new(1), state: Mutex::new(state) }
    }

    /// Sends a dispatcher with a new link its first key.
    pub(crate) fn link_up(&self, dispatcher: &NodeName) {
        self.with_state(|state| state.linked.insert(dispatcher.clone()));
        self.hand_out(dispatcher);
    }

    /// Prefaces that are signed already stay valid until the keys are replaced.
    pub(crate) fn link_down(&self, dispatcher: &NodeName) {
        self.with_state(|state| state.linked.remove(dispatcher));
    }

    pub(crate) fn rotate(&self) {
        for dispatcher in self.with_state(|state| state.linked.clone()) {
            self.hand_out(&dispatcher);
        }
    }

    pub(crate) fn send_all(&self, message: &AgentToDispatcher) {
        for dispatcher in self.with_state(|state| state.linked.clone()) {
            self.peers.send(&dispatcher, message.clone());
        }
    }

    pub(crate) fn verify(&self, received: &[u8]) -> Result<Option<Accepted>, PrefaceError> {
        self.with_state(|state| state.verifier.verify(received))
    }

    /// Gives the keys to a successor of this process. This process accepts no more prefaces.
    pub(crate) fn give_up(&self) -> (u32, Vec<ExportedLegKey>) {
        self.with_state(|state| {
            let keys = state.verifier.export();
            state.verifier = LegVerifier::new(self.peers.name().clone());
            state.is_given_up = true;
            (self.next_id.load(Ordering::Relaxed), keys)
        })
    }

    /// Takes the keys of the predecessor, or those that it has taken back. Prefaces under them may still come.
    pub(crate) fn take_over(&self, next_id: u32, keys: Vec<ExportedLegKey>) -> bool {
        self.next_id.fetch_max(next_id, Ordering::Relaxed);
        self.with_state(|state| {
            state.is_given_up = false;
            keys.into_iter().all(|key| state.verifier.import(key))
        })
    }

    fn hand_out(&self, dispatcher: &NodeName) {
        let mut key = vec![0; KEY_LEN];
        if aws_lc_rs::rand::fill(&mut key).is_err() {
            tracing::error!("cannot make a leg key: the system gives no random bytes");
            return;
        }
        let handshakes = self.settings.get().tls.is_some();
        let key = self.with_state(|state| {
            if state.is_given_up {
                return None;
            }
            let id = self.next_id.fetch_add(1, Ordering::Relaxed);
            let key = LegKey { id, key: SecretBytes::new(key), handshakes };
            state.verifier.rotate(dispatcher, &key);
            Some(key)
        });
        if let Some(key) = key {
            self.peers.send(dispatcher, AgentToDispatcher::LegKey(key));
        }
    }

    fn with_state<T>(&self, then: impl FnOnce(&mut LegKeyState) -> T) -> T {
        then(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
