//! Gives the connections of a service address to the next dispatcher.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use watari_addresses::Flow;
use watari_handoff::{Giving, GivingAction};
use watari_mesh::SendError;
use watari_relay::Input;
use watari_tcp_repair::Frozen;
use watari_values::{AbortReason, ConnectionId, DispatcherChange, NodeName};
use watari_wire::{
    CHANGE_STATE_LEN_MAX, DispatcherToDispatcher, STATE_PART_LEN_MAX, StatePart, TakeComing, TakeReady, TakeWanted,
};

use super::places::Places;
use super::{Answer, Offered, Shipped, lock};
use crate::shared::DispatcherShared;
use crate::table::RelayMessage;
use crate::upgrade::Passed;

/// How long the next dispatcher has to say that it is ready.
const READY_MAX: Duration = Duration::from_secs(3);
/// How long all connections have, and how long none may have changed. The address leaves this node afterwards.
const ALL_MAX: Duration = Duration::from_mins(1);
const STANDSTILL_MAX: Duration = Duration::from_secs(3);
/// How often the next dispatcher hears that more connections will come.
const ANNOUNCE: Duration = Duration::from_secs(2);
/// How long new clients have been turned away when the rest is given up.
const REST_MAX: Duration = Duration::from_millis(300);
/// How long one attempt has: until the agent has detached its leg, and again until the next dispatcher holds it.
const ATTEMPT_MAX: Duration = Duration::from_secs(1);
/// How long a connection may be given after it was shipped. The next dispatcher drops it after 5 s.
const GIVEN_MAX: Duration = Duration::from_secs(3);
/// How long new clients are turned away, unless that is renewed. The owner may stay the owner.
const CLOSED: Duration = Duration::from_secs(2);
/// How long the next dispatcher is reminded of a connection that it has: as long as it holds one.
const REMINDED: Duration = Duration::from_secs(5);
/// How often a message is repeated that was not answered.
const REPEAT: Duration = Duration::from_millis(200);
/// How often the table is looked at while connections are reset.
const POLL: Duration = Duration::from_millis(2);
/// How long the link to the next dispatcher may be down, or a new process of it not ready. It may be upgraded.
const RELINK_MAX: Duration = Duration::from_secs(5);
/// Attempts for one connection in one switch.
const ATTEMPTS: u32 = 3;
/// Connections that are asked at a time. Those that stand still are among them.
const ASKED_MAX: usize = 32;
/// Connections that are asked together. The kernels get their flows in one order.
const BATCH: usize = 16;
/// How often what was not answered is looked at, and the table at the end of a round.
const TICK: Duration = Duration::from_millis(20);
/// The pause before a part is sent again that a full link has not taken.
const SEND_AGAIN: Duration = Duration::from_millis(1);
/// How long packets of a connection are forwarded that has gone: longer than it is let in at the next dispatcher. By
/// then routers and clients know the new owner.
const FORWARDED: Duration = Duration::from_secs(150);

/// A relay is asked to change its dispatcher. It answers once, or ends.
#[derive(Debug, Clone)]
pub(crate) struct ChangeOrder {
    pub(crate) to: NodeName,
    pub(crate) replies: mpsc::UnboundedSender<(ConnectionId, Reply)>,
}

impl ChangeOrder {
    pub(crate) fn reply(&self, id: ConnectionId, reply: Reply) {
        // Without a receiver, the connection stays.
        let _ = self.replies.send((id, reply));
    }
}

/// The answer of a relay.
#[derive(Debug)]
pub(crate) enum Reply {
    /// It stands still until it is taken.
    Standing(Box<Standing>),
    /// It begins or ends. It may be asked again.
    CannotNow,
}

/// A connection that stands still. If it is dropped, its relay goes on.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) giving: Giving,
    pub(crate) change: DispatcherChange,
    pub(crate) passed: Passed,
    pub(crate) client: OwnedFd,
    pub(crate) flow: Flow,
    /// The relay ends when this is sent.
    pub(crate) taken: oneshot::Sender<()>,
}

