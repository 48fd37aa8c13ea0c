//! A running node: its listeners, mesh, roles, administration and metrics.

mod cache;
mod drain;
mod error;
pub(crate) mod expiry;
mod files;
mod listeners;
mod readiness;
mod reload;
mod roles;
mod upgrade;
mod view;

use std::future::pending;
use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus_client::registry::Registry;
use rustix::process::kill_process;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use watari_addresses::{
    Addresses, BeforeLeaving, LeavingStep, Multipath, MultipathConfig, PassedAddresses, PassedMultipath, Prepared,
    PreparedMultipath,
};
use watari_agent::Agent;
use watari_dispatcher::Dispatcher;
use watari_mesh::{Event, Mesh};
use watari_values::{NodeName, Role};

use crate::config::{self, Config, Loaded, LoadedAgent, SiteMetrics};
use crate::logging::Level;
use crate::metrics_server;
use crate::process::{self, EndSignal, EndSignals, RequestSignal};
use crate::redirect::Redirects;
use cache::NodeCache;
pub(crate) use error::NodeError;
use error::starting;
use expiry::Expiry;
use listeners::{Inherited, Listeners};
use reload::Reloader;
use roles::Roles;
use upgrade::{Fixed, Predecessor, PredecessorStream};
use view::View;

/// The time that links get to send their queued messages when the node ends.
const STOP_MAX: Duration = Duration::from_secs(2);

/// How much longer than its drain timeout a process lives after an upgrade, to pass the ends of streams on.
const PASS_END_MAX: Duration = Duration::from_millis(500);

/// The parts of the process that a node gets from its caller.
pub(crate) struct Outside {
    pub(crate) registry: Registry,
    /// Registered in that registry.
    pub(crate) site: SiteMetrics,
    pub(crate) level: Level,
    /// Its metric is in that registry, too.
    pub(crate) expiry: Expiry,
}

/// Runs a node until SIGTERM or SIGINT. The node binds all addresses before it starts anything. It notifies the service
/// manager when it can serve clients.
///
/// At SIGTERM, an agent first moves its connections away. The drain ends at another signal, or after the configured
/// timeout. A dispatcher with service addresses gives its connections to the next owners first. Otherwise it cannot drain,
/// because it holds its clients' TCP connections, which end with it. In a node with both roles, the dispatcher runs until
/// the agent is drained, because the dispatcher moves the connections.
///
/// A `successor` takes over from the process that has started it (`upgrade`).
pub(crate) async fn run(config: Config, loaded: Loaded, outside: Outside, successor: bool) -> Result<(), NodeError> {
    let mut end = EndSignals::listen().map_err(starting("signal handling"))?;
    let reload = RequestSignal::reload().map_err(starting("signal handling"))?;
    let reopen = RequestSignal::reopen_logs().map_err(starting("signal handling"))?;
    let name = config.node.name.value.clone();
    let (before, inherited) = if successor {
        PredecessorStream::meet(&Fixed::of(&config)).await.map(|(before, inherited)| (Some(before), inherited))?
    } else {
        (None, Inherited::default())
    };
    let listeners = Listeners::bind(&config, inherited)?;
    let node = Node::start(config, loaded, outside, listeners, before).await?;
    tokio::spawn(reload_when_asked(node.reloader.clone(), reload));
    tokio::spawn(reopen_when_asked(node.reloader.clone(), reopen));
    let signal = tokio::select! {
        signal = until_asked_to_end(&node, &name, &mut end) => signal,
        () = node.predecessor.replaced.notified() => {
            node.end_after_upgrade(&mut end).await;
            return Ok(());
        }
        () = node.thread_lost() => return Err(NodeError::ThreadLost),
    };
    tracing::info!(node = %name, %signal, "ending");
    if let Some(successor) = node.predecessor.end().await {
        // The order is for the node.
        let _ = kill_process(successor, signal.into());
        node.stop().await;
        return Ok(());
    }
    process::notify("STOPPING=1");
    // First: new clients go to the next owner, or to other dispatchers, from now on.
    node.leave_addresses().await;
    if let (Some(agent), EndSignal::Terminate) = (&node.running.agent, signal) {
        drain::before_the_end(agent, &node.cache, node.reloader.drain_timeout().await, &mut end).await;
    }
    node.stop().await;
    Ok(())
}

/// Notifies the service manager when the node can serve clients. Returns how the node is asked to end, which may come
/// first.
async fn until_asked_to_end(node: &Node, name: &NodeName, end: &mut EndSignals) -> EndSignal {
    tokio::select! {
        signal = end.next() => return signal,
        () = node.of_use() => {}
    }
    tracing::info!(node = %name, "ready");
    process::notify("READY=1");
    end.next().await
}

