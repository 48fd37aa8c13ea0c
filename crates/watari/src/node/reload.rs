//! Reloads: the running node reads its configuration again.

use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::Mutex;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::sleep;
use watari_agent::Site;
use watari_dispatcher::Dispatcher;
use watari_mesh::{Join, Mesh};
use watari_values::NodeName;

use super::cache::NodeCache;
use super::error::NodeError;
use super::expiry::Expiry;
use super::roles::Roles;
use super::{files, listeners};
use crate::admin::Reloaded;
use crate::config::{self, Change, Config, ConfigError, LoadedAgent, SiteMetrics};
use crate::logging::Level;
use crate::redirect::Redirects;

/// How often the node looks for changed certificates.
///
/// Polling is more robust than inotify. inotify watches a file or a directory, but tools that renew certificates may
/// switch a symbolic link anywhere in the path. On network file systems it reports nothing. Polling costs one system
/// call for each file and second.
const CERTIFICATES_LOOK: Duration = Duration::from_secs(1);

/// Every n-th look also checks the dates of certificates, about every 10 min.
const LOOKS_PER_EXPIRY: u32 = 600;

/// Applies the current configuration file to the running node.
pub(super) struct Reloader {
    mesh: Mesh,
    running: Roles,
    redirects: Redirects,
    site_metrics: SiteMetrics,
    cache: Arc<NodeCache>,
    level: Level,
    expiry: Arc<std::sync::Mutex<Expiry>>,
    /// The path of the configuration file.
    file: PathBuf,
    /// Locked during a reload, so that reloads do not overlap.
    state: Mutex<Arc<LoadedConfig>>,
}

/// The configuration in effect.
struct LoadedConfig {
    config: Arc<Config>,
    agent: Option<LoadedAgent>,
}

/// A reload is refused, and has changed nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReloadError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error("the peer {peer} cannot be removed: it has {connections} connections of this node; drain it first")]
    PeerInUse { peer: NodeName, connections: usize },
    #[error("the reload failed: {0}")]
    Panicked(#[from] JoinError),
}

impl Reloader {
    pub(super) fn new(
        config: Config,
        agent: Option<LoadedAgent>,
        (mesh, running): (Mesh, Roles),
        redirects: Redirects,
        (site_metrics, level, mut expiry): (SiteMetrics, Level, Expiry),
        cache: Arc<NodeCache>,
    ) -> Self {
        expiry.look(&config, SystemTime::now(), true);
        Self {
            mesh,
            running,
            redirects,
            site_metrics,
            cache,
            level,
            expiry: Arc::new(std::sync::Mutex::new(expiry)),
            file: config.file.0.clone(),
            state: Mutex::new(Arc::new(LoadedConfig { config: Arc::new(config), agent })),
        }
    }

    /// No reload begins until the returned value is dropped.
    pub(super) async fn hold(&self) -> impl Sized {
        self.state.lock().await
    }

    /// The path of the configuration file.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Further handles of the listeners for clients to redirect.
    pub(super) async fn redirects(&self) -> io::Result<Vec<TcpListener>> {
        self.redirects.listeners().await
    }

    /// The drain timeout of an agent that is to end.
    pub(super) async fn drain_timeout(&self) -> Duration {
        self.state.lock().await.config.node.drain_timeout
    }

    /// Reads the configuration and all files that it names again, and applies them. Any error leaves everything
    /// unchanged.
    ///
    /// The reload continues if this future is dropped: the caller may stop waiting, but a reload must not stop halfway.
    pub(super) async fn reload(self: &Arc<Self>) -> Result<Reloaded, ReloadError> {
        let reloader = self.clone();
        let reload = tokio::spawn(async move {
            let result = reloader.try_reload().await;
            match &result {
                Ok(Reloaded { changes, files }) => {
                    let changes: Vec<_> = changes.iter().map(Change::to_string).collect();
                    tracing::info!(changes = %changes.join("; "), files = %files.join(", "), "configuration reloaded");
                }
                Err(error) => {
                    // One log line holds all mistakes of a file.
                    let error = error.to_string().lines().collect::<Vec<_>>().join("; ");
                    tracing::error!(error, "configuration not reloaded");
                }
            }
            result
        });
        reload.await?
    }

