//! Takes connections of a service address from the dispatcher that has it.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};
use watari_addresses::Flow;
use watari_handoff::Taking;
use watari_sys::tcp;
use watari_tcp_repair::{RestoreError, Restored, State};
use watari_values::{AbortReason, DispatcherChange, NodeName};
use watari_wire::leg::LegSigner;
use watari_wire::{DispatcherToDispatcher, StatePart, TakeComing, TakeReady, TakeRefused, TakeWanted};

use super::{Shipped, lock};
use crate::clients::{Client, Presence};
use crate::legs::LegChoice;
use crate::listen::Visit;
use crate::relay::RelayDriver;
use crate::shared::DispatcherShared;
use crate::upgrade::{Passed, PassedConnection};

/// How long connections of an address may come after they were announced.
const EXPECTED: Duration = Duration::from_secs(10);
/// How long a connection is held for the decision. The previous dispatcher repeats it for as long.
const HELD_MAX: Duration = Duration::from_secs(5);
/// The bytes of states that are incomplete, of all connections.
const INCOMPLETE_LEN_MAX: usize = 256 << 20;
/// How long the next part of a state may take, and how many states may be incomplete.
const INCOMPLETE_MAX: Duration = Duration::from_secs(5);
const INCOMPLETE_COUNT_MAX: usize = 256;
/// How long the socket of an earlier attempt may still be open.
const CLOSED_MAX: Duration = Duration::from_millis(100);
/// How long a leg to the connection's agent may take, with the wait for a link.
const LEG_MAX: Duration = Duration::from_millis(500);
/// How long a connection that was given waits for a link to its agent. Its leg stays detached for longer.
const RENEWED_MAX: Duration = Duration::from_secs(10);
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// Connections whose packets pass the gate by one order.
const BATCH: usize = 64;

/// Connections that come from other dispatchers.
#[derive(Default)]
pub(super) struct Arrivals {
    /// Until when connections of an address come from a dispatcher.
    expected: Mutex<HashMap<(NodeName, IpAddr), Instant>>,
    /// The parts of states so far.
    incomplete: Mutex<HashMap<(NodeName, DispatcherChange), IncompleteState>>,
    /// Connections that are held, and those that were given lately. The last are asked about again.
    held: Mutex<HashMap<(NodeName, DispatcherChange), HeldArrival>>,
    /// Connections whose state is complete, until each is served or dropped.
    coming: Arc<AtomicUsize>,
}

impl Arrivals {
    /// Whether a connection is being restored, or held for the decision. It cannot pass to a successor of this process.
    pub(super) fn is_any_coming(&self) -> bool {
        self.coming.load(Ordering::SeqCst) > 0
    }
}

/// Counts a connection in [`Arrivals::coming`] until it is dropped.
struct Coming(Arc<AtomicUsize>);

