//! Addresses that several dispatchers have at once (`[dispatcher.multipath]`).
//!
//! `watari_steering` decides which dispatcher a packet is for, and its program in the kernel passes packets on. This
//! driver exchanges adverts with the other dispatchers, and keeps the kernel's table current. The dispatcher counts
//! strays, and gives them to their primaries.
//!
//! Packets to the addresses are for this machine as long as it has local routes to them. The loopback interface has the
//! addresses only while this node accepts connections, so that routing daemons announce them only then.

mod orders;
mod settings;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use watari_mesh::Mesh;
use watari_steering::{Members, Primaries, SILENT_AFTER, SLOTS, Steering, SteeringError, Table};
use watari_values::{NodeName, Role};
use watari_wire::{DispatcherToDispatcher, Message, SteeringAdvert, SteeringState};

use crate::clock;
use crate::hold::Holder;
use crate::link::Interface;
use crate::lock;
use crate::metrics::SteeringMetrics;
use crate::netlink::Netlink;
use crate::notify::{Notice, Notifier};
use crate::prepare::Cause;
use crate::serving::{CanServe, Serving};

pub use orders::SteeredFlows;
pub use settings::{FixedMultipath, MultipathSettings, PreparedMultipath, dry_run_shared};

/// The interval of adverts: a third of the time after which a dispatcher counts as silent.
const ADVERT_INTERVAL: Duration = Duration::from_millis(200);
/// How often silent dispatchers are looked for.
const TICK: Duration = Duration::from_millis(50);
/// How long a new process listens for others before it accepts connections.
const JOIN_AFTER: Duration = Duration::from_secs(1);
/// How long the loopback interface keeps an address that is not renewed, and how often it is renewed. So the address of
/// a killed node disappears, and its routing daemon notices.
const LIFETIME_S: u32 = 3;
const RENEW: Duration = Duration::from_secs(1);
/// How long a node that ends has for giving its connections away.
const LEAVE_MAX: Duration = Duration::from_secs(65);
/// How long a node that leaves waits until all dispatchers agree.
const UNSETTLED_MAX: Duration = Duration::from_secs(3);
/// How often a node that ends looks whether its connections have gone.
const POLL: Duration = Duration::from_millis(20);

/// What a process knows of all dispatchers, on its way to the next one.
#[derive(Debug, Serialize, Deserialize)]
pub struct PassedMultipath(Members);

/// Counts the connections of this node that are strays.
pub type CountStrays = Box<dyn Fn(&Primaries) -> usize + Send + Sync>;

/// The configuration of a node.
pub struct MultipathConfig {
    pub node: NodeName,
    pub prepared: PreparedMultipath,
    /// What the previous process of this node knew, in an upgrade.
    pub before: Option<PassedMultipath>,
    /// Whether this node can serve clients.
    pub can_serve: CanServe,
    pub count_strays: CountStrays,
}

/// The addresses that this node has together with others. Clones share them.
#[derive(Clone)]
pub struct Multipath {
    shared: Arc<Shared>,
}

struct Shared {
    node: NodeName,
    mesh: Mesh,
    settings: MultipathSettings,
    interface: Interface,
    loopback: u32,
    /// The addresses that this process adds and removes. The machine has the others permanently.
    managed: BTreeSet<IpAddr>,
    netlink: Netlink,
    notifier: Notifier,
    serving: Serving,
    count_strays: CountStrays,
    started: Duration,
    inner: Mutex<Inner>,
    holder: Arc<Mutex<Holder>>,
    /// An advert has come, or an order.
    changed: Notify,
    /// The primaries, if all dispatchers have agreed about them for a while.
    settled: watch::Sender<Option<Arc<Primaries>>>,
    /// This node is to leave.
    is_leaving: AtomicBool,
    /// The loopback interface is to have the addresses, and has them.
    wants_addresses: AtomicBool,
    has_addresses: AtomicBool,
    metrics: SteeringMetrics,
    end: CancellationToken,
}