/// The parts of a running node that have to be ended.
struct Node {
    mesh: Mesh,
    admin: JoinHandle<()>,
    running: Roles,
    addresses: Addresses,
    multipath: Option<Multipath>,
    reloader: Arc<Reloader>,
    predecessor: Arc<Predecessor>,
    cache: Arc<NodeCache>,
    shutdown: CancellationToken,
}

impl Node {
    async fn start(
        mut config: Config,
        mut loaded: Loaded,
        outside: Outside,
        mut listeners: Listeners,
        before: Option<PredecessorStream>,
    ) -> Result<Self, NodeError> {
        let mesh_limits = files::fit_node(&mut config, loaded.agent.as_mut())?;
        let Outside { mut registry, site, level, expiry } = outside;
        let shutdown = CancellationToken::new();
        let started = Instant::now();
        tokio::spawn(level.summarize());
        let name = config.node.name.value.clone();
        let role_names = loaded.roles.iter().map(Role::to_string).collect();
        // Ends before the rest when a successor has taken over.
        let unlink = shutdown.child_token();
        let predecessor = Arc::new(listeners.predecessor(unlink.clone())?);
        let clients = std::mem::take(&mut listeners.clients);
        let mesh_config = watari_mesh::Config {
            identity: loaded.identity,
            roles: loaded.roles,
            listener: listeners.mesh,
            peers: config.peers.clone(),
            join: config.node.join,
            limits: mesh_limits,
        };
        let (mesh, events, links) = Mesh::prepare(mesh_config, &mut registry, unlink.clone())?;
        let mut start = Start { mesh: &mesh, registry: &mut registry, shutdown: &shutdown };
        let running = start.roles(&config, loaded.agent.as_ref(), listeners.legs.take(), before.is_some())?;
        let cache = Arc::new(NodeCache::new(
            site.clone(),
            running.agent.clone().map(|agent| (agent, mesh.clone())),
            unlink.clone(),
        ));
        cache.open_if_needed(&config)?;
        let redirects_max = files::redirects_max(process::raise_file_limit());
        let redirects = Redirects::new(redirects_max, start.registry, unlink.clone());
        if let Some(dispatcher) = &config.dispatcher {
            redirects.set(&dispatcher.redirect, listeners.redirect, dispatcher.https_port()).await;
        }
        let candidates = Start::candidates(&config).await?;
        let prepared = Start::prepared_multipath(&config).await?;
        let (mut before, mut passed, mut passed_multipath) = (before, None, None);
        if let Some(before) = &mut before {
            (passed, passed_multipath) = before.take_over(&running, listeners.has_admin).await?.unzip();
            // The process that the service manager has started ends soon.
            process::notify(&format!("MAINPID={}", std::process::id()));
        }
        let addresses = start.addresses(&config, candidates, passed, &running).await?;
        let multipath = start.multipath(&config, prepared, passed_multipath.flatten(), &running).await?;
        tokio::spawn(distribute(events, running.clone(), (addresses.clone(), multipath.clone())));
        let accepting = running.dispatcher.clone().zip(config.dispatcher.as_ref().map(config::Dispatcher::clients_at));
        if let Some(listener) = listeners.metrics {
            metrics_server::serve(listener, Arc::new(registry), unlink.clone()).map_err(starting("metrics"))?;
        }
        let (name, mesh_address, fixed) = (name.to_string(), config.node.mesh, Fixed::of(&config));
        let parts = (mesh.clone(), running.clone());
        let reloader =
            Arc::new(Reloader::new(config, loaded.agent, parts, redirects, (site, level, expiry), cache.clone()));
        let watcher = reloader.clone();
        tokio::spawn(shutdown.clone().run_until_cancelled_owned(async move { watcher.watch_certificates().await }));
        let watcher = reloader.clone();
        tokio::spawn(shutdown.clone().run_until_cancelled_owned(async move { watcher.watch_agents().await }));
        let view = Arc::new(View {
            name,
            mesh_address,
            roles: role_names,
            started,
            mesh: mesh.clone(),
            running: running.clone(),
            addresses: addresses.clone(),
            multipath: multipath.clone(),
            fixed,
            reloader: reloader.clone(),
            predecessor: predecessor.clone(),
            cache: cache.clone(),
        });
        let answer = move |topic| {
            let view = view.clone();
            async move { view.answer(topic).await }
        };
        if before.is_some() {
            links.begin_again();
        } else {
            links.begin();
        }
        listeners.admin.own();
        running.accept_legs().await.map_err(starting("accepting legs"))?;
        if let Some((dispatcher, wanted)) = accepting {
            if before.is_some() {
                // Clients wait in the backlog meanwhile.
                readiness::agent_available(&dispatcher).await;
            }
            dispatcher.listen(&wanted, clients).await.map_err(starting("accepting clients"))?;
        }
        let admin = tokio::spawn(listeners.admin.serve(answer, unlink));
        if let Some(before) = before {
            before.serves(&running).await;
        }
        Ok(Self { mesh, admin, running, addresses, multipath, reloader, predecessor, cache, shutdown })
    }

