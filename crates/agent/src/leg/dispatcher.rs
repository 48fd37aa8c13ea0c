//! The dispatcher of a connection, which can change.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use watari_values::NodeName;

/// The dispatcher that relays a connection now. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct CurrentDispatcher(Arc<Mutex<NodeName>>);

impl CurrentDispatcher {
    pub(crate) fn new(dispatcher: NodeName) -> Self {
        Self(Arc::new(Mutex::new(dispatcher)))
    }

    pub(crate) fn get(&self) -> NodeName {
        self.lock().clone()
    }

    pub(crate) fn is(&self, node: &NodeName) -> bool {
        *self.lock() == *node
    }

    /// Another dispatcher goes on with the connection.
    pub(super) fn change(&self, to: NodeName) {
        *self.lock() = to;
    }

    fn lock(&self) -> MutexGuard<'_, NodeName> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