struct Inner {
    members: Members,
    steering: Steering,
    table: Table,
    /// The primaries by the view of this number.
    primaries: (u64, Arc<Primaries>),
    /// The last advert, and when it was sent.
    advert: Option<SteeringAdvert>,
    sent: Duration,
    /// When the state has changed.
    since: Duration,
    /// Whether a successor of this process has the kernel's part.
    is_passed: bool,
    flows: orders::MovingFlows,
    /// Dispatchers of other addresses.
    strangers: BTreeSet<NodeName>,
    /// Dispatchers that are not heard.
    silent: BTreeSet<NodeName>,
}

/// The state of the addresses at this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MultipathStatus {
    pub addresses: BTreeSet<IpAddr>,
    pub interface: String,
    pub state: SteeringState,
    /// How long the node has had this state.
    pub for_time: Duration,
    /// The slots of which this node is the primary, and all.
    pub slots: (usize, usize),
    pub strays: usize,
    /// The others. `None`: silent.
    pub others: Vec<(NodeName, Option<SteeringState>)>,
    /// Whether all agree.
    pub is_agreed: bool,
}

impl Multipath {
    /// Loads and attaches the program, and starts to exchange adverts. Ends with `shutdown`: call [`Multipath::leave`]
    /// before. Must be called in a tokio runtime.
    pub async fn start(
        config: MultipathConfig,
        mesh: Mesh,
        registry: &mut Registry,
        shutdown: &CancellationToken,
    ) -> Result<Self, Cause> {
        let MultipathConfig { node, prepared, before, can_serve, count_strays } = config;
        let PreparedMultipath { settings, netlink, interface, loopback, permanent } = prepared;
        let now = clock::since_boot();
        let is_successor = before.is_some();
        let members = before
            .map_or_else(|| Members::new(node.clone(), &settings.addresses, now), |PassedMultipath(members)| members);
        let mut steering = Steering::load(&settings.addresses, interface.mac)?;
        let table = members.table();
        steering.set_table(&table).map_err(SteeringError::Map)?;
        // A process that begins anew accepts nothing yet.
        let until = if is_successor { now + SILENT_AFTER } else { Duration::ZERO };
        steering.renew(until, members.is_sure(now)).map_err(SteeringError::Map)?;
        let managed: BTreeSet<_> = settings.addresses.difference(&permanent).copied().collect();
        for address in &managed {
            netlink.add_local_route(loopback, *address).await.map_err(Cause::Netlink)?;
        }
        steering.attach(netlink.handle(), interface.index).await?;
        let inner = Inner {
            primaries: (members.view(), Arc::new(members.primaries())),
            members,
            steering,
            table,
            advert: None,
            sent: Duration::ZERO,
            since: now,
            is_passed: false,
            flows: orders::MovingFlows::default(),
            strangers: BTreeSet::new(),
            silent: BTreeSet::new(),
        };
        let shared = Arc::new(Shared {
            node,
            mesh,
            interface,
            loopback,
            managed,
            netlink,
            notifier: Notifier::start("dispatcher.multipath.notify", settings.notify.clone()),
            settings,
            serving: Serving::new(can_serve, is_successor),
            count_strays,
            // The previous process has listened.
            started: if is_successor { Duration::ZERO } else { now },
            inner: Mutex::new(inner),
            holder: Arc::default(),
            changed: Notify::new(),
            settled: watch::Sender::new(None),
            is_leaving: AtomicBool::new(false),
            wants_addresses: AtomicBool::new(is_successor),
            has_addresses: AtomicBool::new(is_successor),
            metrics: SteeringMetrics::register(registry),
            end: shutdown.child_token(),
        });
        let (advertising, renewing) = (shared.clone(), shared.clone());
        tokio::spawn(shared.end.clone().run_until_cancelled_owned(async move { advertising.advertise().await }));
        tokio::spawn(shared.end.clone().run_until_cancelled_owned(async move { renewing.keep_addresses().await }));
        Ok(Self { shared })
    }

