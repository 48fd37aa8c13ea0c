//! Runs the voter and the candidates of a node.

mod flows;
mod leaving;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::FutureExt;
use ipnet::IpNet;
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use watari_mesh::Mesh;
use watari_takeover::{Action, Candidate, Event, OwnershipRole, Reason, Status, SwitchRefused, Time, Voter};
use watari_values::{NodeName, Role};
use watari_wire::{Message, TakeoverMessage};

use crate::clock;
use crate::gate::Gate;
use crate::hold::Holder;
use crate::keeper::{Keeper, Kept, Silence, Wanted};
use crate::link::Interface;
use crate::lock;
use crate::metrics::Metrics;
use crate::netlink::Netlink;
use crate::notify::Notifier;
use crate::prepare::{Cause, Prepared, StartError};
use crate::serving::{CanServe, Serving};
use crate::settings::{ServiceAddress, Settings};

pub use flows::{EXPECT_MAX, ExpectError, Flows, FlowsError, HOLD_MAX};
pub use leaving::{BeforeLeaving, LEAVE_MAX, LeavingStep};

/// How long the addresses of a node that ends have for going to another.
const END_MAX: Duration = Duration::from_secs(1);
/// How long a renewal of leases may take before they pass to a successor.
const RENEWAL_MAX: Duration = Duration::from_millis(100);
/// How long a new process may take until it has an available agent. Its addresses count as able to serve until then.
const AGENTS_MAX: Duration = Duration::from_secs(5);
/// How often it is looked whether the node can serve clients.
const LOOK_MAX: Duration = Duration::from_millis(200);
/// How long an order waits for the end of a change of the owner.
const CHANGE_MAX: Duration = Duration::from_secs(1);
const CHANGE_POLL: Duration = Duration::from_millis(10);

/// The configuration of a node.
pub struct Config {
    pub node: NodeName,
    /// `None`: the node only votes.
    pub takeover: Option<Prepared>,
    /// What the previous process of this node had, in an upgrade. It has the same [`FixedSettings`](crate::FixedSettings).
    pub before: Option<PassedAddresses>,
    /// Whether this node can serve clients.
    pub can_serve: CanServe,
    /// Runs before this node leaves an address that it owns to another candidate in a planned way: by an order, because
    /// the other candidate has a higher priority, or because this node ends.
    pub before_leaving: Option<BeforeLeaving>,
}

/// The voter and the candidates of a process, on their way to the next one. Their clock is that of the machine.
#[derive(Debug, Serialize, Deserialize)]
pub struct PassedAddresses {
    voter: Voter,
    candidates: Vec<Candidate>,
}

/// The voter and the candidates of this node. Clones share them.
#[derive(Clone)]
pub struct Addresses {
    shared: Arc<Shared>,
}

struct Shared {
    node: NodeName,
    mesh: Mesh,
    voter: Mutex<Voter>,
    /// Whether a successor has the voter and the candidates. Set before their locks are taken for it, and read with the
    /// lock.
    is_passed: AtomicBool,
    candidates: Vec<Entry>,
    /// What works for the candidates. It ends before they pass.
    tasks: TaskTracker,
    end: CancellationToken,
    gate: Option<Arc<Mutex<Gate>>>,
    netlink: Option<Netlink>,
    /// Packets that have arrived before their connections.
    holder: Arc<Mutex<Holder>>,
    before_leaving: Option<BeforeLeaving>,
    /// Whether [`Addresses::end`] has begun. No flows are expected then.
    is_ending: AtomicBool,
    metrics: Metrics,
    /// Notified when a candidate has changed.
    changed: Notify,
}

/// A candidate, and what it needs.
struct Entry {
    service: ServiceAddress,
    interface: Interface,
    machine: Mutex<Candidate>,
    /// Notified when the candidate's next time may have changed.
    stepped: Notify,
    wanted: watch::Sender<Wanted>,
    /// What the keeper has done about a silent address.
    silence: watch::Sender<Silence>,
    /// Whether [`Config::before_leaving`] runs for the address. Set with the lock of `machine`.
    is_preparing: AtomicBool,
}

/// The state of a service address at this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressStatus {
    pub service: ServiceAddress,
    pub status: Status,
    /// How long the candidate has had its role.
    pub for_time: Duration,
    /// How long its lease still lasts.
    pub lease_left: Option<Duration>,
    /// Whether this node prepares to leave the address.
    pub is_preparing: bool,
}

/// A switch cannot be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SwitchError {
    #[error("this node is no candidate for service addresses")]
    NoCandidate,
    #[error("this node is no candidate for {0}")]
    UnknownAddress(IpAddr),
    #[error("{address}: {cause}")]
    Refused { address: IpAddr, cause: SwitchRefused },
}