    /// Ends the node after a successor has taken over. What could not pass goes on to its end, for the drain timeout at
    /// most, or until a signal.
    async fn end_after_upgrade(self, end: &mut EndSignals) {
        let limit = self.reloader.drain_timeout().await;
        let Roles { dispatcher, agent } = &self.running;
        let clients_gone = async {
            if let Some(dispatcher) = dispatcher {
                drain::until_clients_have_gone(dispatcher).await;
            }
        };
        let connections_gone = async {
            if let Some(agent) = agent {
                self.predecessor.pass_the_rest(agent, limit).await;
                drain::until_connections_have_gone(agent).await;
            }
        };
        tokio::select! {
            _ = async { tokio::join!(clients_gone, connections_gone) } => {}
            () = sleep(limit + PASS_END_MAX) => {
                let (clients, connections) =
                    (dispatcher.as_ref().map(Dispatcher::clients), agent.as_ref().map(Agent::occupied));
                tracing::warn!(clients, connections, "the remaining connections end");
            }
            _ = end.next() => {}
        }
        self.stop().await;
    }

    /// Waits until the node could serve a client. An agent can at once, a dispatcher needs an agent.
    async fn of_use(&self) {
        if let Some(dispatcher) = &self.running.dispatcher {
            readiness::agent_available(dispatcher).await;
        }
    }

    /// Waits until a thread of a role has ended by itself. A thread does so only when it panics. A node without some of
    /// its threads had better end, so that the service manager starts it again.
    async fn thread_lost(&self) {
        let relaying = async {
            match &self.running.dispatcher {
                Some(dispatcher) => dispatcher.thread_lost().await,
                None => pending().await,
            }
        };
        let serving = async {
            match &self.running.agent {
                Some(agent) => agent.thread_lost().await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = relaying => {}
            () = serving => {}
        }
    }

    /// Leaves the service addresses, and gives their connections to other dispatchers first.
    async fn leave_addresses(&self) {
        self.addresses.end().await;
        let (Some(multipath), Some(dispatcher)) = (&self.multipath, &self.running.dispatcher) else { return };
        multipath.leave().await;
        for address in multipath.status().addresses {
            dispatcher.leave(LeavingStep::Leave { address }).await;
        }
        multipath.end().await;
    }

    async fn stop(self) {
        self.shutdown.cancel();
        let flushed = async {
            if let Some(agent) = &self.running.agent {
                agent.flush().await;
            }
        };
        let stopped = async { tokio::join!(self.mesh.stopped(), self.admin, flushed, self.cache.closed()) };
        if timeout(STOP_MAX, stopped).await.is_err() {
            tracing::warn!("ended before all queued messages were sent");
        }
    }
}

/// The arguments that all roles start with.
struct Start<'a> {
    mesh: &'a Mesh,
    registry: &'a mut Registry,
    shutdown: &'a CancellationToken,
}