    /// Handles an event of the mesh. Ignores messages about other things.
    pub fn handle(&self, event: &watari_mesh::Event) {
        let now = clock::since_boot();
        match event {
            watari_mesh::Event::Message {
                peer,
                message: Message::DispatcherToDispatcher(DispatcherToDispatcher::Steering(advert)),
            } => {
                let mut inner = lock(&self.shared.inner);
                if !inner.members.is_of_group(advert) {
                    let is_new = inner.strangers.insert(peer.clone());
                    drop(inner);
                    if is_new {
                        tracing::warn!(%peer, "another dispatcher has other addresses in dispatcher.multipath: it counts for nothing here");
                    }
                    return;
                }
                inner.strangers.remove(peer);
                inner.members.hear(peer, advert.clone(), now);
            }
            watari_mesh::Event::Down { peer, .. } => lock(&self.shared.inner).members.lose(peer, now),
            _ => return,
        }
        self.shared.changed.notify_one();
    }

    /// The primaries of all slots, whenever all dispatchers have agreed about them for a while. `None` meanwhile.
    pub fn settled(&self) -> watch::Receiver<Option<Arc<Primaries>>> {
        self.shared.settled.subscribe()
    }

    /// This node.
    pub fn node(&self) -> &NodeName {
        &self.shared.node
    }

    /// The addresses that this node has together with others.
    pub fn addresses(&self) -> &BTreeSet<IpAddr> {
        &self.shared.settings.addresses
    }

    /// Whether several dispatchers have the address.
    pub fn has(&self, address: IpAddr) -> bool {
        self.shared.settings.addresses.contains(&address)
    }

    /// The link-layer address to which another dispatcher of the addresses passes packets on, if this node takes
    /// connections from it.
    pub fn mac_for(&self, other: &NodeName) -> Option<[u8; 6]> {
        let inner = lock(&self.shared.inner);
        let takes = inner.members.state() == SteeringState::Serving && inner.members.mac(other).is_some();
        takes.then_some(self.shared.interface.mac)
    }

    /// Orders for single flows.
    pub fn flows(&self) -> SteeredFlows {
        SteeredFlows::new(self.shared.clone())
    }

    /// The state at this node.
    pub fn status(&self) -> MultipathStatus {
        let mut inner = lock(&self.shared.inner);
        let primaries = inner.primaries();
        MultipathStatus {
            addresses: self.shared.settings.addresses.clone(),
            interface: self.shared.interface.name.clone(),
            state: inner.members.state(),
            for_time: clock::since_boot().saturating_sub(inner.since),
            slots: (primaries.count(&self.shared.node), usize::from(SLOTS)),
            strays: (self.shared.count_strays)(&primaries),
            others: inner.members.others().map(|(name, state)| (name.clone(), state)).collect(),
            is_agreed: inner.members.is_agreed(),
        }
    }

    /// Accepts no more connections, and waits until other dispatchers have those that are here, and until routers have
    /// noticed, for 65 s at most. [`Multipath::end`] comes afterwards.
    pub async fn leave(&self) {
        let shared = &self.shared;
        shared.is_leaving.store(true, Ordering::SeqCst);
        if lock(&shared.inner).is_passed {
            return;
        }
        shared.look();
        let withdrawn = Instant::now() + shared.settings.withdraw;
        let gone = async {
            loop {
                // No other dispatcher takes them.
                let is_alone = lock(&shared.inner).members.serving().is_empty();
                if is_alone || shared.strays() == 0 && Instant::now() >= withdrawn {
                    return;
                }
                sleep(POLL).await;
            }
        };
        if timeout(LEAVE_MAX, gone).await.is_err() {
            tracing::warn!(connections = shared.strays(), "connections are left that no other dispatcher has taken");
        }
    }

    /// Removes the routes to the addresses, and the program.
    pub async fn end(&self) {
        let shared = &self.shared;
        {
            let mut inner = lock(&shared.inner);
            if inner.is_passed {
                return;
            }
            inner.members.set_state(SteeringState::Left, clock::since_boot());
        }
        shared.look();
        shared.end.cancel();
        shared.remove_addresses().await;
        for address in &shared.managed {
            if let Err(error) = shared.netlink.remove_local_route(shared.loopback, *address).await {
                tracing::warn!(%address, %error, "cannot remove the route to an address");
            }
        }
        if let Err(error) = Steering::detach(shared.netlink.handle(), shared.interface.index).await {
            tracing::warn!(interface = shared.interface.name, %error, "cannot remove the program from the interface");
        }
    }