impl Addresses {
    /// Starts the voter, and the candidates if there are any. On an error nothing was changed, except that the tables
    /// of an earlier process may have been replaced. Ends with `shutdown`: call [`Addresses::end`] before, unless they
    /// have passed to another process. Must be called in a tokio runtime.
    pub async fn start(
        config: Config,
        mesh: Mesh,
        registry: &mut Registry,
        shutdown: &CancellationToken,
    ) -> Result<Self, StartError> {
        let Config { node, takeover, before, can_serve, before_leaving } = config;
        let incarnation = mesh.incarnation();
        let is_successor = before.is_some();
        let (voter, passed) = match before {
            Some(PassedAddresses { voter, candidates }) => (voter, candidates),
            None => (Voter::new(clock::now()), Vec::new()),
        };
        let mut shared = Shared {
            node,
            mesh,
            voter: Mutex::new(voter),
            is_passed: AtomicBool::new(false),
            candidates: Vec::new(),
            tasks: TaskTracker::new(),
            end: shutdown.child_token(),
            gate: None,
            netlink: None,
            holder: Arc::default(),
            before_leaving,
            is_ending: AtomicBool::new(false),
            metrics: Metrics::register(registry),
            changed: Notify::new(),
        };
        let Some(Prepared { settings, netlink, interfaces, leftovers }) = takeover else {
            return Ok(Self { shared: Arc::new(shared) });
        };
        let all = settings.addresses.iter().map(|service| service.address.addr()).collect();
        let names = settings.interfaces().into_iter().map(str::to_owned).collect();
        let gate = if is_successor { Gate::take_over(all, names) } else { Gate::make(all, names) };
        let gate = Arc::new(Mutex::new(gate.map_err(Cause::Gate)?));
        if !is_successor {
            // All gates are closed. So a leftover does not answer any more.
            for left in leftovers {
                tracing::warn!(address = %left.address, "removing an address that an earlier process has left");
                let address = IpNet::new(left.address, left.prefix_len).unwrap_or_else(|_| left.address.into());
                netlink.remove(left.index, address).await.map_err(Cause::Netlink)?;
            }
        }
        shared.gate = Some(gate.clone());
        shared.netlink = Some(netlink.clone());
        let notifier = Notifier::start("dispatcher.takeover.notify", settings.notify.clone());
        let mut keepers = Vec::new();
        for (service, interface) in settings.addresses.iter().zip(interfaces) {
            let address = service.address.addr();
            let mut actions = Vec::new();
            let machine = machine(&shared.node, incarnation, &settings, service, &passed, &mut actions);
            let role = machine.status(clock::now()).role;
            shared.metrics.role(address, role);
            let (wanted, wanted_there) = watch::channel(Wanted::Absent);
            keepers.push((
                Keeper {
                    address: service.address,
                    interface: interface.clone(),
                    gate: gate.clone(),
                    netlink: netlink.clone(),
                    notifier: notifier.clone(),
                    lifetime_s: settings.lifetime_s(),
                    garp_repeat: settings.garp_repeat,
                    garp_refresh: settings.garp_refresh,
                    is_notified_active: matches!(role, OwnershipRole::Active | OwnershipRole::Leaving),
                },
                wanted_there,
                actions,
            ));
            shared.candidates.push(Entry {
                service: service.clone(),
                interface,
                machine: Mutex::new(machine),
                stepped: Notify::new(),
                wanted,
                silence: watch::channel(Silence::No).0,
                is_preparing: AtomicBool::new(false),
            });
        }
        let shared = Arc::new(shared);
        for (number, (keeper, wanted, actions)) in keepers.into_iter().enumerate() {
            let reporting = shared.clone();
            let report = move |kept| reporting.kept(number, kept);
            shared.tasks.spawn(keeper.run(wanted, shared.end.clone(), report));
            shared.with_machine(number, |_, _, further| further.extend(actions));
            let waking = shared.clone();
            shared.spawn(async move { waking.wake(number).await });
        }
        let watching = shared.clone();
        let look = settings.terms.advert_interval;
        shared.spawn(async move { watching.watch_readiness(netlink, look, can_serve, is_successor).await });
        Ok(Self { shared })
    }

    /// Handles an event of the mesh. Ignores messages about other things.
    pub fn handle(&self, event: &watari_mesh::Event) {
        if let watari_mesh::Event::Message { peer, message: Message::Takeover(message) } = event {
            self.shared.on_message(peer, message);
        }
    }