    async fn try_reload(&self) -> Result<Reloaded, ReloadError> {
        let mut state = self.state.lock().await;
        let (before, metrics) = (state.clone(), self.site_metrics.clone());
        let new = spawn_blocking(move || LoadedConfig::read_again(&before, &metrics)).await??;
        self.refuse_loss(&state.config, &new.config)?;
        if let Some(dispatcher) = &new.config.dispatcher {
            self.listen(dispatcher).await?;
        }
        self.cache.open_if_needed(&new.config)?;
        // From here on, no step fails.
        self.level.set(&new.config.log);
        if let (Some(running), Some(agent)) = (&self.running.agent, &new.agent) {
            // Operators also use reloads to rotate logs, without any other change.
            reopen_logs(Some(agent.settings.site.clone())).await;
            running.reload(agent.settings.clone());
        }
        if let (Some(running), Some(dispatcher)) = (&self.running.dispatcher, &new.config.dispatcher) {
            // Before links to new agents are up, because they hand out leg keys then.
            let config = dispatcher.with_agents(&self.mesh.legs().borrow());
            running.reload(config).await;
        }
        self.mesh.set_peers(new.config.peers.clone()).await;
        let changes = state.config.outline.changes(&new.config.outline);
        let files = new.agent.iter().zip(&state.agent).flat_map(|(new, old)| new.stamps.changed_since(&old.stamps));
        let reloaded = Reloaded { changes, files: files.collect() };
        *state = Arc::new(new);
        self.look_at_expiry(&state, true).await;
        Ok(reloaded)
    }

    /// Opens log files again, because they may have been renamed. Later lines go to the file with the configured name.
    pub(super) async fn reopen_logs(&self) {
        let state = self.state.lock().await;
        reopen_logs(state.agent.as_ref().map(|agent| agent.settings.site.clone())).await;
    }

    /// Listens for clients at the addresses of `config`, and nowhere else. If any of them fails, nothing changes.
    async fn listen(&self, config: &config::Dispatcher) -> Result<(), NodeError> {
        let Some(running) = &self.running.dispatcher else { return Ok(()) };
        let moving: Vec<_> = config.moving_addresses().collect();
        let redirects = listeners::redirects(self.redirects.missing(&config.redirect).await, &moving)?;
        let wanted = config.clients_at();
        let clients = listeners::clients_at(&running.not_listened_at(&wanted).await, config.threads, &moving)?;
        let started = running.listen(&wanted, clients).await;
        started.map_err(|cause| NodeError::Start { what: "accepting clients", cause })?;
        self.redirects.set(&config.redirect, redirects, config.https_port()).await;
        Ok(())
    }

    /// Refuses to remove a peer that serves connections. Without a link, an agent could neither give a connection away
    /// nor report how it ended.
    fn refuse_loss(&self, old: &Config, new: &Config) -> Result<(), ReloadError> {
        // Unless the join rule is `configured`, a node with a link is a member even if it is not in the file.
        let stays =
            |peer: &NodeName| new.node.join != Join::Configured || new.peers.iter().any(|other| other.name == *peer);
        for peer in old.peers.iter().map(|peer| &peer.name).filter(|peer| !stays(peer)) {
            // An agent that was removed from the dispatcher's agents may still have connections.
            let of_dispatcher = self.running.dispatcher.iter().flat_map(Dispatcher::connections);
            let on_peer = of_dispatcher.filter(|connection| connection.node == *peer).count();
            let connections =
                on_peer + self.running.agent.iter().map(|agent| agent.connections_of(peer)).sum::<usize>();
            if connections > 0 {
                return Err(ReloadError::PeerInUse { peer: peer.clone(), connections });
            }
        }
        Ok(())
    }

