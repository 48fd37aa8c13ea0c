//! Settings that cannot change while a node runs.

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use watari_addresses::{MultipathSettings, Settings};
use watari_agent::Sharing;

use super::file::ConfigError;
use super::model::{Config, Site};
use super::proxy::CacheStore;

impl Config {
    /// Refuses `new` if it changes settings that a running node cannot change.
    pub(crate) fn refuse_restart(&self, new: &Self) -> Result<(), ConfigError> {
        let (old_node, new_node) = (&self.node, &new.node);
        let kept = [
            ("node.name", old_node.name.value == new_node.name.value),
            ("node.pki", old_node.pki.value == new_node.pki.value),
            ("node.mesh", old_node.mesh == new_node.mesh),
            ("node.join", old_node.join == new_node.join),
            ("node.admin", old_node.admin == new_node.admin),
            ("node.metrics", old_node.metrics == new_node.metrics),
            ("node.limits", old_node.limits == new_node.limits),
            ("dispatcher", self.dispatcher.is_some() == new.dispatcher.is_some()),
            ("dispatcher.threads", is_same(self.relay_threads(), new.relay_threads())),
            ("dispatcher.takeover", self.takeover() == new.takeover()),
            ("dispatcher.multipath", self.multipath() == new.multipath()),
            ("agent", self.agent.is_some() == new.agent.is_some()),
            ("agent.legs", is_same(self.legs(), new.legs())),
            ("agent.threads", is_same(self.serving_threads(), new.serving_threads())),
            ("agent.proxy.cache", is_same(self.cache_store(), new.cache_store())),
            ("agent.sessions", is_same(self.sharing(), new.sharing())),
            ("log.format", self.log.format == new.log.format),
        ];
        let refused = kept.into_iter().filter(|(_, same)| !same).map(|(key, _)| {
            // A removed key has no line. The error then points to the table `node`.
            let line = new.outline.line_of(key).or(new.outline.line_of("node")).unwrap_or(1);
            Err::<(), _>(new.file.wrong(line, &format!("{key} cannot change while the node runs: restart the node")))
        });
        ConfigError::all(refused).map(drop)
    }

    fn relay_threads(&self) -> Option<NonZeroUsize> {
        self.dispatcher.as_ref().map(|dispatcher| dispatcher.threads)
    }

    /// The settings of candidates for service addresses.
    pub(crate) fn takeover(&self) -> Option<&Settings> {
        Some(&self.dispatcher.as_ref()?.takeover.as_ref()?.settings)
    }

    /// The settings of addresses that several dispatchers have.
    pub(crate) fn multipath(&self) -> Option<&MultipathSettings> {
        self.dispatcher.as_ref()?.multipath.as_ref()
    }

    /// Whether any route has a cache.
    pub(crate) fn has_cache(&self) -> bool {
        self.agent.as_ref().is_some_and(|agent| matches!(&agent.site, Site::Proxy(proxy) if proxy.has_cache()))
    }

    /// The store of cached responses. `None`: the site has no origins.
    pub(crate) fn cache_store(&self) -> Option<&CacheStore> {
        match &self.agent.as_ref()?.site {
            Site::Proxy(proxy) => Some(&proxy.cache),
            Site::Files(_) => None,
        }
    }

    fn serving_threads(&self) -> Option<NonZeroUsize> {
        self.agent.as_ref().map(|agent| agent.threads)
    }

    fn sharing(&self) -> Option<&Sharing> {
        self.agent.as_ref().map(|agent| &agent.sharing)
    }

    fn legs(&self) -> Option<SocketAddr> {
        self.agent.as_ref().map(|agent| agent.legs)
    }
}

/// Whether a setting of a role stays. A role that comes or goes is refused on its own.
fn is_same<T: PartialEq>(old: Option<T>, new: Option<T>) -> bool {
    old.zip(new).is_none_or(|(old, new)| old == new)
}