    /// Passes the voter and the candidates to a successor, with the leases and the addresses that they have. This
    /// process grants no lease, and changes no address any more.
    pub async fn pass_on(&self) -> PassedAddresses {
        self.renew().await;
        let Shared { end, tasks, is_passed, voter, candidates, gate, .. } = &*self.shared;
        end.cancel();
        tasks.close();
        if timeout(END_MAX, tasks.wait()).await.is_err() {
            tracing::warn!("the kernel is slow to carry out an order for a service address");
        }
        if let Some(gate) = gate.clone() {
            // Waits for an order in progress. No later one is carried out here.
            let _ = spawn_blocking(move || lock(&gate).retire()).await;
        }
        is_passed.store(true, Ordering::SeqCst);
        let voter = lock(voter).clone();
        PassedAddresses { voter, candidates: candidates.iter().map(|entry| entry.machine().clone()).collect() }
    }

    /// Renews the leases of this node, so that the successor has time to link with the voters.
    async fn renew(&self) {
        let lease_ends = || self.shared.candidates.iter().map(|entry| entry.machine().status(clock::now()).lease_end);
        let before: Vec<_> = lease_ends().collect();
        for number in 0..before.len() {
            self.shared.step(number, Event::Renew);
        }
        let renewed = async {
            while lease_ends().zip(&before).any(|(now, before)| now.is_some() && now == *before) {
                sleep(CHANGE_POLL).await;
            }
        };
        let _ = timeout(RENEWAL_MAX, renewed).await;
    }

    /// The addresses for which this node is a candidate, in the order of the configuration.
    pub fn statuses(&self) -> Vec<AddressStatus> {
        let now = clock::now();
        let status = |entry: &Entry| {
            let status = entry.machine().status(now);
            AddressStatus {
                service: entry.service.clone(),
                for_time: now.saturating_sub(status.since),
                lease_left: status.lease_end.map(|end| end.saturating_sub(now)),
                is_preparing: entry.is_preparing(),
                status,
            }
        };
        self.shared.candidates.iter().map(status).collect()
    }

    /// Orders a switch of `address`, or of all addresses, to `node`, or to the best candidate. Waits up to 1 s while an
    /// address is about to change its owner, or has none. An order is accepted before [`Config::before_leaving`] runs.
    /// [`Addresses::statuses`] shows whether it has had its effect. Of several addresses, those that are there already
    /// stay.
    pub async fn order_switch(&self, address: Option<IpAddr>, node: Option<&NodeName>) -> Result<(), SwitchError> {
        let all = self.shared.candidates.iter().map(|entry| entry.service.address.addr()).enumerate();
        let meant: Vec<_> = all.filter(|(_, own)| address.is_none_or(|address| *own == address)).collect();
        if meant.is_empty() {
            return Err(address.map_or(SwitchError::NoCandidate, SwitchError::UnknownAddress));
        }
        let deadline = Instant::now() + CHANGE_MAX;
        let mut result = Ok(());
        // Each is ordered, also if another is refused.
        for (number, own) in meant {
            let ordered = match self.order_switch_of(number, node, deadline).await {
                Err(SwitchRefused::AlreadyThere(_)) if address.is_none() => Ok(()),
                ordered => ordered,
            };
            result = result.and(ordered.map_err(|cause| SwitchError::Refused { address: own, cause }));
        }
        result
    }

    async fn order_switch_of(
        &self,
        number: usize,
        node: Option<&NodeName>,
        deadline: Instant,
    ) -> Result<(), SwitchRefused> {
        loop {
            match self.shared.order_or_prepare(number, node) {
                Err(SwitchRefused::Changing | SwitchRefused::NoOwner) if Instant::now() < deadline => {
                    sleep(CHANGE_POLL).await;
                }
                ordered => return ordered,
            }
        }
    }

    /// Leaves all addresses to other candidates, within 1 s after [`Config::before_leaving`], and removes the tables from
    /// `nf_tables`.
    pub async fn end(&self) {
        self.shared.end_silences();
        self.shared.end_candidates().await;
        let ended = async {
            loop {
                let changed = self.shared.changed.notified();
                if self.shared.candidates.iter().all(|entry| entry.machine().has_ended() && !entry.is_silent()) {
                    return;
                }
                changed.await;
            }
        };
        if timeout(END_MAX, ended).await.is_err() {
            tracing::warn!("service addresses are not removed within 1 s: their gates close by themselves");
            return;
        }
        let Some(gate) = self.shared.gate.clone() else { return };
        if let Ok(Err(error)) = spawn_blocking(move || lock(&gate).remove()).await {
            tracing::warn!(%error, "cannot remove the tables from nf_tables");
        }
    }
}