/// The connections of a run.
pub(crate) struct Scope {
    /// Their address.
    pub(crate) address: IpAddr,
    /// Which of them, by their clients. `None`: all.
    pub(crate) clients: Option<Box<dyn Fn(SocketAddr) -> bool + Send + Sync>>,
}

impl Scope {
    fn ids(&self, shared: &DispatcherShared) -> Vec<ConnectionId> {
        shared.table.ids_where(|flow| {
            flow.server.ip() == self.address && self.clients.as_ref().is_none_or(|clients| clients(flow.client))
        })
    }
}

/// Gives all connections at `address` to `to`, as far as possible. The caller owns the address meanwhile. Afterwards, it
/// calls [`leave`] or [`stay`]. Returns whether the address may go to the next dispatcher, which answers.
pub(crate) async fn give_all(shared: &Arc<DispatcherShared>, address: IpAddr, to: &NodeName) -> bool {
    give(shared, Scope { address, clients: None }, to).await
}

/// Gives connections to `to`, as far as possible. Returns whether it answers.
pub(crate) async fn give(shared: &Arc<DispatcherShared>, scope: Scope, to: &NodeName) -> bool {
    let Some(places) = shared.changes.places.get() else { return true };
    let address = scope.address;
    let Some(mac) = ready(shared, &scope, to).await else {
        tracing::warn!(%address, %to, "the next dispatcher does not answer that it takes connections");
        return false;
    };
    shared.changes.forget_given();
    let mut run = Run::new(shared, places, scope, to, mac);
    run.give(Instant::now() + ALL_MAX).await;
    let left = run.scope.ids(shared).len();
    tracing::info!(%address, %to, given = run.given, left, "connections have changed their dispatcher");
    if run.is_lost {
        tracing::warn!(%address, %to, "the next dispatcher does not answer any more");
    }
    !run.is_lost
}

/// The address leaves this node. Resets the connections that are left, while the gate lets that out.
pub(crate) async fn leave(shared: &DispatcherShared, address: IpAddr) {
    let (unrelayed, unrelayed_count) = shared.unrelayed.leave(address);
    let count = shared.table.message_all_at(address, || RelayMessage::Reset) + unrelayed_count;
    if count > 0 {
        tracing::info!(%address, count, "connections reset: their address leaves this node");
        shared.metrics.not_given.inc_by(count as u64);
    }
    while !shared.table.ids_at(address).is_empty() || unrelayed.count() > 0 {
        sleep(POLL).await;
    }
}

/// The address stays, or is lost. Connections that are about to change their dispatcher do not.
pub(crate) async fn stay(shared: &DispatcherShared, address: IpAddr) {
    shared.table.message_all_at(address, stay_here);
    let Some(places) = shared.changes.places.get() else { return };
    if let Err(error) = places.open_to_new(address).await {
        tracing::warn!(%address, %error, "new clients are turned away for {CLOSED:?}");
    }
}

/// Waits until the next dispatcher is ready. Returns the hardware address to which packets are forwarded.
async fn ready(shared: &DispatcherShared, scope: &Scope, to: &NodeName) -> Option<[u8; 6]> {
    let (sender, mut answer) = oneshot::channel();
    lock(&shared.changes.ready).insert((to.clone(), scope.address), sender);
    let asks = async {
        loop {
            announce(shared, scope, to);
            if let Ok(answered) = timeout(REPEAT, &mut answer).await {
                return answered.ok();
            }
        }
    };
    let ready = timeout(READY_MAX, asks).await.ok().flatten();
    lock(&shared.changes.ready).remove(&(to.clone(), scope.address));
    ready
}

/// Announces connections.
fn announce(shared: &DispatcherShared, scope: &Scope, to: &NodeName) {
    let connections = u32::try_from(scope.ids(shared).len()).unwrap_or(u32::MAX);
    let wanted = TakeWanted { address: scope.address, connections };
    shared.send_to_dispatcher(to, DispatcherToDispatcher::TakeWanted(wanted));
}