impl Start<'_> {
    fn roles(
        &mut self,
        config: &Config,
        loaded: Option<&LoadedAgent>,
        legs: Option<TcpListener>,
        has_predecessor: bool,
    ) -> Result<Roles, NodeError> {
        let dispatcher = config.dispatcher.as_ref().map(|config| self.dispatcher(config)).transpose()?;
        let agent = match (&config.agent, loaded, legs) {
            (Some(agent), Some(loaded), Some(legs)) => {
                let (sharing, settings) = (agent.sharing.clone(), loaded.settings.clone());
                let name = config.node.name.value.clone();
                let config = watari_agent::Config { name, settings, sharing, has_predecessor };
                Some(self.agent(config, (agent.threads, legs))?)
            }
            _ => None,
        };
        Ok(Roles { dispatcher, agent })
    }

    fn dispatcher(&mut self, config: &config::Dispatcher) -> Result<Dispatcher, NodeError> {
        let (mesh, threads) = (self.mesh.clone(), config.threads);
        let started = Dispatcher::start(config.config.clone(), threads, mesh, self.registry, self.shutdown);
        started.map_err(starting("the dispatcher"))
    }

    /// Checks that this node can have candidates for service addresses, and changes nothing.
    async fn candidates(config: &Config) -> Result<Option<Prepared>, NodeError> {
        let Some(settings) = config.takeover() else { return Ok(None) };
        let checked = Prepared::check(settings.clone()).await;
        checked.map(Some).map_err(|error| NodeError::Takeover(config.takeover_error(&error)))
    }

    /// The voter of this node, and the candidates for service addresses. They start last, because nothing else of the
    /// start may fail while the node has an address.
    async fn addresses(
        &mut self,
        config: &Config,
        candidates: Option<Prepared>,
        before: Option<PassedAddresses>,
        running: &Roles,
    ) -> Result<Addresses, NodeError> {
        let (dispatcher, giving) = (running.dispatcher.clone(), running.dispatcher.clone());
        let addresses = watari_addresses::Config {
            node: config.node.name.value.clone(),
            takeover: candidates,
            before,
            can_serve: Box::new(move || dispatcher.as_ref().is_some_and(Dispatcher::can_serve)),
            before_leaving: giving.map(before_leaving),
        };
        let started = Addresses::start(addresses, self.mesh.clone(), self.registry, self.shutdown).await;
        let addresses = started.map_err(|error| NodeError::Takeover(config.takeover_error(&error)))?;
        if let (Some(dispatcher), None) = (&running.dispatcher, config.multipath()) {
            dispatcher.use_addresses(addresses.clone());
        }
        Ok(addresses)
    }

    /// Checks that this node can have addresses together with others, and changes nothing.
    async fn prepared_multipath(config: &Config) -> Result<Option<PreparedMultipath>, NodeError> {
        let Some(settings) = config.multipath() else { return Ok(None) };
        let checked = PreparedMultipath::check(settings.clone()).await;
        checked.map(Some).map_err(|error| NodeError::Takeover(config.multipath_error(&error)))
    }

    async fn multipath(
        &mut self,
        config: &Config,
        prepared: Option<PreparedMultipath>,
        before: Option<PassedMultipath>,
        running: &Roles,
    ) -> Result<Option<Multipath>, NodeError> {
        let (Some(prepared), Some(dispatcher)) = (prepared, &running.dispatcher) else { return Ok(None) };
        let node = config.node.name.value.clone();
        let addresses = config.multipath().map(|settings| settings.addresses.clone()).unwrap_or_default();
        let (serving, counting, me) = (dispatcher.clone(), dispatcher.clone(), node.clone());
        let multipath = MultipathConfig {
            node,
            prepared,
            before,
            can_serve: Box::new(move || serving.can_serve()),
            count_strays: Box::new(move |primaries| counting.count_strays(&me, &addresses, primaries)),
        };
        let started = Multipath::start(multipath, self.mesh.clone(), self.registry, self.shutdown).await;
        let multipath = started.map_err(|error| NodeError::Takeover(config.multipath_error(&error)))?;
        dispatcher.use_multipath(multipath.clone(), self.shutdown);
        Ok(Some(multipath))
    }

    fn agent(&mut self, config: watari_agent::Config, legs: (NonZeroUsize, TcpListener)) -> Result<Agent, NodeError> {
        Agent::start(config, legs, self.mesh.clone(), self.registry, self.shutdown).map_err(starting("the agent"))
    }
}

/// The connections of an address go to the next owner before the address does.
fn before_leaving(dispatcher: Dispatcher) -> BeforeLeaving {
    BeforeLeaving::new(Dispatcher::LEAVING_MAX, move |step| {
        let dispatcher = dispatcher.clone();
        async move { dispatcher.leave(step).await }
    })
}

/// Reads the configuration again at each signal. The reload logs its result.
async fn reload_when_asked(reloader: Arc<Reloader>, mut signal: RequestSignal) {
    loop {
        signal.next().await;
        let _ = reloader.reload().await;
    }
}

/// Opens log files again at each signal.
async fn reopen_when_asked(reloader: Arc<Reloader>, mut signal: RequestSignal) {
    loop {
        signal.next().await;
        reloader.reopen_logs().await;
    }
}

/// Passes every event of the mesh to every role, and to the service addresses.
async fn distribute(
    mut events: mpsc::Receiver<Event>,
    roles: Roles,
    (addresses, multipath): (Addresses, Option<Multipath>),
) {
    while let Some(event) = events.recv().await {
        // First: leases are short.
        addresses.handle(&event);
        if let Some(multipath) = &multipath {
            multipath.handle(&event);
        }
        if let Some(dispatcher) = &roles.dispatcher {
            dispatcher.handle(&event);
        }
        if let Some(agent) = &roles.agent {
            agent.handle(&event);
        }
    }
}