/// The candidate for an address: the one that has passed from the previous process, or a new one.
fn machine(
    node: &NodeName,
    incarnation: u64,
    settings: &Settings,
    service: &ServiceAddress,
    passed: &[Candidate],
    actions: &mut Vec<Action>,
) -> Candidate {
    let address = service.address.addr();
    if let Some(mut machine) = passed.iter().find(|passed| passed.settings().address == address).cloned() {
        machine.resume(service.priority, settings.preempt, settings.terms.advert_interval, actions);
        return machine;
    }
    let settings = watari_takeover::Settings {
        node: node.clone(),
        incarnation,
        address,
        priority: service.priority,
        preempt: settings.preempt,
        terms: settings.terms.clone(),
    };
    Candidate::new(settings, clock::now())
}

impl Entry {
    fn machine(&self) -> MutexGuard<'_, Candidate> {
        lock(&self.machine)
    }

    /// Whether the interface may have the address silently.
    fn is_silent(&self) -> bool {
        matches!(*self.silence.borrow(), Silence::Until(_))
    }
}

impl Shared {
    /// Runs `task` until the candidates end or pass.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(self.end.clone().run_until_cancelled_owned(task).map(drop));
    }

    fn on_message(self: &Arc<Self>, from: &NodeName, message: &TakeoverMessage) {
        if let Some(answer) = self.vote(from, message) {
            let _ = self.mesh.send(from, &answer.into());
            return;
        }
        let address = message.address();
        let number = self.candidates.iter().position(|entry| entry.service.address.addr() == address);
        match (number, message) {
            (Some(number), TakeoverMessage::SwitchWanted(_)) => self.on_switch_wanted(number, from, message),
            (Some(number), _) => self.step(number, Event::Message { from, message }),
            (None, _) => {}
        }
    }

    /// Has the voter handle a request. Returns its answer.
    fn vote(&self, from: &NodeName, message: &TakeoverMessage) -> Option<TakeoverMessage> {
        let mut voter = lock(&self.voter);
        if self.is_passed.load(Ordering::SeqCst) {
            return None;
        }
        match message {
            TakeoverMessage::LeaseWanted(wanted) => Some(voter.wanted(from, wanted, clock::now())),
            TakeoverMessage::LeaseReturned(returned) => {
                voter.returned(from, returned);
                None
            }
            _ => None,
        }
    }

    fn step(self: &Arc<Self>, number: usize, event: Event<'_>) {
        let _ = self.with_machine(number, |machine, now, actions| machine.handle(event, now, actions));
    }

    /// Calls `act` for the candidate of this number, and carries out the actions that it appends. `None`: the candidate
    /// has passed to a successor.
    fn with_machine<T>(
        self: &Arc<Self>,
        number: usize,
        act: impl FnOnce(&mut Candidate, Time, &mut Vec<Action>) -> T,
    ) -> Option<T> {
        let entry = &self.candidates[number];
        let mut machine = entry.machine();
        if self.is_passed.load(Ordering::SeqCst) {
            return None;
        }
        let before = machine.status(clock::now());
        let mut actions = Vec::new();
        let result = act(&mut machine, clock::now(), &mut actions);
        self.carry_out(number, &mut machine, actions);
        self.log(entry, &before, &machine.status(clock::now()));
        drop(machine);
        entry.stepped.notify_one();
        self.changed.notify_waiters();
        Some(result)
    }

    /// Carries out actions, and those that follow from the answers of this node's own voter.
    fn carry_out(self: &Arc<Self>, number: usize, machine: &mut Candidate, actions: Vec<Action>) {
        let wanted = &self.candidates[number].wanted;
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            match action {
                Action::ToVoters(message) => {
                    for voter in &machine.settings().terms.voters.clone() {
                        if *voter != self.node {
                            self.send(voter, &message);
                        } else if let Some(answer) = self.vote(voter, &message) {
                            let mut further = Vec::new();
                            let event = Event::Message { from: voter, message: &answer };
                            machine.handle(event, clock::now(), &mut further);
                            actions.extend(further);
                        }
                    }
                }
                Action::ToDispatchers(message) => {
                    for peer in self.mesh.peers() {
                        if peer.up_for.is_some() && peer.roles.contains(&Role::Dispatcher) {
                            self.send(&peer.name, &message);
                        }
                    }
                }
                Action::To(node, message) => self.send(&node, &message),
                Action::Check => self.check(number),
                Action::Activate { until } | Action::Extend { until } => {
                    wanted.send_replace(Wanted::Present { until });
                }
                Action::Deactivate => drop(wanted.send_replace(Wanted::Absent)),
            }
        }
    }

    /// A message that is not sent counts as lost.
    fn send(&self, to: &NodeName, message: &TakeoverMessage) {
        let _ = self.mesh.send(to, &message.clone().into());
    }

    /// Looks for another machine with the address.
    fn check(self: &Arc<Self>, number: usize) {
        let entry = &self.candidates[number];
        let (address, interface, shared) = (entry.service.address.addr(), entry.interface.clone(), self.clone());
        self.tasks.spawn(async move {
            let found = spawn_blocking(move || interface.other_with(address)).await;
            let other =
                found.map_err(|error| error.to_string()).and_then(|found| found.map_err(|error| error.to_string()));
            let in_use = other.unwrap_or_else(|error| {
                // The interface is down, for example. That makes the node unable to serve, and no duplicate.
                tracing::warn!(%address, error, "cannot ask whether another machine has the address");
                None
            });
            shared.step(number, Event::Checked(in_use));
        });
    }

    fn kept(self: &Arc<Self>, number: usize, kept: Kept) {
        let Entry { service, silence, .. } = &self.candidates[number];
        let address = service.address.addr();
        match kept {
            Kept::Active => {
                silence.send_replace(Silence::No);
                self.metrics.activation(address);
                self.step(number, Event::Activated);
            }
            Kept::Removed => {
                silence.send_replace(Silence::No);
                self.step(number, Event::Removed);
            }
            Kept::Silent(state) => {
                silence.send_replace(state);
                self.changed.notify_waiters();
            }
            Kept::Failed => {
                self.metrics.failure(address);
                self.step(number, Event::Failed);
            }
        }
    }

    fn log(&self, entry: &Entry, before: &Status, after: &Status) {
        let address = entry.service.address.addr();
        if before.role == after.role {
            return;
        }
        self.metrics.role(address, after.role);
        let (role, reason, interface) = (after.role.as_str(), &after.reason, &entry.service.interface);
        match after.role {
            OwnershipRole::Asking => tracing::debug!(%address, role, %reason, "address"),
            OwnershipRole::Leaving if after.reason == Reason::LeaseLost => {
                self.metrics.lease_lost(address);
                tracing::error!(%address, interface, role, %reason, "address");
            }
            OwnershipRole::Standby if matches!(after.reason, Reason::AddressInUse { .. }) => {
                tracing::error!(%address, interface, role, %reason, "address: trying again in 5 s");
            }
            // Attempts that voters refuse are frequent while another node has the address.
            OwnershipRole::Standby if before.role == OwnershipRole::Asking => {
                tracing::debug!(%address, role, %reason, "address");
            }
            _ => tracing::info!(%address, interface, role, %reason, "address"),
        }
    }

    /// Has the candidate do what is due. Never ends.
    async fn wake(self: Arc<Self>, number: usize) {
        let entry = &self.candidates[number];
        loop {
            let wait = entry.machine().wake_at().saturating_sub(clock::now());
            tokio::select! {
                () = sleep(wait) => self.step(number, Event::Tick),
                () = entry.stepped.notified() => {}
            }
        }
    }

    /// Follows whether the node can serve clients at its addresses. The agents of a successor link to it a little later.
    /// Never ends.
    async fn watch_readiness(
        self: Arc<Self>,
        netlink: Netlink,
        look: Duration,
        can_serve: CanServe,
        is_successor: bool,
    ) {
        let (mut running, serving) = (netlink.running(), Serving::new(can_serve, false));
        let mut looks = interval(look.min(LOOK_MAX));
        let mut known: Vec<_> =
            self.candidates.iter().map(|entry| entry.machine().status(clock::now()).ready).collect();
        let was_ready = known.clone();
        let mut agents_until = is_successor.then(|| Instant::now() + AGENTS_MAX);
        loop {
            tokio::select! {
                _ = looks.tick() => {}
                changed = running.changed() => {
                    if changed.is_err() {
                        return tracing::error!("the netlink socket has failed: states of interfaces are unknown");
                    }
                }
            }
            let serves = serving.is_able();
            if serves {
                agents_until = None;
            }
            let agents_may_come = agents_until.is_some_and(|until| Instant::now() < until);
            for (number, known) in known.iter_mut().enumerate() {
                let serves = serves || agents_may_come && was_ready[number];
                let ready = serves && netlink.is_running(self.candidates[number].interface.index);
                if *known != ready {
                    *known = ready;
                    let ServiceAddress { address, interface, .. } = &self.candidates[number].service;
                    tracing::info!(address = %address.addr(), interface, ready, "ability to serve clients");
                    self.step(number, Event::Ready(ready));
                }
            }
        }
    }
}