impl DispatcherShared {
    pub(crate) fn on_take_ready(&self, from: &NodeName, ready: &TakeReady) {
        if let Some(waiting) = lock(&self.changes.ready).remove(&(from.clone(), ready.address)) {
            let _ = waiting.send(ready.mac);
        }
    }
}

/// The message to a relay whose connection does not change its dispatcher any more.
fn stay_here() -> RelayMessage {
    RelayMessage::Input(Box::new(Input::ChangeFailed))
}

/// Ticks of a run so far. Its time limits count them, and not the clock: while this process stands still, there are none,
/// and what has come meanwhile is handled before the next.
#[derive(Debug, Clone, Copy, Default)]
struct Ticks(u32);

impl Ticks {
    /// The time since a tick, as far as this process has run.
    fn since(self, earlier: Self) -> Duration {
        TICK * (self.0 - earlier.0)
    }
}

/// Connections that go to one dispatcher.
struct Run<'a> {
    shared: &'a Arc<DispatcherShared>,
    places: &'a Places,
    scope: Scope,
    order: ChangeOrder,
    mac: [u8; 6],
    replies: mpsc::UnboundedReceiver<(ConnectionId, Reply)>,
    answers: mpsc::UnboundedReceiver<(DispatcherChange, Answer)>,
    answers_to: mpsc::UnboundedSender<(DispatcherChange, Answer)>,
    /// Connections that were not asked in this round.
    left: VecDeque<ConnectionId>,
    /// Connections that were asked: at which tick first, and when last.
    asked: HashMap<ConnectionId, (Ticks, Instant)>,
    /// Connections that stand still, and may be at the next dispatcher.
    offered: HashMap<DispatcherChange, FrozenConnection>,
    /// Connections that the next dispatcher has. It may not know yet.
    unconfirmed: HashMap<DispatcherChange, Unconfirmed>,
    /// Attempts that have failed, by connection.
    failed: HashMap<ConnectionId, u32>,
    /// The link to the next dispatcher is down, or a new process of it has to say that it is ready. No connection is
    /// asked meanwhile.
    pause: Option<Pause>,
    /// Whether the next dispatcher cannot be reached any more.
    is_lost: bool,
    ticks: Ticks,
    /// The tick at which a connection was given last.
    progress: Ticks,
    /// The tick at which the next dispatcher answered last.
    answered: Ticks,
    /// When the next dispatcher was announced more.
    announced: Instant,
    closed: Option<Closed>,
    /// Flows that were sent away, of connections that are not given.
    away: HashSet<Flow>,
    given: usize,
}

/// A connection that was given, and when the next dispatcher was informed first and last.
struct Unconfirmed {
    giving: Giving,
    since: Instant,
    last: Instant,
}

/// No connection is asked.
struct Pause {
    /// The tick at which it began.
    since: Ticks,
    /// What the next dispatcher answers once the link is up again.
    ready: oneshot::Receiver<[u8; 6]>,
}

/// New clients are turned away.
struct Closed {
    since: Instant,
    renewed: Instant,
}

/// A frozen connection.
struct FrozenConnection {
    frozen: Frozen<OwnedFd>,
    giving: Giving,
    flow: Flow,
    taken: oneshot::Sender<()>,
    /// When it was shipped, and at which tick.
    shipped: Instant,
    since: Ticks,
}

impl<'a> Run<'a> {
    fn new(shared: &'a Arc<DispatcherShared>, places: &'a Places, scope: Scope, to: &NodeName, mac: [u8; 6]) -> Self {
        let (replies_to, replies) = mpsc::unbounded_channel();
        let (answers_to, answers) = mpsc::unbounded_channel();
        Self {
            shared,
            places,
            scope,
            order: ChangeOrder { to: to.clone(), replies: replies_to },
            mac,
            replies,
            answers,
            answers_to,
            left: VecDeque::new(),
            asked: HashMap::new(),
            offered: HashMap::new(),
            unconfirmed: HashMap::new(),
            failed: HashMap::new(),
            pause: None,
            is_lost: false,
            ticks: Ticks::default(),
            progress: Ticks::default(),
            answered: Ticks::default(),
            announced: Instant::now(),
            closed: None,
            away: HashSet::new(),
            given: 0,
        }
    }