    /// Passes what this process knows to a successor, which attaches its own program. This process changes nothing in
    /// the kernel any more.
    pub fn pass_on(&self) -> PassedMultipath {
        self.shared.end.cancel();
        let mut inner = lock(&self.shared.inner);
        inner.is_passed = true;
        PassedMultipath(inner.members.clone())
    }
}

impl Shared {
    async fn advertise(&self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.changed.notified() => {}
            }
            self.look();
        }
    }

    /// Brings the kernel, the other dispatchers and this one's state up to date.
    fn look(&self) {
        let now = clock::since_boot();
        let mut inner = lock(&self.inner);
        if inner.is_passed {
            return;
        }
        inner.members.expire(now);
        inner.log_silent();
        self.change_state(&mut inner, now);
        let is_due = now.saturating_sub(inner.sent) >= ADVERT_INTERVAL;
        if is_due {
            let primaries = inner.primaries();
            let strays = (self.count_strays)(&primaries);
            inner.members.set_strays(strays);
            self.metrics.strays.set(i64::try_from(strays).unwrap_or(i64::MAX));
            self.metrics.slots.set(i64::try_from(primaries.count(&self.node)).unwrap_or(i64::MAX));
            self.metrics.count(&inner.steering);
            inner.expire_flows();
        }
        let table = inner.members.table();
        if inner.table != table {
            // First here: what the others send to this machine depends on it.
            if let Err(error) = inner.steering.set_table(&table) {
                tracing::error!(%error, "cannot replace the table of the steering program");
            }
            inner.table = table;
        }
        let advert = inner.members.advert(self.interface.mac, now);
        let is_new = |before: &SteeringAdvert| {
            let of = |advert: &SteeringAdvert| (advert.state, advert.view, advert.can_serve);
            of(before) != of(&advert) || advert.has_strays && !before.has_strays
        };
        if is_due || inner.advert.as_ref().is_none_or(is_new) {
            if self.tell(&advert) {
                inner.sent = now;
            }
            inner.advert = Some(advert);
        }
        let is_joining = inner.members.state() == SteeringState::Joining;
        let until = if is_joining { Duration::ZERO } else { inner.sent + SILENT_AFTER };
        let is_sure = inner.members.is_sure(now);
        if let Err(error) = inner.steering.renew(until, is_sure) {
            tracing::error!(%error, "cannot renew the time limit of the steering program");
        }
        // Others that do not hear each other do not keep the connections of a node that leaves.
        let is_late =
            inner.members.state() == SteeringState::Leaving && now.saturating_sub(inner.since) > UNSETTLED_MAX;
        let is_settled = (inner.members.is_settled(now) || is_late) && !is_joining;
        let primaries = is_settled.then(|| inner.primaries());
        drop(inner);
        self.settled.send_if_modified(|settled| {
            let is_other = *settled != primaries;
            *settled = primaries;
            is_other
        });
    }

    async fn remove_addresses(&self) {
        for address in &self.managed {
            if let Err(error) = self.netlink.remove(self.loopback, (*address).into()).await {
                tracing::warn!(%address, %error, "cannot remove an address from the loopback interface");
            }
        }
    }

    fn change_state(&self, inner: &mut Inner, now: Duration) {
        let state = inner.members.state();
        let is_leaving = self.is_leaving.load(Ordering::SeqCst);
        let is_able = self.serving.is_able();
        inner.members.set_ability(is_able);
        let wanted = match state {
            SteeringState::Joining if is_leaving => SteeringState::Leaving,
            SteeringState::Joining => {
                let has_listened = now.saturating_sub(self.started) >= JOIN_AFTER && inner.members.is_settled(now);
                if has_listened && is_able {
                    // First: the others send packets here as soon as this node accepts connections.
                    self.wants_addresses.store(true, Ordering::SeqCst);
                }
                if self.has_addresses.load(Ordering::SeqCst) { SteeringState::Serving } else { state }
            }
            // Without another that is able to serve, it goes on as well as it can.
            SteeringState::Serving if is_leaving || !is_able && inner.members.has_able_other() => {
                SteeringState::Leaving
            }
            SteeringState::Leaving if !is_leaving && (is_able || !inner.members.has_able_other()) => {
                self.wants_addresses.store(true, Ordering::SeqCst);
                if self.has_addresses.load(Ordering::SeqCst) { SteeringState::Serving } else { state }
            }
            SteeringState::Serving | SteeringState::Leaving | SteeringState::Left => state,
        };
        if wanted == state {
            return;
        }
        if wanted == SteeringState::Leaving {
            self.wants_addresses.store(false, Ordering::SeqCst);
        }
        inner.members.set_state(wanted, now);
        inner.since = now;
        let others: Vec<_> = inner.members.others().map(|(name, _)| name.to_string()).collect();
        let (from, to) = (state.as_str(), wanted.as_str());
        tracing::info!(from, to, ?others, "the state of the shared addresses has changed");
        for address in &self.settings.addresses {
            self.notifier.notify(Notice {
                is_active: wanted == SteeringState::Serving,
                address: *address,
                interface: self.interface.name.clone(),
            });
        }
    }

    /// Sends an advert to the others. Returns false if none of them gets it: this node is silent to them.
    fn tell(&self, advert: &SteeringAdvert) -> bool {
        let message = DispatcherToDispatcher::Steering(advert.clone()).into();
        let peers = self.mesh.peers();
        let others = peers.iter().filter(|peer| peer.up_for.is_some() && peer.roles.contains(&Role::Dispatcher));
        let sent: Vec<_> = others.map(|peer| self.mesh.send(&peer.name, &message).is_ok()).collect();
        sent.is_empty() || sent.contains(&true)
    }

    fn strays(&self) -> usize {
        let primaries = lock(&self.inner).primaries();
        (self.count_strays)(&primaries)
    }

    /// Has the addresses on the loopback interface before this node accepts connections, and afterwards.
    async fn keep_addresses(&self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut renewed: Option<Instant> = None;
        loop {
            ticks.tick().await;
            let is_due = renewed.is_none_or(|renewed| renewed.elapsed() >= RENEW);
            match (self.wants_addresses.load(Ordering::SeqCst), renewed.is_some()) {
                (true, _) if is_due => {}
                (false, true) => {
                    renewed = None;
                    self.has_addresses.store(false, Ordering::SeqCst);
                    self.remove_addresses().await;
                    continue;
                }
                _ => continue,
            }
            let mut is_complete = true;
            for address in &self.managed {
                if let Err(error) = self.netlink.add(self.loopback, (*address).into(), LIFETIME_S).await {
                    tracing::error!(%address, %error, "cannot add an address to the loopback interface");
                    is_complete = false;
                }
            }
            renewed = Some(Instant::now());
            if is_complete {
                self.has_addresses.store(true, Ordering::SeqCst);
                self.changed.notify_one();
            }
        }
    }
}

impl Inner {
    /// The primaries by the present view.
    fn primaries(&mut self) -> Arc<Primaries> {
        let view = self.members.view();
        if self.primaries.0 != view {
            self.primaries = (view, Arc::new(self.members.primaries()));
        }
        self.primaries.1.clone()
    }

    /// Logs who is not heard any more, and who is heard again.
    fn log_silent(&mut self) {
        let silent = self.members.others().filter(|(_, state)| state.is_none()).map(|(name, _)| name.clone());
        let silent: BTreeSet<_> = silent.collect();
        for name in silent.difference(&self.silent) {
            tracing::warn!(dispatcher = %name, "a dispatcher of the shared addresses is silent: it accepts no connections");
        }
        for name in self.silent.difference(&silent) {
            tracing::info!(dispatcher = %name, "a dispatcher of the shared addresses is heard again, or forgotten");
        }
        self.silent = silent;
    }

    /// Ends the orders for flows whose time is over.
    fn expire_flows(&mut self) {
        for flow in self.flows.expired(std::time::Instant::now()) {
            if let Err(error) = self.steering.keep_flow(flow.client, flow.server) {
                tracing::warn!(%flow, %error, "cannot end the order for a flow");
            }
        }
    }
}
