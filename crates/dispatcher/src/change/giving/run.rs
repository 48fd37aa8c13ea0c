//! Connections that go to one dispatcher.
//!
//! ```text
//!   left --ask--> asked --Standing--> standing --freeze--> offered --Held--> unconfirmed --Taken--> (gone)
//!    ^             | CannotNow          | waits too long     | refused, late: thawed
//!    |<- next round '                   |                    |
//!    |<---------------------------------'                    |
//!    '<- next round, ATTEMPTS times at most -----------------'
//! ```
//!
//! One state is shipped at a time, in parts, as fast as the link takes them. So the time limits of an attempt hardly
//! include what waits before it, and other messages on the link wait for a few parts at most.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::poll_fn;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::PollSemaphore;
use watari_addresses::Flow;
use watari_handoff::{Giving, GivingAction};
use watari_mesh::SendError;
use watari_tcp_repair::Frozen;
use watari_values::{AbortReason, ConnectionId, DispatcherChange, NodeName};
use watari_wire::{CHANGE_STATE_LEN_MAX, DispatcherToDispatcher, STATE_PART_LEN_MAX, StatePart, TakeComing};

use super::super::places::Places;
use super::super::{Answer, Offered, Shipped, lock};
use super::pacing::{BATCH, Pacing};
use super::{CLOSED, ChangeOrder, REPEAT, Reply, Scope, Standing, announce, stay_here};
use crate::shared::DispatcherShared;
use crate::table::RelayMessage;
use crate::upgrade::Passed;

/// How long all connections have, and how long none may have changed, and no part of a state may have gone. The address
/// leaves this node afterwards.
const ALL_MAX: Duration = Duration::from_mins(1);
const STANDSTILL_MAX: Duration = Duration::from_secs(3);
/// How often the next dispatcher hears that more connections will come.
const ANNOUNCE: Duration = Duration::from_secs(2);
/// How long nothing has gone, and new clients have been turned away, when the rest is given up.
const REST_MAX: Duration = Duration::from_millis(300);
/// How long each step of an attempt has: until the agent has detached its leg, until the link takes the next part of the
/// state, and until the next dispatcher holds the connection. How long a connection may wait to be shipped.
const ATTEMPT_MAX: Duration = Duration::from_secs(1);
/// How long a state may take on the link. The agent ends a connection whose leg is detached for 15 s.
const SHIPPING_MAX: Duration = Duration::from_secs(5);
/// How long a connection may be given after it was shipped. The next dispatcher drops it after 5 s.
const GIVEN_MAX: Duration = Duration::from_secs(3);
/// How long the next dispatcher is reminded of a connection that it has: as long as it holds one.
const REMINDED: Duration = Duration::from_secs(5);
/// How long the link to the next dispatcher may be down, or a new process of it not ready. It may be upgraded.
const RELINK_MAX: Duration = Duration::from_secs(5);
/// Attempts for one connection in one switch.
const ATTEMPTS: u32 = 3;
/// How often what was not answered is looked at, and the table at the end of a round.
const TICK: Duration = Duration::from_millis(20);
/// The length of a part of a state. Other messages on the link wait for a few of them at most.
const PART_LEN: usize = STATE_PART_LEN_MAX / 4;
/// How long packets of a connection are forwarded that has gone: longer than it is let in at the next dispatcher. By
/// then routers and clients know the new owner.
const FORWARDED: Duration = Duration::from_secs(150);

/// Ticks of a run so far. Its time limits count them, and not the clock: while this process stands still, there are none,
/// and what has come meanwhile is handled before the next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Ticks(u32);

impl Ticks {
    /// The time since a tick, as far as this process has run.
    fn since(self, earlier: Self) -> Duration {
        TICK * (self.0 - earlier.0)
    }
}

/// Connections that go to one dispatcher.
pub(super) struct Run<'a> {
    shared: &'a Arc<DispatcherShared>,
    places: &'a Places,
    scope: Scope,
    order: ChangeOrder,
    mac: [u8; 6],
    replies: mpsc::UnboundedReceiver<(ConnectionId, Reply)>,
    answers: mpsc::UnboundedReceiver<(DispatcherChange, Answer)>,
    answers_to: mpsc::UnboundedSender<(DispatcherChange, Answer)>,
    /// Connections to ask in this round.
    left: VecDeque<ConnectionId>,
    /// Connections that were asked: at which tick first, and when last.
    asked: HashMap<ConnectionId, (Ticks, Instant)>,
    /// How many connections are asked, and the tick at which they were too many.
    pacing: Pacing,
    congested: Ticks,
    /// Connections that stand still and wait to be shipped, since which tick.
    standing: VecDeque<(Standing, Ticks)>,
    /// Of all runs to this dispatcher, one ships a state at a time.
    turns: PollSemaphore,
    /// Whether this run waits for its turn.
    wants_turn: bool,
    /// The state that is being shipped.
    shipping: Option<Shipping>,
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
    /// The tick at which a connection was given last, or a part of a state has gone.
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
    /// The tick at which that began.
    since: Ticks,
    renewed: Instant,
}