impl Coming {
    fn count(coming: &Arc<AtomicUsize>) -> Self {
        coming.fetch_add(1, Ordering::SeqCst);
        Self(coming.clone())
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The bytes of a state so far, and when the last came.
type IncompleteState = (Vec<u8>, Instant);

struct HeldArrival {
    taking: Taking,
    given: Option<oneshot::Sender<()>>,
    since: Instant,
}

/// A connection that stands still here until it is given.
struct Arrived {
    passed: Passed,
    socket: Restored,
    flow: Flow,
    /// The leg to its agent, if it has one.
    leg: Option<NewLeg>,
    presence: Presence,
}

/// A leg without a preface.
struct NewLeg {
    stream: TcpStream,
    /// That of the agent's link when the leg was opened.
    signer: Arc<LegSigner>,
}

impl DispatcherShared {
    pub(crate) fn on_take_wanted(self: &Arc<Self>, from: &NodeName, wanted: &TakeWanted) {
        let TakeWanted { address, connections } = *wanted;
        let Some(places) = self.changes.places.get().cloned() else { return };
        if self.is_passing_on() {
            // The successor answers.
            return;
        }
        let (shared, from) = (self.clone(), from.clone());
        tokio::spawn(async move {
            match places.expect(&from, address).await {
                Ok(mac) => {
                    tracing::debug!(%address, %from, connections, "connections are about to come");
                    let until = Instant::now() + EXPECTED;
                    lock(&shared.changes.arrivals.expected).insert((from.clone(), address), until);
                    let ready = DispatcherToDispatcher::TakeReady(TakeReady { address, mac });
                    shared.send_to_dispatcher(&from, ready);
                }
                Err(cause) => tracing::warn!(%address, %from, cause, "cannot take connections"),
            }
        });
    }

    /// Holds the packets of connections that are about to come.
    pub(crate) fn on_take_coming(&self, from: &NodeName, coming: &TakeComing) {
        let Some(places) = self.changes.places.get().cloned() else { return };
        let flows = coming.flows.iter().map(|(client, server)| Flow { client: *client, server: *server });
        let flows: Vec<_> = flows.filter(|flow| self.is_expected(from, flow.server.ip())).collect();
        if flows.is_empty() {
            return;
        }
        if let Err(error) = places.expect_flows(&flows, from) {
            tracing::warn!(%from, %error, "cannot expect connections");
        }
        tokio::spawn(async move {
            if let Err(error) = places.hold(&flows).await {
                tracing::debug!(%error, "packets of connections that are about to come are not held");
            }
        });
    }

    pub(crate) fn on_state_part(self: &Arc<Self>, from: &NodeName, part: &StatePart) {
        let key = (from.clone(), part.change);
        if self.is_passing_on() || !self.expects_some(from) {
            return self.refuse_change(from, part.change, AbortReason::Expired);
        }
        let state = {
            let mut incomplete = lock(&self.changes.arrivals.incomplete);
            if part.offset == 0 {
                // The others were given up.
                incomplete.retain(|_, (_, last)| last.elapsed() < INCOMPLETE_MAX);
                if incomplete.len() < INCOMPLETE_COUNT_MAX {
                    incomplete.insert(key.clone(), (Vec::new(), Instant::now()));
                }
            }
            let others: usize = incomplete.values().map(|(state, _)| state.len()).sum();
            let Some((state, last)) = incomplete.get_mut(&key) else {
                return self.refuse_change(from, part.change, AbortReason::Full);
            };
            let fits = state.len() == part.offset as usize && state.len() + part.bytes.len() <= part.state_len as usize;
            if !fits || others + part.bytes.len() > INCOMPLETE_LEN_MAX {
                incomplete.remove(&key);
                let reason = if fits { AbortReason::Full } else { AbortReason::BadState };
                return self.refuse_change(from, part.change, reason);
            }
            state.extend_from_slice(&part.bytes);
            *last = Instant::now();
            if state.len() < part.state_len as usize {
                return;
            }
            incomplete.remove(&key).map(|(state, _)| state).unwrap_or_default()
        };
        // Counted before it is known whether a successor begins, which waits for those that are counted.
        let coming = Coming::count(&self.changes.arrivals.coming);
        if self.is_passing_on() {
            return self.refuse_change(from, part.change, AbortReason::Expired);
        }
        let (shared, (from, change)) = (self.clone(), key);
        self.next_runtime().spawn(async move { shared.take(from, change, state, coming).await });
    }

    /// Whether connections go to a successor of this process.
    fn is_passing_on(&self) -> bool {
        self.successor.borrow().is_some()
    }

    /// Whether a dispatcher has announced connections at the address.
    fn is_expected(&self, from: &NodeName, address: IpAddr) -> bool {
        let expected = lock(&self.changes.arrivals.expected);
        expected.get(&(from.clone(), address)).is_some_and(|until| *until > Instant::now())
    }

    /// The same at any address.
    fn expects_some(&self, from: &NodeName) -> bool {
        let now = Instant::now();
        lock(&self.changes.arrivals.expected).iter().any(|((node, _), until)| node == from && *until > now)
    }

    fn refuse_change(&self, from: &NodeName, change: DispatcherChange, reason: AbortReason) {
        let refused = DispatcherToDispatcher::TakeRefused(TakeRefused { change, reason });
        self.send_to_dispatcher(from, refused);
    }

    pub(crate) fn on_given(&self, from: &NodeName, change: DispatcherChange) {
        let mut held = lock(&self.changes.arrivals.held);
        let Some(arrival) = held.get_mut(&(from.clone(), change)) else {
            // The predecessor of this process may have got it. A connection that was dropped before is not answered: the
            // previous dispatcher gives it up, too.
            if self.table.contains(change.connection) {
                self.send_to_dispatcher(from, DispatcherToDispatcher::Taken(change));
            }
            return;
        };
        if arrival.taking.on_given(change.number)
            && let Some(given) = arrival.given.take()
        {
            let _ = given.send(());
        }
        if arrival.taking.is_live() {
            self.send_to_dispatcher(from, DispatcherToDispatcher::Taken(change));
        }
    }

    /// The link to a dispatcher is lost. Parts that are missing do not come any more.
    pub(crate) fn on_dispatcher_lost(&self, peer: &NodeName) {
        lock(&self.changes.arrivals.incomplete).retain(|(from, _), _| from != peer);
    }

    /// Restores a connection, and goes on with it when it is given.
    async fn take(self: Arc<Self>, from: NodeName, change: DispatcherChange, state: Vec<u8>, coming: Coming) {
        self.drop_earlier(&from, change);
        let arrived = match self.arrive(&from, change, &state).await {
            Ok(arrived) => arrived,
            Err((reason, cause)) => {
                tracing::warn!(connection = %change.connection, %from, cause, "cannot take a connection");
                return self.refuse_change(&from, change, reason);
            }
        };
        drop(state);
        let key = (from, change);
        let (sender, given) = oneshot::channel();
        let held = HeldArrival { taking: Taking::hold(change.number), given: Some(sender), since: Instant::now() };
        {
            let mut all = lock(&self.changes.arrivals.held);
            all.retain(|_, held| held.since.elapsed() < 2 * HELD_MAX);
            all.insert(key.clone(), held);
        }
        self.send_to_dispatcher(&key.0, DispatcherToDispatcher::TakeHeld(change));
        let is_given = matches!(timeout(HELD_MAX, given).await, Ok(Ok(())));
        // It may be given at this moment.
        let is_live = || lock(&self.changes.arrivals.held).get_mut(&key).is_some_and(|held| held.taking.on_timeout());
        if is_given || is_live() {
            self.go_on(change, arrived, coming).await;
        } else {
            tracing::warn!(connection = %change.connection, from = %key.0, "a connection was not given in time");
        }
    }

    /// Drops what an earlier attempt has left, which the previous dispatcher has given up.
    fn drop_earlier(&self, from: &NodeName, change: DispatcherChange) {
        for ((peer, earlier), held) in lock(&self.changes.arrivals.held).iter_mut() {
            let is_earlier = earlier.connection == change.connection && earlier.number < change.number;
            if peer == from && is_earlier && !held.taking.on_timeout() {
                held.given = None;
            }
        }
    }

    async fn arrive(
        self: &Arc<Self>,
        from: &NodeName,
        change: DispatcherChange,
        state: &[u8],
    ) -> Result<Arrived, (AbortReason, String)> {
        let bad = |cause: String| (AbortReason::BadState, cause);
        let Shipped { passed, socket } = postcard::from_bytes(state).map_err(|error| bad(error.to_string()))?;
        let socket = State::decode(&socket).map_err(|error| bad(error.to_string()))?;
        let flow = Flow { client: socket.remote(), server: socket.local() };
        if !self.is_expected(from, flow.server.ip()) {
            return Err(bad(format!("no connection of {} is expected", flow.server)));
        }
        let limits = self.limits();
        let full = || (AbortReason::Full, "connections_max is reached".to_owned());
        let (client, leg) = match &passed {
            Passed::Connection(passed) => {
                let is_known = self.table.contains(change.connection);
                if is_known || !passed.fits(change.connection, socket.unacknowledged().len()) {
                    return Err(bad("it is here already, or its counts are impossible".to_owned()));
                }
                (passed.client, Some(self.leg_to_owner(passed).await?))
            }
            Passed::Client(passed) => (passed.address, None),
            Passed::Passthrough(_) | Passed::Relayed(_) => return Err(bad("it is of another kind".to_owned())),
        };
        let mut presence = Presence::enter(&self.clients, limits.connections_max).ok_or_else(full)?;
        // A limit for one client does not end a connection that exists.
        presence.comes_from(client.ip(), usize::MAX);
        let socket = restore(&socket).await.map_err(|error| bad(error.to_string()))?;
        tcp::prepare_restored(&socket, limits.user_timeout).map_err(|error| bad(error.to_string()))?;
        Ok(Arrived { passed, socket, flow, leg, presence })
    }

    async fn leg_to_owner(&self, passed: &PassedConnection) -> Result<NewLeg, (AbortReason, String)> {
        let owner = &passed.entry.node;
        let leg = timeout(LEG_MAX, self.new_leg_to(owner)).await;
        let leg = leg.unwrap_or_else(|elapsed| Err(elapsed.into()));
        leg.map_err(|error| (AbortReason::NoLeg, format!("no leg to {owner}: {error}")))
    }

    /// Opens a leg, when there is a link to the agent. An idle leg would end when a new process of the agent begins.
    async fn new_leg_to(&self, agent: &NodeName) -> io::Result<NewLeg> {
        let signer = loop {
            match self.agents.signer(agent) {
                Some(signer) if self.agents.availability(agent) == Some(true) => break signer,
                _ => sleep(LOOK_INTERVAL).await,
            }
        };
        let stream = self.leg_to(agent, LegChoice::New).await?.stream;
        Ok(NewLeg { stream, signer })
    }

    /// The leg, or another one if the link to the agent was lost since it was opened: the process of the agent that has
    /// accepted it may read no more prefaces.
    async fn renew(&self, agent: &NodeName, leg: NewLeg) -> TcpStream {
        let is_current =
            |leg: &NewLeg| self.agents.signer(agent).is_some_and(|signer| Arc::ptr_eq(&signer, &leg.signer));
        if is_current(&leg) {
            return leg.stream;
        }
        let renewed = async {
            loop {
                match self.new_leg_to(agent).await {
                    Ok(leg) if is_current(&leg) => return leg.stream,
                    _ => sleep(LOOK_INTERVAL).await,
                }
            }
        };
        // Without a link, no preface can be signed, and the connection ends.
        timeout(RENEWED_MAX, renewed).await.unwrap_or(leg.stream)
    }

    /// Lets the connection's packets out, and serves it to its end.
    async fn go_on(self: &Arc<Self>, change: DispatcherChange, arrived: Arrived, coming: Coming) {
        let Arrived { passed, socket, flow, leg, presence } = arrived;
        let (sender, let_in) = oneshot::channel();
        if self.let_in.send((flow, sender)).await.is_err() || let_in.await.is_err() {
            tracing::warn!(client = %flow.client, "the gate does not let a connection in: it is lost");
            return;
        }
        let stream = socket.release().and_then(|live| Ok((TcpStream::from_std(live.stream)?, live.waiting)));
        let (stream, waiting) = match stream {
            Ok(live) => live,
            Err(error) => {
                tracing::warn!(client = %flow.client, %error, "a connection is lost");
                return;
            }
        };
        self.metrics.taken.inc();
        // If there are too many at a time, the client repeats its packets.
        let _ = self.released.try_send(flow);
        match passed {
            Passed::Connection(passed) => {
                let _presence = presence;
                let leg = match leg {
                    Some(leg) => Some(self.renew(&passed.entry.node, leg).await),
                    None => None,
                };
                let mut driver = Box::new(RelayDriver::restore(self, *passed, (stream, leg, None)));
                driver.go_on(change, waiting);
                // It can pass from here on.
                drop(coming);
                driver.run().await;
            }
            Passed::Client(passed) => {
                let client =
                    Client { stream, address: passed.address, server: passed.server, read_ahead: passed.read_ahead };
                let visit = Visit::restore(self, presence, client);
                drop(coming);
                visit.serve().await;
            }
            Passed::Passthrough(_) | Passed::Relayed(_) => {}
        }
    }
}

/// Restores the socket. That of an earlier attempt may be about to be closed.
async fn restore(state: &State) -> Result<Restored, RestoreError> {
    let until = Instant::now() + CLOSED_MAX;
    loop {
        match state.restore() {
            Err(RestoreError::Exists) if Instant::now() < until => sleep(Duration::from_millis(5)).await,
            restored => return restored,
        }
    }
}

/// Delivers the packets that were held for connections, once they are released.
pub(crate) async fn deliver(shared: Arc<DispatcherShared>, mut released: mpsc::Receiver<Flow>) {
    let mut batch = Vec::with_capacity(BATCH);
    while released.recv_many(&mut batch, BATCH).await > 0 {
        let Some(places) = shared.changes.places.get() else { return };
        match places.deliver(&batch).await {
            Ok(packets) => tracing::debug!(packets, "held packets are delivered"),
            Err(error) => tracing::warn!(%error, "cannot deliver packets of connections that have come"),
        }
        batch.clear();
    }
}

/// A flow whose packets are to pass the gate, and who waits for it.
pub(crate) type LetIn = (Flow, oneshot::Sender<()>);

/// Lets flows in, those that have come meanwhile together.
pub(crate) async fn let_in(shared: Arc<DispatcherShared>, mut wanted: mpsc::Receiver<LetIn>) {
    let mut batch = Vec::with_capacity(BATCH);
    while wanted.recv_many(&mut batch, BATCH).await > 0 {
        let Some(places) = shared.changes.places.get() else { return };
        let flows: Vec<_> = batch.iter().map(|(flow, _)| *flow).collect();
        let all = places.let_in(&flows).await;
        for (flow, waiting) in batch.drain(..) {
            // One flow that cannot come does not keep the others out.
            let one = if all.is_ok() { Ok(()) } else { places.let_in(&[flow]).await };
            match one {
                Ok(()) => drop(waiting.send(())),
                Err(error) => tracing::warn!(client = %flow.client, %error, "cannot let a connection in"),
            }
        }
    }
}
