//! The settings of an agent that a reload can change.

use std::sync::{Arc, PoisonError, RwLock};

use super::limits::Limits;
use super::site::Site;
use super::tls::Tls;

/// The settings that a reload can change. A connection uses those in force when it begins. The limits of a live
/// connection do not change, except for the number of requests and the time that a transfer may stall.
#[derive(Clone)]
pub struct Settings {
    /// The TLS settings for handshakes. `None`: the agent only takes over connections from others, and has no private
    /// key.
    pub tls: Option<Tls>,
    /// The content that the agent serves.
    pub site: Arc<Site>,
    pub limits: Limits,
}

/// The settings in force.
pub(crate) struct CurrentSettings(RwLock<Arc<Settings>>);

impl CurrentSettings {
    pub(crate) fn new(settings: Settings) -> Self {
        Self(RwLock::new(Arc::new(settings)))
    }

    pub(crate) fn get(&self) -> Arc<Settings> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn limits(&self) -> Limits {
        self.get().limits
    }

    /// Replaces the settings. Returns the previous ones.
    pub(crate) fn set(&self, settings: Settings) -> Arc<Settings> {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, Arc::new(settings))
    }
}