/// A state of which the link has not taken all.
struct Shipping {
    change: DispatcherChange,
    state: Vec<u8>,
    /// The bytes that were sent.
    sent: usize,
    /// The tick at which this began.
    since: Ticks,
    _turn: OwnedSemaphorePermit,
}

/// The result of a run.
pub(super) struct Outcome {
    /// Connections that were given.
    pub(super) given: usize,
    /// Connections that are still here.
    pub(super) left: usize,
    /// Whether the next dispatcher cannot be reached any more.
    pub(super) is_lost: bool,
}

/// A frozen connection.
struct FrozenConnection {
    frozen: Frozen<OwnedFd>,
    giving: Giving,
    flow: Flow,
    taken: oneshot::Sender<()>,
    /// When the last part of its state was sent, and at which tick.
    shipped: Instant,
    since: Ticks,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        shared: &'a Arc<DispatcherShared>,
        places: &'a Places,
        scope: Scope,
        to: &NodeName,
        mac: [u8; 6],
    ) -> Self {
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
            pacing: Pacing::new(),
            congested: Ticks::default(),
            standing: VecDeque::new(),
            turns: PollSemaphore::new(shared.changes.turns(to)),
            wants_turn: false,
            shipping: None,
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

    /// Gives all connections, as far as possible. At the end, new clients are turned away, so that none is left behind.
    pub(super) async fn give(mut self) -> Outcome {
        let deadline = Instant::now() + ALL_MAX;
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.left = self.at_address();
        while !self.is_lost {
            self.ask();
            self.send_parts().await;
            let ships = self.shipping.is_some();
            // Once it waits for its turn, it waits until it gets it. Otherwise a turn could be its own that it never uses.
            self.wants_turn |= !ships && !self.standing.is_empty() && self.pause.is_none();
            tokio::select! {
                biased;
                Some((change, answer)) = self.answers.recv() => self.on_answer(change, answer).await,
                Some((id, reply)) = self.replies.recv() => self.on_replies(id, reply).await,
                _ = ticks.tick() => self.on_tick().await,
                () = self.shared.mesh.until_queue_short(&self.order.to), if ships => {}
                Some(turn) = poll_fn(|cx| self.turns.poll_acquire(cx)), if self.wants_turn => {
                    self.wants_turn = false;
                    self.ship_next(turn).await;
                }
            }
            if self.is_over(deadline) {
                break;
            }
            if self.is_any_underway() || !self.left.is_empty() {
                continue;
            }
            // A round is over. Those that begin or end at the moment are asked again.
            self.left = self.at_address();
            match &self.closed {
                None => self.close().await,
                Some(Closed { since, .. }) => {
                    let is_rest = self.left.is_empty() || self.ticks.since(self.progress.max(*since)) > REST_MAX;
                    if is_rest && self.may_stop() {
                        break;
                    }
                }
            }
            if !self.left.is_empty() {
                sleep(TICK).await;
            }
        }
        let offered: Vec<_> = self.offered.keys().copied().collect();
        for change in offered {
            self.fail(change, "time is over").await;
        }
        let standing = mem::take(&mut self.standing);
        self.let_go_on(standing, "time is over").await;
        Outcome { given: self.given, left: self.scope.ids(self.shared).len(), is_lost: self.is_lost }
    }

    /// Whether connections are asked, stand still, or may be at the next dispatcher.
    fn is_any_underway(&self) -> bool {
        !self.asked.is_empty() || !self.standing.is_empty() || !self.offered.is_empty()
    }

    /// Turns new clients away for a while.
    async fn close(&mut self) {
        let now = Instant::now();
        self.closed.get_or_insert(Closed { since: self.ticks, renewed: now }).renewed = now;
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
        let batch = self.pacing.asks(self.asked.len() + self.standing.len() + self.offered.len());
        if self.left.is_empty() || batch == 0 || self.pause.is_some() {
            return;
        }
        let asked: Vec<_> = self.left.drain(..batch.min(self.left.len())).collect();
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

    /// Handles what has come from relays. The packets of those that stand still go to the next dispatcher from now on.
    async fn on_replies(&mut self, id: ConnectionId, reply: Reply) {
        let mut next = Some((id, reply));
        let mut batch = VecDeque::new();
        while let Some((id, reply)) = next {
            self.asked.remove(&id);
            if let Reply::Standing(standing) = reply {
                batch.push_back((*standing, self.ticks));
            }
            next = (batch.len() < BATCH).then(|| self.replies.try_recv().ok()).flatten();
        }
        let flows: Vec<_> = batch.iter().map(|(standing, _)| standing.flow).collect();
        if flows.is_empty() {
            return;
        }
        self.away.extend(&flows);
        match self.places.send_away(&flows, self.mac, FORWARDED).await {
            Ok(()) => self.standing.append(&mut batch),
            Err(error) => {
                tracing::warn!(%error, "cannot forward the packets of connections");
                self.bring_back(&flows).await;
            }
        }
    }

    /// Sends parts of the state that is being shipped, as far as the link takes them.
    async fn send_parts(&mut self) {
        let (to, mesh) = (&self.order.to, &self.shared.mesh);
        while let Some(Shipping { change, state, sent, .. }) = &mut self.shipping {
            let change = *change;
            if !mesh.is_queue_short(to) {
                return;
            }
            let end = state.len().min(*sent + PART_LEN);
            let (offset, state_len, bytes) = (*sent as u32, state.len() as u32, state[*sent..end].to_vec());
            let part = StatePart { change, offset, state_len, bytes };
            match mesh.send_bulk(to, &DispatcherToDispatcher::StatePart(part).into()) {
                Ok(()) => *sent = end,
                Err(SendError::QueueFull) => return,
                Err(error) => {
                    self.shipping = None;
                    self.follow_link();
                    return self.fail(change, &error.to_string()).await;
                }
            }
            if end == state.len() {
                self.shipping = None;
            }
            if let Some(offered) = self.offered.get_mut(&change) {
                (offered.shipped, offered.since) = (Instant::now(), self.ticks);
            }
            self.progress = self.ticks;
        }
    }

    /// Freezes the connection that has waited for the longest time, and begins to ship it. If that fails, it goes on.
    async fn ship_next(&mut self, turn: OwnedSemaphorePermit) {
        let Some((standing, _)) = self.standing.pop_front_if(|_| self.pause.is_none()) else { return };
        let Standing { giving, change, passed, client, flow, taken } = standing;
        let (frozen, state) = match freeze(client, passed) {
            Ok(frozen) => frozen,
            Err(reason) => {
                note_stay(change, flow, &reason);
                self.note_failure(change.connection);
                self.bring_back(&[flow]).await;
                return drop(taken);
            }
        };
        let offered = Offered { to: self.order.to.clone(), answers: self.answers_to.clone() };
        lock(&self.shared.changes.offered).insert(change, offered);
        let (shipped, since) = (Instant::now(), self.ticks);
        self.offered.insert(change, FrozenConnection { frozen, giving, flow, taken, shipped, since });
        self.shipping = Some(Shipping { change, state, sent: 0, since, _turn: turn });
    }

    /// Connections that were not shipped go on here, and may be asked again in this round. Their relays go on when their
    /// packets are back.
    async fn let_go_on(&mut self, connections: impl IntoIterator<Item = (Standing, Ticks)>, reason: &str) {
        let connections: Vec<_> = connections.into_iter().map(|(standing, _)| standing).collect();
        for Standing { change, flow, .. } in &connections {
            tracing::debug!(connection = %change.connection, client = %flow.client, reason, "a connection goes on for now");
            self.left.push_back(change.connection);
        }
        let flows: Vec<_> = connections.iter().map(|standing| standing.flow).collect();
        self.bring_back(&flows).await;
    }

    fn forget(&mut self, change: DispatcherChange) -> Option<FrozenConnection> {
        self.shipping.take_if(|shipping| shipping.change == change);
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
        // Only a faulty dispatcher has it before all of its state.
        self.shipping.take_if(|shipping| shipping.change == change);
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
        if self.standing.is_empty() {
            self.pacing.on_room();
        }
        self.shared.metrics.given.inc();
    }

    /// The connection stays here, unless it was given away.
    async fn fail(&mut self, change: DispatcherChange, reason: &str) {
        let Some(held) = self.offered.get_mut(&change) else { return };
        if held.giving.on_failure() != Some(GivingAction::GoOn) {
            return;
        }
        let Some(FrozenConnection { frozen, flow, taken, .. }) = self.forget(change) else { return };
        note_stay(change, flow, reason);
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
        let too_long = self.shipping.as_ref().filter(|shipping| ticks.since(shipping.since) > SHIPPING_MAX);
        if let Some(change) = too_long.map(|shipping| shipping.change) {
            self.fail(change, "the link to the next dispatcher is slow").await;
        }
        if self.wants_turn {
            // Another run ships, if this one does not begin at once.
            self.progress = self.ticks;
        }
        if self.pause.is_some() {
            let standing = mem::take(&mut self.standing);
            self.let_go_on(standing, "there is no link to the next dispatcher").await;
        }
        let waiting = self.standing.iter().take_while(|(_, since)| ticks.since(*since) > ATTEMPT_MAX).count();
        if waiting > 0 {
            if ticks.since(self.congested) > ATTEMPT_MAX {
                self.congested = ticks;
                self.pacing.on_congestion();
            }
            let waiting: Vec<_> = self.standing.drain(..waiting).collect();
            self.let_go_on(waiting, "the link to the next dispatcher is slow").await;
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

/// The connection stays here for now.
fn note_stay(change: DispatcherChange, flow: Flow, reason: &str) {
    tracing::info!(connection = %change.connection, client = %flow.client, reason, "a connection keeps its dispatcher");
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