    /// Gives all connections until `deadline`. At the end, new clients are turned away, so that none is left behind.
    async fn give(&mut self, deadline: Instant) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.left = self.at_address();
        while !self.is_lost {
            self.ask();
            tokio::select! {
                Some((id, reply)) = self.replies.recv() => self.on_replies(id, reply).await,
                Some((change, answer)) = self.answers.recv() => self.on_answer(change, answer).await,
                _ = ticks.tick() => self.on_tick().await,
            }
            if !self.left.is_empty() || !self.offered.is_empty() || !self.asked.is_empty() {
                if self.is_over(deadline) {
                    break;
                }
                continue;
            }
            // A round is over. Those that begin or end at the moment are asked again.
            self.left = self.at_address();
            match &self.closed {
                None => self.close().await,
                Some(Closed { since, .. })
                    if self.may_stop() && (self.left.is_empty() || since.elapsed() > REST_MAX) =>
                {
                    break;
                }
                Some(_) => {}
            }
            if self.is_over(deadline) {
                break;
            }
            if !self.left.is_empty() {
                sleep(TICK).await;
            }
        }
        let standing: Vec<_> = self.offered.keys().copied().collect();
        for change in standing {
            self.fail(change, "time is over").await;
        }
    }

    /// Turns new clients away for a while.
    async fn close(&mut self) {
        let now = Instant::now();
        self.closed.get_or_insert(Closed { since: now, renewed: now }).renewed = now;
        if let Err(error) = self.places.close_to_new(self.scope.address, CLOSED).await {
            tracing::warn!(%error, "cannot turn new clients away");
        }
    }

    fn is_over(&self, deadline: Instant) -> bool {
        let stands_still = self.ticks.since(self.progress) > STANDSTILL_MAX && self.may_stop();
        Instant::now() >= deadline || stands_still
    }

    /// Whether the next dispatcher has confirmed what it has, and is ready for more.
    fn may_stop(&self) -> bool {
        self.unconfirmed.is_empty() && self.pause.is_none()
    }

    /// The connections that may be asked.
    fn at_address(&self) -> VecDeque<ConnectionId> {
        let all = self.scope.ids(self.shared).into_iter();
        all.filter(|id| self.failed.get(id).is_none_or(|failed| *failed < ATTEMPTS)).collect()
    }

    /// An attempt that ends with the link to the next dispatcher does not count.
    fn note_failure(&mut self, id: ConnectionId) {
        if self.pause.is_none() {
            *self.failed.entry(id).or_default() += 1;
        }
    }

    /// Asks further connections.
    fn ask(&mut self) {
        let room = ASKED_MAX.saturating_sub(self.asked.len() + self.offered.len());
        if self.left.is_empty() || room < BATCH || self.pause.is_some() {
            return;
        }
        let asked: Vec<_> = self.left.drain(..BATCH.min(self.left.len())).collect();
        // First, so that the next dispatcher holds their packets by the time at which they are sent there.
        let flows = asked.iter().filter_map(|id| self.shared.table.flow(*id));
        let flows = flows.map(|Flow { client, server }| (client, server)).collect();
        self.shared.send_to_dispatcher(&self.order.to, DispatcherToDispatcher::TakeComing(TakeComing { flows }));
        let now = Instant::now();
        for id in asked {
            if self.shared.table.message(id, RelayMessage::Change(Box::new(self.order.clone()))) {
                self.asked.insert(id, (self.ticks, now));
            }
        }
    }

    /// Handles what has come from relays. Ships those that stand still.
    async fn on_replies(&mut self, id: ConnectionId, reply: Reply) {
        let mut next = Some((id, reply));
        let mut batch = Vec::new();
        while let Some((id, reply)) = next {
            self.asked.remove(&id);
            if let Reply::Standing(standing) = reply {
                batch.push(*standing);
            }
            next = (batch.len() < BATCH).then(|| self.replies.try_recv().ok()).flatten();
        }
        if !batch.is_empty() {
            self.offer(batch).await;
        }
    }

    async fn offer(&mut self, batch: Vec<Standing>) {
        let flows: Vec<_> = batch.iter().map(|standing| standing.flow).collect();
        self.away.extend(&flows);
        if let Err(error) = self.places.send_away(&flows, self.mac, FORWARDED).await {
            tracing::warn!(%error, "cannot forward the packets of connections");
            return self.bring_back(&flows).await;
        }
        // Their relays go on when their packets are back.
        let (mut back, mut staying) = (Vec::new(), Vec::new());
        for standing in batch {
            let (flow, id) = (standing.flow, standing.change.connection);
            if let Err((reason, taken)) = self.ship(standing).await {
                tracing::info!(connection = %id, client = %flow.client, reason, "a connection keeps its dispatcher");
                self.note_failure(id);
                back.push(flow);
                staying.push(taken);
            }
            // A batch may take long. What was held first waits for its decision.
            self.take_answers().await;
        }
        self.bring_back(&back).await;
        drop(staying);
    }

    /// Freezes one connection, and ships it. On an error it is thawed, and its relay goes on when the sender is dropped.
    async fn ship(&mut self, standing: Standing) -> Result<(), (String, oneshot::Sender<()>)> {
        let Standing { giving, change, passed, client, flow, taken } = standing;
        if self.is_lost || self.pause.is_some() {
            return Err(("there is no link to the next dispatcher".to_owned(), taken));
        }
        let (frozen, state) = match freeze(client, passed) {
            Ok(frozen) => frozen,
            Err(error) => return Err((error, taken)),
        };
        let offered = Offered { to: self.order.to.clone(), answers: self.answers_to.clone() };
        lock(&self.shared.changes.offered).insert(change, offered);
        let (shipped, since) = (Instant::now(), self.ticks);
        self.offered.insert(change, FrozenConnection { frozen, giving, flow, taken, shipped, since });
        let state_len = state.len() as u32;
        for (number, bytes) in state.chunks(STATE_PART_LEN_MAX).enumerate() {
            let offset = (number * STATE_PART_LEN_MAX) as u32;
            let part = StatePart { change, offset, state_len, bytes: bytes.to_vec() };
            if let Err(error) = self.send_part(part).await {
                // With a link that takes nothing, no other connection can go either.
                self.is_lost |= self.mesh_is_up();
                self.follow_link();
                let FrozenConnection { frozen, taken, .. } = self.forget(change).expect("it was just added");
                drop(frozen);
                return Err((error.to_string(), taken));
            }
        }
        if let Some(offered) = self.offered.get_mut(&change) {
            offered.shipped = Instant::now();
        }
        Ok(())
    }

    /// Sends a part, and waits while the link is full. Leases and other messages have room beside the parts.
    async fn send_part(&self, part: StatePart) -> Result<(), SendError> {
        let message = DispatcherToDispatcher::StatePart(part).into();
        let mut waited = Duration::ZERO;
        loop {
            match self.shared.mesh.send_bulk(&self.order.to, &message) {
                Err(SendError::QueueFull) if waited < ATTEMPT_MAX => sleep(SEND_AGAIN).await,
                sent => return sent,
            }
            waited += SEND_AGAIN;
        }
    }

    fn forget(&mut self, change: DispatcherChange) -> Option<FrozenConnection> {
        lock(&self.shared.changes.offered).remove(&change);
        self.offered.remove(&change)
    }

    /// Handles the answers that have come.
    async fn take_answers(&mut self) {
        while let Ok((change, answer)) = self.answers.try_recv() {
            self.on_answer(change, answer).await;
        }
    }

    async fn on_answer(&mut self, change: DispatcherChange, answer: Answer) {
        self.answered = self.ticks;
        match answer {
            // Otherwise it would not learn in time that it has the connection.
            Answer::Held if !self.mesh_is_up() => self.fail(change, "the link is lost").await,
            Answer::Held if self.is_too_late_for(change) => self.fail(change, "the answer is late").await,
            Answer::Held => self.on_held(change),
            Answer::Refused(reason) => {
                if reason == AbortReason::Expired {
                    // It expects no connections, or begins to pass its own to a new process.
                    self.begin_pause();
                }
                self.fail(change, reason.as_str()).await;
            }
            Answer::Taken => {
                if let Some(Unconfirmed { giving, .. }) = self.unconfirmed.get_mut(&change) {
                    giving.on_taken(change.number);
                    self.forget_confirmed();
                }
            }
        }
    }

    /// Whether the next dispatcher may drop the connection before it is informed that it has it.
    fn is_too_late_for(&self, change: DispatcherChange) -> bool {
        self.offered.get(&change).is_some_and(|held| held.shipped.elapsed() > GIVEN_MAX)
    }

    fn on_held(&mut self, change: DispatcherChange) {
        let Some(held) = self.offered.get_mut(&change) else { return };
        if held.giving.on_held(change.number) != Some(GivingAction::Give) {
            return;
        }
        let Some(FrozenConnection { frozen, giving, taken, flow, .. }) = self.offered.remove(&change) else { return };
        self.away.remove(&flow);
        self.shared.changes.note_given(change.connection);
        if let Err(error) = frozen.discard() {
            // It is silent as soon as the relay has closed its descriptor.
            tracing::warn!(%error, "cannot discard the socket of a connection");
        }
        let _ = taken.send(());
        self.places.given(flow);
        self.shared.send_to_dispatcher(&self.order.to, DispatcherToDispatcher::Given(change));
        let now = Instant::now();
        self.unconfirmed.insert(change, Unconfirmed { giving, since: now, last: now });
        self.given += 1;
        self.progress = self.ticks;
        self.shared.metrics.given.inc();
    }

    /// The connection stays here, unless it was given away.
    async fn fail(&mut self, change: DispatcherChange, reason: &str) {
        let Some(held) = self.offered.get_mut(&change) else { return };
        if held.giving.on_failure() != Some(GivingAction::GoOn) {
            return;
        }
        let Some(FrozenConnection { frozen, flow, taken, .. }) = self.forget(change) else { return };
        tracing::info!(connection = %change.connection, client = %flow.client, reason, "a connection keeps its dispatcher");
        self.note_failure(change.connection);
        if let Err(error) = frozen.thaw() {
            tracing::warn!(%error, "cannot thaw a connection");
        }
        self.bring_back(&[flow]).await;
        drop(taken);
    }

    async fn bring_back(&mut self, flows: &[Flow]) {
        if !flows.is_empty()
            && let Err(error) = self.places.bring_back(flows).await
        {
            tracing::warn!(%error, "cannot bring the packets of connections back");
        }
        for flow in flows {
            self.away.remove(flow);
        }
    }

    /// Repeats what was not answered, and gives up what takes too long.
    async fn on_tick(&mut self) {
        self.take_answers().await;
        self.ticks.0 += 1;
        let (now, ticks) = (Instant::now(), self.ticks);
        let table = &self.shared.table;
        let order = &self.order;
        self.asked.retain(|id, (first, last)| {
            if ticks.since(*first) > ATTEMPT_MAX {
                table.message(*id, stay_here());
                return false;
            }
            if now.duration_since(*last) > REPEAT {
                *last = now;
                return table.message(*id, RelayMessage::Change(Box::new(order.clone())));
            }
            table.contains(*id)
        });
        let late = self.offered.iter().filter(|(_, held)| ticks.since(held.since) > ATTEMPT_MAX);
        let late: Vec<_> = late.map(|(change, _)| *change).collect();
        // A dispatcher that answers nothing stands still.
        self.is_lost |= !late.is_empty() && ticks.since(self.answered) > ATTEMPT_MAX && self.pause.is_none();
        self.follow_link();
        if self.closed.as_ref().is_some_and(|closed| closed.renewed.elapsed() > CLOSED / 2) {
            self.close().await;
        }
        for change in late {
            self.fail(change, "no answer").await;
        }
        if now.duration_since(self.announced) > ANNOUNCE {
            self.announced = now;
            announce(self.shared, &self.scope, &self.order.to);
        }
        for (change, unconfirmed) in &mut self.unconfirmed {
            if now.duration_since(unconfirmed.last) > REPEAT {
                unconfirmed.last = now;
                self.shared.send_to_dispatcher(&self.order.to, DispatcherToDispatcher::Given(*change));
            }
        }
        self.forget_confirmed();
    }

    /// Pauses while the link to the next dispatcher is down, and until that is ready again.
    fn follow_link(&mut self) {
        let is_up = self.mesh_is_up();
        let Some(Pause { since, ready }) = &mut self.pause else {
            if !is_up {
                self.begin_pause();
            }
            return;
        };
        if is_up && ready.try_recv().is_ok() {
            self.pause = None;
            (self.answered, self.progress) = (self.ticks, self.ticks);
            return;
        }
        self.is_lost |= self.ticks.since(*since) > RELINK_MAX;
        if is_up && self.announced.elapsed() > REPEAT {
            self.announced = Instant::now();
            announce(self.shared, &self.scope, &self.order.to);
        }
    }

    fn begin_pause(&mut self) {
        if self.pause.is_none() {
            let (sender, ready) = oneshot::channel();
            lock(&self.shared.changes.ready).insert((self.order.to.clone(), self.scope.address), sender);
            self.pause = Some(Pause { since: self.ticks, ready });
        }
    }

    fn mesh_is_up(&self) -> bool {
        self.shared.mesh.is_up(&self.order.to)
    }

    /// Forgets the connections that the next dispatcher has confirmed, or holds no longer.
    fn forget_confirmed(&mut self) {
        let mut offered = lock(&self.shared.changes.offered);
        self.unconfirmed.retain(|change, Unconfirmed { giving, since, .. }| {
            let is_reminded = giving.is_given() && since.elapsed() < REMINDED;
            if !is_reminded {
                offered.remove(change);
            }
            is_reminded
        });
    }
}

