//! What an agent works by, and what may change while it runs.

use std::sync::{Arc, PoisonError, RwLock};

use crate::{Limits, Site, Tls};

/// What may change while an agent runs. Each connection begins by what is set then; the limits of a connection that is
/// served stay what they were, but for the number of requests and how long a transfer may stall.
#[derive(Clone)]
pub struct Settings {
    /// What it offers in handshakes. Without it the agent only takes connections over from others, and holds no private
    /// key.
    pub tls: Option<Tls>,
    /// What answers requests.
    pub site: Arc<Site>,
    /// What bounds it.
    pub limits: Limits,
}

/// The settings of the moment.
pub(crate) struct Current(RwLock<Arc<Settings>>);

impl Current {
    pub(crate) fn new(settings: Settings) -> Self {
        Self(RwLock::new(Arc::new(settings)))
    }

    pub(crate) fn get(&self) -> Arc<Settings> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets others, and returns those before.
    pub(crate) fn set(&self, settings: Settings) -> Arc<Settings> {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, Arc::new(settings))
    }
}