    /// Gives the dispatcher the members that are agents, if it discovers agents. Never ends.
    pub(super) async fn watch_agents(&self) {
        let Some(running) = &self.running.dispatcher else { return };
        let mut legs = self.mesh.legs();
        loop {
            let state = self.state.lock().await;
            if let Some(dispatcher) = state.config.dispatcher.as_ref().filter(|dispatcher| dispatcher.discover) {
                let config = dispatcher.with_agents(&legs.borrow_and_update());
                running.reload(config).await;
            }
            drop(state);
            if legs.changed().await.is_err() {
                return;
            }
        }
    }

    /// Looks for changed certificates and loads them. Never ends.
    pub(super) async fn watch_certificates(&self) {
        let mut refused = None;
        let mut looks = 0_u32;
        loop {
            sleep(CERTIFICATES_LOOK).await;
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS_PER_EXPIRY) {
                let state = self.state.lock().await.clone();
                self.look_at_expiry(&state, false).await;
            }
            let refusal = self.renew_certificates().await.err().map(|error| error.to_string());
            // Files that are written one after the other do not match for a while.
            if let Some(error) = refusal.as_ref().filter(|error| refused.as_ref() != Some(*error)) {
                tracing::warn!(%error, "changed certificates are not usable yet: the previous ones stay in use");
            }
            refused = refusal;
        }
    }

    /// Loads certificates, keys and authorities that have changed. If they are not usable, the previous ones stay, and
    /// the next look tries again.
    async fn renew_certificates(&self) -> Result<(), ReloadError> {
        let mut state = self.state.lock().await;
        let before = state.clone();
        let Some(agent) = spawn_blocking(move || before.renewed()).await?? else { return Ok(()) };
        let changed = state.agent.iter().flat_map(|before| agent.stamps.changed_since(&before.stamps));
        let files = changed.collect::<Vec<_>>().join(", ");
        if let Some(running) = &self.running.agent {
            running.reload(agent.settings.clone());
        }
        *state = Arc::new(LoadedConfig { config: state.config.clone(), agent: Some(agent) });
        tracing::info!(files, "certificates loaded again");
        self.look_at_expiry(&state, true).await;
        Ok(())
    }

    /// Sets the metric of certificates, and logs those that expire soon. With `all`, also those that were logged within
    /// a day.
    async fn look_at_expiry(&self, state: &Arc<LoadedConfig>, all: bool) {
        let (config, expiry) = (state.config.clone(), self.expiry.clone());
        let look = move || expiry.lock().unwrap_or_else(PoisonError::into_inner).look(&config, SystemTime::now(), all);
        if let Err(error) = spawn_blocking(look).await {
            tracing::warn!(%error, "cannot look at the dates of certificates");
        }
    }
}

/// Opens the log files of `site` again, and logs the result.
async fn reopen_logs(site: Option<Arc<Site>>) {
    let opened = spawn_blocking(move || site.map_or(Ok(()), |site| site.reopen_logs())).await;
    let opened = opened.map_err(|error| error.to_string());
    match opened.and_then(|opened| opened.map_err(|error| error.to_string())) {
        Ok(()) => tracing::info!("log files are opened again"),
        Err(error) => tracing::error!(error, "log files are not opened again, and lines go to the previous ones"),
    }
}

impl LoadedConfig {
    /// Reads the configuration again, for the same node.
    fn read_again(&self, metrics: &SiteMetrics) -> Result<Self, ReloadError> {
        let mut config = Config::read(&self.config.file.0)?;
        let agent = config.load_again(&self.config, self.agent.as_ref(), metrics);
        let ((), mut agent) = ConfigError::both(self.config.refuse_restart(&config), agent)?;
        files::fit_node(&mut config, agent.as_mut()).map_err(NodeError::from)?;
        Ok(Self { config: Arc::new(config), agent })
    }

    /// The agent's settings with new certificates, if those have changed.
    fn renewed(&self) -> Result<Option<LoadedAgent>, ConfigError> {
        match &self.agent {
            Some(agent) if self.config.stamps() != agent.stamps => self.config.load_certificates(agent).map(Some),
            _ => Ok(None),
        }
    }
}