/// Repeats that connections are given, for as long as the next dispatcher may hold them.
async fn remind(shared: Arc<DispatcherShared>, to: NodeName, given: Vec<DispatcherChange>) {
    let until = Instant::now() + REMINDED;
    while Instant::now() < until {
        for change in &given {
            shared.send_to_dispatcher(&to, DispatcherToDispatcher::Given(*change));
        }
        sleep(REPEAT).await;
    }
}

/// Also runs if the preparation is given up, because the lease is lost, an upgrade begins, or routes change.
impl Drop for Run<'_> {
    fn drop(&mut self) {
        // Their legs would stay detached.
        for id in self.asked.keys() {
            self.shared.table.message(*id, stay_here());
        }
        if self.pause.is_some() {
            lock(&self.shared.changes.ready).remove(&(self.order.to.clone(), self.scope.address));
        }
        let mut offered = lock(&self.shared.changes.offered);
        for change in self.offered.keys().chain(self.unconfirmed.keys()) {
            offered.remove(change);
        }
        drop(offered);
        let given: Vec<_> = self.unconfirmed.keys().copied().collect();
        if !given.is_empty() {
            tokio::spawn(remind(self.shared.clone(), self.order.to.clone(), given));
        }
        // Thaws their sockets. Their relays go on.
        self.offered.clear();
        let (places, away) = (self.places.clone(), self.away.drain().collect::<Vec<_>>());
        if !away.is_empty() {
            tokio::spawn(async move {
                if let Err(error) = places.bring_back(&away).await {
                    tracing::warn!(%error, "cannot bring the packets of connections back");
                }
            });
        }
    }
}

/// Freezes the socket of a client. Returns it with the state to ship.
fn freeze(client: OwnedFd, passed: Passed) -> Result<(Frozen<OwnedFd>, Vec<u8>), String> {
    let frozen = Frozen::freeze(client).map_err(|refused| refused.error.to_string())?;
    let shipped = Shipped { passed, socket: frozen.state().encode() };
    let state = postcard::to_stdvec(&shipped).map_err(|error| error.to_string())?;
    if state.len() > CHANGE_STATE_LEN_MAX {
        return Err(format!("its state has {} bytes", state.len()));
    }
    Ok((frozen, state))
}
